"""The strategy that alternates: ask the model, run the calls it makes, ask again, until it answers with text alone."""

from __future__ import annotations

from dataclasses import dataclass

from turnyard.engine import turn
from turnyard.engine.effects import Effect, Result, ToolTable
from turnyard.records.commit import Commit, TurnView


@dataclass(frozen=True, slots=True)
class React:
    """One model call or one tool call per transition; a turn may move to another worker between any two."""

    name: str = "react"
    version: int = 1

    def decode_state(self, state: TurnView, from_version: str) -> TurnView:
        """Return the turn as it is: its state is its log, which every version reads."""
        del from_version
        return state

    def next_effect(self, view: TurnView, facts: ToolTable) -> Effect:
        """Return the one thing to do now."""
        return turn.next_effect(view, facts)

    def commit_after(self, view: TurnView, effect: Effect, *, result: Result, facts: ToolTable) -> Commit:
        """Return the commit that follows from what came of it."""
        return turn.commit_after(view, effect, result=result, facts=facts)
