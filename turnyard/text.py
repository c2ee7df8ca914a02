"""Which text is safe to store and to send.

Lone surrogates break orjson, redis-py and model servers alike, and NUL breaks whoever reads C strings, so both become
U+FFFD at the door: tool output, model output and everything on its way to a model. Scrubbing twice changes nothing.
"""

from __future__ import annotations

from typing import Any, cast

REPLACEMENT = "\ufffd"
OUTPUT_BYTES = 8_192  # how much of one result a model is shown
# Room kept for the note that says a text was cut.
_NOTE_BYTES = 128


def scrub(text: str) -> str:
    """Return `text` with lone surrogates and NUL replaced by U+FFFD; surrogates that make a pair are joined."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def scrub_tree(value: Any) -> Any:
    """Return a JSON-like value with every string in it scrubbed, keys too."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub_tree(k): scrub_tree(v) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [scrub_tree(v) for v in cast("list[Any]", value)]
    return value


def bound(text: str, limit_bytes: int) -> str:
    """Return scrubbed `text` in at most `limit_bytes` bytes of UTF-8, cut between characters, with a note when cut."""
    # A character is at least one byte, so what lies beyond the limit is never encoded; it may be a gigabyte.
    head = scrub(text[: limit_bytes + 1])
    raw = head.encode()
    if len(raw) <= limit_bytes:
        return head
    shown = raw[: max(0, limit_bytes - _NOTE_BYTES)].decode("utf-8", "ignore")
    return f"{shown}\n[cut after {len(shown):,} of {len(text):,} characters]"


def both_ends(text: str, limit_bytes: int, *, lost: bool = False) -> str:
    """Return scrubbed `text` in at most `limit_bytes` (128 or more) bytes of UTF-8: its beginning and its end, when it is longer.

    The line between them says where it was cut and how much is missing; `lost` says that nobody has that. What was cut is
    left alone when it is cut again.
    """
    if len(text) <= limit_bytes and len((whole := scrub(text)).encode()) <= limit_bytes:
        return whole
    room = max(0, limit_bytes - _NOTE_BYTES)
    head, tail = _first(text, room - room // 3), _last(text, room // 3)
    gone = f"{len(text) - len(head) - len(tail):,} of {len(text):,} characters"
    return f"{head}\n[… cut at byte {len(head.encode()):,}: {gone} are {'lost' if lost else 'left out'} …]\n{tail}"


def _first(text: str, most_bytes: int) -> str:
    """Return the beginning of a text. A character is at least one byte, so what lies further on is never encoded; it may be a gigabyte."""
    piece = text[:most_bytes]
    piece = piece[:-1] if "\ud800" <= piece[-1:] <= "\udbff" else piece  # half of a character, whose other half is not here
    return scrub(piece).encode()[:most_bytes].decode("utf-8", "ignore")


def _last(text: str, most_bytes: int) -> str:
    piece = text[-most_bytes:] if most_bytes else ""
    piece = piece[1:] if "\udc00" <= piece[:1] <= "\udfff" else piece
    raw = scrub(piece).encode()
    return raw[max(0, len(raw) - most_bytes) :].decode("utf-8", "ignore")
