"""What it takes to decide the course of a turn.

A strategy is pure: the same view gives the same effect on any worker, and the same result the same commit. That is
what lets a turn move between workers at any step.
"""

from __future__ import annotations

from typing import Protocol

from turnyard.engine.effects import Effect, Result, ToolTable
from turnyard.records.commit import Commit, TurnView


class Strategy(Protocol):
    """Decides what a turn does next. `version` grows when turns under way could not be continued by the new code."""

    @property
    def name(self) -> str:
        """The word that agents choose it by."""
        ...

    @property
    def version(self) -> int:
        """Which of its versions this is, from 1."""
        ...

    def decode_state(self, state: TurnView, from_version: str) -> TurnView:
        """Return a turn that another version of the agent began, as this one goes on with it.

        `from_version` is that version, empty when it is not known any more. It is asked each time a worker begins such
        a turn, and must answer alike.

        Raises:
            AgentVersionGone: this version cannot go on with it; the turn fails with that code.
        """
        ...

    def next_effect(self, view: TurnView, facts: ToolTable) -> Effect:
        """Return the one thing to do now."""
        ...

    def commit_after(self, view: TurnView, effect: Effect, *, result: Result, facts: ToolTable) -> Commit:
        """Return the commit that follows from what came of it."""
        ...
