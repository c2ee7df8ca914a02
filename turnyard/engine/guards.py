"""Whether a model goes round in circles: the same calls with the same answers again, or one answer that repeats itself.

Ids count for nothing and answers count byte for byte, so polling for something that changes never looks like a circle.
A message of the user, or a late result, is news and ends a row of equal rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from turnyard.engine.budget import Stop
from turnyard.engine.history import of_turn
from turnyard.records.commit import PLACEHOLDER, Note, TurnView
from turnyard.records.log import ASSISTANT, CALL, NOTICE, RESULT, USER, LogRecord

NOTICE_AT = 5
STOP_AT = 10
MOST_CUTS = 3
REPETITION = "repetition"

_GROUP, _LOOP = "turn", "loop"
_TAIL_CHARS = 20_000
_ANCHOR_CHARS = 200
_LOOK_EVERY_CHARS = 1000
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


def is_own(entry: LogRecord, key: str) -> bool:
    """Tell whether an entry is a notice of a turn about itself; one that somebody left has its pair in the record, whatever its body says."""
    named = (entry.body.get("group"), entry.body.get("key")) == (_GROUP, key)
    return named and entry.type == NOTICE and not entry.group_key


def check_cuts(cuts: int) -> Stop | Note:
    """Return what follows an answer that was cut for repeating itself, `cuts` of them in a row by now."""
    if cuts >= MOST_CUTS:
        return Stop("loop_detected", f"the model repeated itself in {cuts} answers in a row, and each was cut")
    return notice(REPETITION, "Your answer was cut because it repeated itself; one copy is kept. Go on without repeating it.")


def repeats(text: str) -> bool:
    """Tell whether an answer so far ends in so many copies of one piece that it is cut: 20 of them, 4,000 characters in all."""
    tail = text[-_FEWEST_CHARS:]
    if len(tail) < _FEWEST_CHARS:
        return False
    # the piece is as long as the last characters have to be moved to the left to meet themselves
    period = len(tail) - _ANCHOR_CHARS - tail.rfind(tail[-_ANCHOR_CHARS:], 0, -1)
    return period * _FEWEST_COPIES <= len(tail) and tail[period:] == tail[:-period]


class Heard:
    """The text of one answer while it comes in."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._unread = 0

    @property
    def text(self) -> str:
        """Return what has come so far."""
        return "".join(self._pieces)

    def repeats(self, piece: str) -> bool:
        """Take in a piece; tell whether the answer repeats itself by now. It is looked at every 1,000 characters."""
        self._pieces.append(piece)
        self._unread += len(piece)
        if self._unread < _LOOK_EVERY_CHARS:
            return False
        self._unread = 0
        return repeats(self.text)


def one_copy(text: str) -> str:
    """Return `text` with one copy of what it ends in two copies or more of."""
    piece, length = _repetition(text)
    return text[: len(text) - length + piece]


# -- inside -----------------------------------------------------------------------------------------------------------


def _rounds(view: TurnView) -> Iterator[_Round]:
    """Yield the rounds of the open turn since the last news, newest first."""
    one = _Round()
    for entry in of_turn(view):
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
    elif is_own(entry, _LOOP):
        one.told = True


def _repetition(text: str) -> tuple[int, int]:
    """Return (length of a piece, length of the longest end of `text` that is two copies of it or more); (0, 0) when there is none.

    It is the failure function of the reversed text: an end of length n whose longest border is b has the period n - b.
    """
    tail = text[-_TAIL_CHARS:][::-1]
    border = [0] * len(tail)
    found = (0, 0)
    for i in range(1, len(tail)):
        b = border[i - 1]
        while b and tail[i] != tail[b]:
            b = border[b - 1]
        border[i] = b + 1 if tail[i] == tail[b] else 0
        period = i + 1 - border[i]
        if i + 1 >= 2 * period:
            found = (period, i + 1)
    return found
