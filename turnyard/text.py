"""Which text is safe to store and to send.

Lone surrogates break orjson, redis-py and model servers alike, and NUL breaks whoever reads C strings, so both become
U+FFFD at the door: tool output, model output and everything on its way to a model. Scrubbing twice changes nothing.
"""

from __future__ import annotations

from typing import Any, cast

REPLACEMENT = "\ufffd"
# Room kept for the note that says a text was cut.
_NOTE_BYTES = 96


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
