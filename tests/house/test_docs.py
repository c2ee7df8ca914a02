"""Do the docs speak of things that exist?"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from turnyard import lifecycle
from turnyard.settings import Settings
from turnyard.state import dead, reasons

TEST_NAME = re.compile(r"`(?:tests/[\w/]+\.py::)?(test_\w+)`")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|[;&|(] *|exec \S+ -- )turnyard ([^;&|)\n#]*)", re.MULTILINE)
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def pages(root: Path) -> list[Path]:
    return [root / name for name in PAGES] + [page for part in ("docs", "k8s", "tests") for page in sorted((root / part).rglob("*.md"))]


def blocks(root: Path, language: str) -> Iterator[tuple[str, str]]:
    for page in pages(root):
        for found, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if found == language:
                yield page.name, text


def names_in_tests(root: Path) -> set[str]:
    names: set[str] = set()
    for path in (root / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        names.add(path.stem)
    return names


def test_every_test_that_a_page_names_exists(root: Path) -> None:
    known = names_in_tests(root)
    unknown = [
        f"{page.name}: {name}" for page in pages(root) for name in TEST_NAME.findall(page.read_text(encoding="utf-8")) if name not in known
    ]
    assert unknown == []


def test_every_failure_window_names_a_test(root: Path) -> None:
    windows = [
        line for line in (root / "docs" / "guarantees.md").read_text(encoding="utf-8").splitlines() if re.match(r"^\| W\d+ \|", line)
    ]
    assert len(windows) > 20
    assert [line for line in windows if not TEST_NAME.search(line)] == []


def test_every_link_between_pages_leads_somewhere(root: Path) -> None:
    broken = [
        f"{page.name}: {target}"
        for page in pages(root)
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_python_example_on_a_page_is_python_that_imports_what_exists(root: Path) -> None:
    for page, text in blocks(root, "python"):
        code = "\n".join(f"    {line}" for line in text.splitlines())
        tree = ast.parse(f"async def example():\n{code}\n    pass\n", page)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("turnyard"):
                module = importlib.import_module(node.module)
                assert [name.name for name in node.names if not hasattr(module, name.name)] == [], page


def test_every_command_on_a_page_exists_with_its_flags(root: Path) -> None:
    typer_main = pytest.importorskip("typer.main")
    cli = pytest.importorskip("turnyard.cli")
    wrong: list[str] = []
    seen = 0
    for page, text in blocks(root, "bash"):
        for words in COMMAND.findall(text):
            seen += 1
            command = typer_main.get_command(cli.app)
            rest = shlex.split(words.replace("$(", "("), comments=True)
            while rest and rest[0] in getattr(command, "commands", {}):
                command = command.commands[rest.pop(0)]
            flags = {flag for parameter in command.params for flag in parameter.opts + parameter.secondary_opts}
            unknown = [word for word in rest if word.startswith("-") and word.split("=")[0] not in flags | {"--help"}]
            if unknown or getattr(command, "commands", None):
                wrong.append(f"{page}: turnyard {words.strip()}: {', '.join(unknown) or 'no such command'}")
    assert seen > 5
    assert wrong == []


def inside(annotation: object) -> tuple[type[BaseModel], str] | None:
    """The section that a key holds, and how a path goes on into it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, "."
    found = [below for part in getattr(annotation, "__args__", ()) if (below := inside(part))]
    if not found:
        return None
    section, way = found[0]
    return section, {dict: ".<name>", list: "[]"}.get(getattr(annotation, "__origin__", None), "") + way


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if below := inside(field.annotation):
            yield from keys(below[0], f"{prefix}{name}{below[1]}")
        else:
            yield f"{prefix}{name}"


def test_the_configuration_page_lists_every_key_and_no_other(root: Path) -> None:
    page = (root / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)) == sorted(keys(Settings))


def test_the_operations_page_lists_every_answer_of_explain_and_no_other(root: Path) -> None:
    page = (root / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("## Why does this session not move?")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(reasons.FIXES)


def test_the_operations_page_lists_every_reason_of_a_dead_letter_and_no_other(root: Path) -> None:
    page = (root / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("## Dead letters")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(dead.FIXES)


def test_the_operations_page_lists_every_exit_code(root: Path) -> None:
    codes = (
        lifecycle.OK,
        lifecycle.FAILED,
        lifecycle.USAGE,
        lifecycle.CONFIG,
        lifecycle.UNREACHABLE,
        lifecycle.FORBIDDEN,
        lifecycle.NOT_FOUND,
        lifecycle.REFUSED,
        lifecycle.TIMED_OUT,
        lifecycle.CANCELLED,
        lifecycle.INTERRUPTED,
    )
    page = (root / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(codes)
