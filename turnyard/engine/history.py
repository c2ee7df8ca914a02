"""What the log says of the turn that a view shows.

Only the turn's own part is looked at, from the end backwards, so that a long history costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnyard.records.commit import TurnView
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, RESULT, LogRecord


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


def results(view: TurnView) -> list[LogRecord]:
    """Return the results of the last answer's calls, in the order that the calls were declared in."""
    found: dict[str, LogRecord | None] = {}
    for entry in reversed(list(_since_answer(view))):
        if entry.type == CALL and entry.call:
            found[entry.call] = None
        elif entry.type == RESULT and entry.call in found:
            found[entry.call] = entry
    return [entry for entry in found.values() if entry is not None]


def _since_answer(view: TurnView) -> Iterator[LogRecord]:
    for entry in reversed(view.entries):
        if entry.type == ASSISTANT:
            return
        yield entry


def has_called(view: TurnView, tool: str) -> bool:
    """Tell whether the turn has a call of this tool."""
    return any(e.type == CALL and e.body.get("name") == tool for e in of_turn(view))


def texts(view: TurnView) -> list[str]:
    """Return every text the model said in this turn, in order."""
    said = [str(e.body["text"]) for e in of_turn(view) if e.type == ASSISTANT and e.body.get("text")]
    return said[::-1]
