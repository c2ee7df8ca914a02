"""How commands show what they found: data on stdout, talk on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import orjson


def say(text: str) -> None:
    """Tell the person something that is not data."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write(text: str, *, end: str = "\n") -> None:
    """Write data for people."""
    sys.stdout.write(f"{text}{end}")
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write one object as one line."""
    sys.stdout.write(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode() + "\n")
    sys.stdout.flush()


def show(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Write a list: a line of JSON per row, or a table of some columns; `empty` is said when there is no row."""
    listed = list(rows)
    if as_json:
        for row in listed:
            write_json(row)
        return
    if not listed:
        say(empty)
        return
    table = [[name.replace("_", " ").upper() for name in columns], *([cell(row.get(name)) for name in columns] for row in listed)]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        write("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def cell(value: Any) -> str:
    """Return a value as it stands in a table: short, on one line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, (list, tuple)):
        return ",".join(cell(item) for item in cast("list[Any]", value)) or "-"
    if isinstance(value, Mapping):
        return ",".join(str(key) for key in cast("Mapping[Any, Any]", value)) or "-"
    return one_line(f"{value:.1f}" if isinstance(value, float) else str(value), 80)


def one_line(text: str, longest: int) -> str:
    """Return `text` on one line, cut at `longest` characters, control characters made visible."""
    flat = "".join(ch if ch.isprintable() else " " for ch in text)
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"
