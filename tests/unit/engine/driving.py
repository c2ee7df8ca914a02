"""A turn driven by hand in memory, by workers that may die at any moment.

`Drive` does what a worker does, one step at a time: decide, do, commit. A fate says what happens to the worker at a step.
What is done outside is written down, so that a test can tell what was done twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from turnyard.engine import transitions
from turnyard.engine.effects import (
    AskHooks,
    AskModel,
    Effect,
    HookAnswer,
    ModelAnswer,
    NoEffect,
    Result,
    RunBatch,
    RunTool,
    ToolResult,
    ToolTable,
)
from turnyard.engine.memory import MemorySession
from turnyard.engine.recovery import after_error
from turnyard.engine.turn import commit_after, next_effect
from turnyard.errors import StrategyError
from turnyard.ports import Done
from turnyard.records.commit import Commit, TurnView
from turnyard.records.log import ASSISTANT, LogRecord
from turnyard.testing import ManualClock

Fate = Literal["", "before", "after", "yield"]
Answers = Callable[[TurnView], Done]
Runs = Callable[[RunTool], ToolResult]


class Steps(ManualClock):
    """A clock that a test moves without waiting."""

    def move(self, ms: int) -> None:
        """Let time pass."""
        self._epoch_ms += ms


def answers_in_turn(script: Sequence[Done]) -> Answers:
    """Answer by how often the model was heard before, so that the same ask is answered alike; the last answer goes on for ever."""

    def answer(view: TurnView) -> Done:
        heard = sum(1 for e in view.entries if e.type == ASSISTANT and e.turn == view.turn and "usage" in e.body)
        return script[min(heard, len(script) - 1)]

    return answer


def echo(call: RunTool) -> ToolResult:
    """Answer a call with what it was asked."""
    return ToolResult(f"{call.name} {sorted(call.args.items())}")


@dataclass
class Drive:
    """One session and its workers. `asked` and `ran` count what was done outside, by the keys of the effects.

    A worker hands the session over once it has done `quota` things; None: never. `hooks` is what
    the hooks go on with, one after the other.
    """

    table: ToolTable
    answers: Answers
    runs: Runs = echo
    fates: Iterator[Fate] = field(default_factory=lambda: iter(()))
    memory: MemorySession = field(default_factory=lambda: MemorySession(Steps(), {"tenant": "t", "session": "s"}))
    asked: Counter[str] = field(default_factory=Counter[str])
    ran: Counter[str] = field(default_factory=Counter[str])
    effects: list[Effect] = field(default_factory=list[Effect])
    deaths: int = 0
    quota: int | None = None
    hooks: list[str] = field(default_factory=list[str])
    on_commit: Callable[[Commit], object] = lambda _change: None

    @property
    def effort(self) -> int:
        """How much was done outside."""
        return sum((self.asked + self.ran).values())

    @property
    def clock(self) -> Steps:
        """The session's time."""
        assert isinstance(self.memory.clock, Steps)
        return self.memory.clock

    def say(self, text: str = "hi") -> None:
        """Let a user say something, and go as far as it goes."""
        self.memory.accept({"text": text})
        self.go()

    def go(self) -> None:
        """Run until nothing is ready."""
        for _ in range(1000):
            if not self.hold():
                return
        raise AssertionError("the turn goes on for ever")

    def hold(self) -> bool:
        """Take the session and work on it until it is given back; tell whether it was to be had."""
        view = transitions.begin(self.memory)
        taken, before = view is not None, self.effort
        while view is not None and not view.ended:
            view = self.step(view, hand_over=self.quota is not None and self.effort - before >= self.quota)
        return taken

    def wait(self) -> None:
        """Let everything that is parked come to an end: delays pass, calls get a result, the newest first."""
        for _ in range(1000):
            self.go()
            if self.memory.state != "parked":
                return
            for row in reversed(self.memory.parked()):
                self.memory.outcome(row.call, "result", {"content": f"answer to {row.args}", "is_error": False})
            if (due_ms := self.memory.next_due_ms) is not None:
                self.clock.move(due_ms - self.memory.clock.now_ms())
                self.memory.expire()
        raise AssertionError("the session waits for ever")

    def step(self, view: TurnView, *, hand_over: bool = False) -> TurnView | None:
        """Do one step of a worker; None when it died."""
        fate = "yield" if hand_over else next(self.fates, "")
        effect = self._decide(replace(view, yield_=fate == "yield"))
        if fate == "before":
            return self._die()
        self.effects.append(effect)
        done, result = self._perform(view, effect)
        if fate == "after":
            return self._die()
        change = self._after(view, done, result)
        self.on_commit(change)
        return transitions.commit(self.memory, view, change)

    def _decide(self, view: TurnView) -> Effect:
        try:
            return next_effect(view, self.table)
        except (RuntimeError, StrategyError) as error:
            return NoEffect(after_error(view, str(error), bounds=self.table.bounds))

    def _after(self, view: TurnView, effect: Effect, result: Result) -> Commit:
        try:
            return commit_after(view, effect, result=result, facts=self.table)
        except (RuntimeError, StrategyError) as error:
            return after_error(view, str(error), bounds=self.table.bounds, result=result)

    def _die(self) -> None:
        """Lose the worker: the session is ready for another, who knows only what was committed."""
        self.deaths += 1
        self.memory.state = "ready"

    def _perform(self, view: TurnView, effect: Effect) -> tuple[Effect, Result]:
        if isinstance(effect, AskModel):
            self.asked[effect.key] += 1
            return effect, ModelAnswer(self.answers(view))
        if isinstance(effect, RunBatch):
            effect = effect.calls[-1]
        if isinstance(effect, RunTool):
            self.ran[effect.key] += 1
            return effect, self.runs(effect)
        if isinstance(effect, AskHooks):
            return effect, HookAnswer(texts=(self.hooks.pop(0),) if self.hooks else ())
        assert isinstance(effect, NoEffect), effect
        return effect, None

    # -- what came of it ----------------------------------------------------------------------------------------------

    def entries(self, *types: str) -> list[LogRecord]:
        """The records of these types; all of them when none is given."""
        return [r for r in self.memory.log if not types or r.type in types]

    def story(self) -> list[tuple[Any, ...]]:
        """The log without what differs from run to run: numbers, times, and the ids of calls, which are numbered instead."""
        names: dict[str, str] = {}
        for record in self.memory.log:
            if record.call:
                names.setdefault(record.call, f"call {len(names)}")
        return [
            (r.type, r.kind, r.outcome, r.aside, names.get(r.call or "", ""), _renamed(r.body, names), r.group_key) for r in self.memory.log
        ]


def _renamed(body: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {key: names.get(value, value) if isinstance(value, str) else value for key, value in body.items()}
