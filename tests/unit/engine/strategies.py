"""Strategies that wait: for children that they ask themselves, for an answer, for a while."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from turnyard.engine.strategy import Call, Decision, Finish, Question, Sleep, Strategy
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import TurnView
from turnyard.records.log import RESULT, USER


def results(view: TurnView) -> list[Any]:
    """What the turn's calls brought, in the order of the log."""
    return [e.body.get("content") or e.outcome for e in view.entries if e.type == RESULT and e.turn == view.turn]


def asked(view: TurnView) -> str:
    """What the user said last."""
    return next(e.body["text"] for e in reversed(view.entries) if e.type == USER)


def children(n: int) -> Call:
    """Calls of the agent kid."""
    return Call(tuple(AskedCall(f"c{i}", "kid", json.dumps({"input": f"n{i}"})) for i in range(n)))


class Fan(Strategy[None]):
    """Ask as many children as the user says, and answer with what they said."""

    name: ClassVar[str] = "fan"

    def step(self, view: TurnView, state: None, answer: Done | None) -> tuple[None, Decision]:
        del answer
        told = results(view)
        return state, Finish(" ".join(told)) if told else children(int(asked(view)))


class Breaks(Strategy[None]):
    """Ask for children and break before that is committed."""

    name: ClassVar[str] = "breaks"

    def step(self, view: TurnView, state: None, answer: Done | None) -> tuple[None, Decision]:
        del state, answer
        raise RuntimeError(f"{len(children(int(asked(view))).calls)} children, and then this")


class Asks(Strategy[None]):
    """Ask a question, and end with its answer. The user says in how many milliseconds it expires."""

    name: ClassVar[str] = "asks"

    def step(self, view: TurnView, state: None, answer: Done | None) -> tuple[None, Decision]:
        del answer
        told = results(view)
        return state, Finish(f"told {told[0]}") if told else Call((Question("ship", {"text": "Ship it?"}, int(asked(view))),))


class Sleeps(Strategy[int]):
    """Sleep as many milliseconds as the user says, twice, and end."""

    name: ClassVar[str] = "sleeps"

    def init(self, view: TurnView) -> int:
        del view
        return 0

    def step(self, view: TurnView, state: int, answer: Done | None) -> tuple[int, Decision]:
        del answer
        return (state, Finish("awake")) if state == 2 else (state + 1, Sleep(int(asked(view))))
