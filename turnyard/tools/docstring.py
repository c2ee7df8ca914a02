"""What a Google docstring says about a function and each of its arguments."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes):\s*$")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_ARGS = frozenset({"Args", "Arguments", "Parameters"})


def read_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """Return (what stands before the first section, description by argument name)."""
    about: list[str] = []
    args: list[str] = []
    section: str | None = None
    for line in inspect.cleandoc(doc or "").splitlines():
        found = _SECTION.match(line)
        if found:
            section = found[1]
        elif section is None:
            about.append(line)
        elif section in _ARGS:
            args.append(line)
    return "\n".join(about).strip(), _arguments(args)


def _arguments(lines: list[str]) -> dict[str, str]:
    """Return the description of each argument; lines indented deeper than the first belong to the one above."""
    found: dict[str, str] = {}
    name, base = "", None
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        base = indent if base is None else base
        starts = _ARGUMENT.match(line.strip()) if indent <= base else None
        if starts:
            name = starts[1]
            found[name] = starts[2]
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
