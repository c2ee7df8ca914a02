"""What the log says of the turn that a view shows.

Only the turn's own part is looked at, from the end backwards, so that a long history costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnyard.records.commit import TurnView
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, LogRecord


def of_turn(view: TurnView) -> Iterator[LogRecord]:
    """Yield the entries of the open turn, newest first."""
    for entry in reversed(view.entries):
        if entry.turn != view.turn:
            return
        yield entry


def unseen(view: TurnView) -> list[LogRecord]:
    """Return what the turn brought since the last answer, newest first; a summary is nothing new."""
    found: list[LogRecord] = []
    for entry in reversed(view.entries):
        if entry.type == ASSISTANT:
            break
        if entry.turn == view.turn and entry.type not in (CALL, COMPACTION):
            found.append(entry)
    return found


def last_answer(view: TurnView) -> LogRecord | None:
    """Return what the model said last in this turn; None when it said nothing yet."""
    return next((e for e in of_turn(view) if e.type == ASSISTANT), None)


def has_called(view: TurnView, tool: str) -> bool:
    """Tell whether the turn has a call of this tool."""
    return any(e.type == CALL and e.body.get("name") == tool for e in of_turn(view))
