"""Whether a model goes round in circles: the same calls with the same answers again, or one answer that repeats itself.

Ids count for nothing and answers count byte for byte, so polling for something that changes never looks like a circle.
A message of the user, or a late result, is news and ends a row of equal rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from turnyard.engine.budget import Stop, entries_of
from turnyard.records.commit import PLACEHOLDER, Note, TurnView
from turnyard.records.log import ASSISTANT, CALL, NOTICE, RESULT, USER, LogRecord

NOTICE_AT = 5
STOP_AT = 10
MOST_CUTS = 3
REPETITION = "repetition"

_GROUP, _LOOP = "turn", "loop"
_ANCHORS = (200, 32, 8, 1)  # characters that have to be found again
_FEWEST_COPIES = 20
_FEWEST_CHARS = 4000


@dataclass(slots=True)
class _Round:
    """One answer of the model with calls, newest first, and what they brought. `told`: the model was warned after it."""

    calls: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])
    answers: dict[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    told: bool = False

    @property
    def signature(self) -> tuple[Any, ...]:
        return tuple((*made, self.answers.get(call)) for call, made in self.calls.items())


def check_loop(view: TurnView) -> Stop | Note | None:
    """Return what is due when the last rounds were all alike: a notice for the log at five of them, the end at ten."""
    alike, told, last = 0, False, None
    for one in _rounds(view):
        signature = one.signature
        if last is not None and signature != last:
            break
        last, alike, told = signature, alike + 1, told or one.told
        if alike == STOP_AT:
            return Stop("loop_detected", f"the model made the same calls with the same results {STOP_AT} times in a row")
    if alike < NOTICE_AT or told:
        return None
    text = f"You made the same calls with the same results {alike} times in a row. Do something else, or answer with what you have."
    return notice(_LOOP, text)


def notice(key: str, text: str) -> Note:
    """Return a notice of the turn about itself."""
    return Note(NOTICE, {"text": text, "group": _GROUP, "key": key, "tag": "notice"})


def check_cuts(cuts: int) -> Stop | Note:
    """Return what follows an answer that was cut for repeating itself, `cuts` of them in a row by now."""
    if cuts >= MOST_CUTS:
        return Stop("loop_detected", f"the model repeated itself in {cuts} answers in a row, and each was cut")
    return notice(REPETITION, "Your answer was cut because it repeated itself; one copy is kept. Go on without repeating it.")


def repeats(text: str) -> bool:
    """Tell whether an answer so far ends in so many copies of one piece that it is cut: 20 of them and 4,000 characters."""
    period, length = _tail_period(text[-_FEWEST_CHARS:])
    return length >= _FEWEST_CHARS and length >= period * _FEWEST_COPIES


def one_copy(text: str) -> str:
    """Return `text` with one copy of what it ends in several copies of."""
    period, length = _tail_period(text)
    return text[: len(text) - length + period] if period and length >= 2 * period else text


# -- inside -----------------------------------------------------------------------------------------------------------


def _rounds(view: TurnView) -> Iterator[_Round]:
    """Yield the rounds of the open turn since the last news, newest first."""
    one = _Round()
    for entry in entries_of(view):
        if entry.type == USER or (entry.type == RESULT and entry.aside):
            return
        if entry.type == ASSISTANT:
            if not one.calls:
                return
            yield one
            one = _Round()
        else:
            _note(one, entry)


def _note(one: _Round, entry: LogRecord) -> None:
    body = entry.body
    if entry.type == CALL:
        one.calls[entry.call or ""] = (str(body.get("name", "")), orjson.dumps(body.get("args")))
    elif entry.type == RESULT:
        # what stands for a pending call names its ids
        content = None if entry.outcome == PLACEHOLDER else body.get("content")
        one.answers[entry.call or ""] = (entry.outcome, content, bool(body.get("is_error")))
    elif entry.type == NOTICE and (body.get("group"), body.get("key")) == (_GROUP, _LOOP):
        one.told = True


def _tail_period(text: str) -> tuple[int, int]:
    """Return (length of the piece, length of the end of `text` that consists of it); (0, 0) when no piece is found.

    The piece is as long as the last characters have to be moved to the left to meet themselves.
    """
    for anchor in _ANCHORS:
        end = text[-anchor:]
        period = len(text) - anchor - text.rfind(end, 0, len(text) - 1)
        if len(end) == anchor and 0 < period <= len(text) - anchor:
            return period, _reach(text, period)
    return 0, 0


def _reach(text: str, period: int) -> int:
    """Return how many of the last characters have this period."""
    at = len(text) - period
    while at > 0 and text[at - 1] == text[at - 1 + period]:
        at -= 1
    return len(text) - at
