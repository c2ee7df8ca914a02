"""How a call that waits outside is given its outcome by whoever holds the session."""

from __future__ import annotations

from typing import Any

import orjson

from turnyard.engine.memory import CallRow, MemorySession
from turnyard.engine.results import ParkedCall
from turnyard.errors import AlreadyDecided, Conflict, NotFound


def give_outcome(memory: MemorySession, which: ParkedCall | str, value: Any, error: str | None) -> tuple[CallRow, bool]:
    """Give a call its result, or its error; return its row and whether that was news.

    Raises:
        NotFound: no such call.
        AlreadyDecided: the call has another outcome; the first one stands.
        Conflict: the call takes no outcome.
    """
    row = _find(memory, which)
    body = {"content": _text(value) if error is None else error, "is_error": error is not None}
    settled = memory.outcome(row.call, "result" if error is None else "error", body)
    if settled == "conflict":
        raise AlreadyDecided(f"call {row.call} of {row.name} has the outcome {row.outcome}; the first one stands")
    if settled == "gone":
        raise Conflict(f"call {row.call} of {row.name} takes no outcome")
    return row, settled == "accepted"


def _find(memory: MemorySession, which: ParkedCall | str) -> CallRow:
    wanted = which if isinstance(which, str) else which.call
    found = memory.rows.get(wanted)
    found = found or next((r for r in memory.rows.values() if r.correlation == wanted), None)
    if found is None:
        raise NotFound(f"no call {wanted!r} in this session")
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    dump = getattr(value, "model_dump", None)
    return orjson.dumps(dump(mode="json") if dump else value, default=str).decode()
