"""The strategy that alternates: ask the model, make the calls it asks for, ask again, until it answers with text alone."""

from __future__ import annotations

from typing import ClassVar

from turnyard.engine.history import unseen
from turnyard.engine.strategy import Ask, Call, Decision, Finish, Strategy
from turnyard.ports import Done
from turnyard.records.commit import TurnView


class React(Strategy[None]):
    """One model call or one tool call per transition. Its state is the log: nothing else has to be remembered."""

    name: ClassVar[str] = "react"

    def step(self, view: TurnView, state: None, answer: Done | None) -> tuple[None, Decision]:
        """Make the answer's calls, or end with it; ask as long as there is something that the model has not read."""
        if answer is not None:
            return state, Call(answer.calls) if answer.calls else Finish()
        # a duplicate wake brings nothing new, and costs nothing
        return state, Ask() if unseen(view) else Finish()
