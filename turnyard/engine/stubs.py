"""How an old, large entry is shown in few characters, and how a model reads the rest of it.

A stub names the entry and tells its full length; nothing of what is stored changes. Lengths are in characters; in bytes only
where the whole of a result is a file, which can be read from anywhere without what stands before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnyard.engine.effects import READ_ENTRY
from turnyard.engine.texts import text_of
from turnyard.ports import ToolSpec
from turnyard.records.log import LogRecord

MIN_HEAD_CHARS = 100
DEFAULT_READ_CHARS = 4_000
MAX_READ_CHARS = 20_000
_REST_BYTES = 3  # a character has at most four


def stub(seq: int, text: str, above_chars: int) -> str:
    """Return what is shown of the entry `seq` when its text is longer than `above_chars`; 0 shows all of any text."""
    if above_chars <= 0 or len(text) <= above_chars:
        return text
    head = text[: max(MIN_HEAD_CHARS, above_chars // 2)]
    shown = f"[event_id={seq} length={len(text)}]\n{head}\n…"
    return shown if len(shown) < len(text) else text


def read_entry_spec() -> ToolSpec:
    """Return the tool by which a model reads an entry that it is shown as a stub."""
    number = {"type": "integer"}
    return ToolSpec(
        READ_ENTRY,
        "Read the full text of an earlier entry of this conversation that is shown shortened, by the event_id in its first line.",
        {
            "type": "object",
            "properties": {
                "id": number | {"description": "the event_id"},
                "offset": number
                | {
                    "description": "the first character to show, from 0",
                    "default": 0,
                    "minimum": 0,
                },
                "length": number
                | {"description": "how many characters to show", "default": DEFAULT_READ_CHARS, "minimum": 1, "maximum": MAX_READ_CHARS},
            },
            "required": ["id"],
        },
    )


def read_entry(entries: Sequence[LogRecord], ident: int, offset: int = 0, length: int = DEFAULT_READ_CHARS) -> str:
    """Return a stretch of the text of the entry with this id, and where to go on.

    `entries` may hold those that were folded, too. What is out of range is cut to it; an unknown id is said to be one.
    """
    entry = next((e for e in entries if e.seq == ident and e.is_entry), None)
    if entry is None:
        return f"There is no entry {ident} here; use the event_id that the first line of a shortened entry names."
    text = text_of(entry)
    first = min(max(offset, 0), len(text))
    last = min(first + min(max(length, 1), MAX_READ_CHARS), len(text))
    rest = f"; go on with offset {last}" if last < len(text) else ""
    return f"[event_id={ident} characters {first} to {last} of {len(text)}{rest}]\n{text[first:last]}"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which bytes of a file to read for a stretch of its text: from `low` on up to `high`, of which `first` to `last` were asked for.

    Around what was asked for there is room for the rest of a character at either end.
    """

    first: int
    last: int
    low: int
    high: int
    size: int

    @staticmethod
    def of(size: int, offset: int, length: int) -> Stretch:
        """Return the stretch of a file with `size` bytes; what is out of range is cut to it."""
        first = min(max(offset, 0), size)
        last = min(first + min(max(length, 1), MAX_READ_CHARS), size)
        return Stretch(first, last, max(0, first - _REST_BYTES), min(size, last + _REST_BYTES), size)

    def text(self, ident: int, raw: bytes) -> str:
        """Return what a model reads of it: whole characters, and where to go on. `raw` are the bytes from `low` to `high`."""
        first, last = self.first - self.low, self.last - self.low
        while 0 < first < len(raw) and raw[first] & 0xC0 == 0x80:
            first -= 1
        while last < len(raw) and raw[last] & 0xC0 == 0x80:
            last += 1
        end = self.low + last
        rest = f"; go on with offset {end}" if end < self.size else ""
        return f"[event_id={ident} bytes {self.low + first} to {end} of {self.size}{rest}]\n{raw[first:last].decode('utf-8', 'replace')}"


def read_arguments(args: dict[str, Any]) -> tuple[int, int, int]:
    """Return id, offset and length of a call of the tool; what is missing or no number has its default, the id 0."""

    def number(name: str, default: int) -> int:
        value = args.get(name)
        return value if isinstance(value, int) else default

    return number("id", 0), number("offset", 0), number("length", DEFAULT_READ_CHARS)
