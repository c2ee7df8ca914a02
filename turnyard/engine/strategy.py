"""What it takes to decide the course of a turn.

A strategy is pure: the same view and state give the same decision on any worker, however often it is asked. That is
what lets a turn move between workers at any step. It decides when no call is open: what to do next, and what to make of
an answer of the model. Everything else (calls, waits, cancels, failures, limits, the context's size) is the kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from turnyard.engine.budget import Spent, Verdict
from turnyard.errors import AgentVersionGone, ConfigError
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import TurnView

S = TypeVar("S")


# -- what a strategy may decide ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model. `note` joins the system message of this request alone; without `tools` none are offered."""

    note: str = ""
    tools: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for somebody's answer: the outcome that is given to it is its result.

    `key` tells it from other questions of the session, `body` is shown to who is to answer; `expires_in_ms` None is a day.
    """

    key: str
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    expires_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Make calls: those of the answer, or the strategy's own. They run, wait and are answered in the order given here.

    A tool decides by its declaration where its call runs; that of another agent is a session of its own.
    """

    calls: tuple[AskedCall | Question, ...]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Hold the turn for a while, without a worker; then the strategy is asked again."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on to the next decision; `notes` are put before the model as notices."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """End the turn. `output` is what its jobs give; None: what the model said last, read as the agent's output."""

    output: Any = None


@dataclass(frozen=True, slots=True)
class Fail:
    """End the turn's jobs as failed, for this reason."""

    code: str
    message: str


Decision = Ask | Call | Sleep | Continue | Finish | Fail


# -- the port ---------------------------------------------------------------------------------------------------------


class Strategy(Generic[S]):
    """Decides what a turn does next. Derive from it; only `name` and `step` have to be given.

    `version` grows when the state of turns under way can no longer be read as it is: see `decode`.
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1

    def init(self, view: TurnView) -> S:
        """Return the state that a turn begins with."""
        del view
        return None  # pyright: ignore[reportReturnType] - a strategy without a state of its own

    def step(self, view: TurnView, state: S, answer: Done | None) -> tuple[S, Decision]:
        """Return the new state and what to do.

        With `answer` it decides what becomes of that answer, which is committed together with the decision; `Ask` is
        then the same as `Continue`. Otherwise it decides what is next; all calls made so far are answered.
        """
        raise NotImplementedError

    def limit(self, spent: Spent) -> Verdict:
        """Say whether the turn may go on, besides what the agent's `Limits` say; None when it may. Asked before each model call."""
        del spent
        return None

    def encode(self, state: S) -> Any:
        """Return the state as JSON; None when there is nothing to keep. At most 16 KB: large things belong into the log."""
        return state

    def decode(self, version: int, value: Any) -> S:
        """Return the state that `encode` of that version wrote; as it is written, only that of this version is known.

        Raises:
            AgentVersionGone: this version cannot go on with it; the turn fails with that code.
        """
        if version != self.version:
            raise AgentVersionGone(f"strategy {self.name} has version {self.version} and does not read the state of version {version}")
        return value


AnyStrategy = Strategy[Any]


def checked(strategies: Sequence[AnyStrategy]) -> dict[str, AnyStrategy]:
    """Return the strategies by name.

    Raises:
        ConfigError: one has no name, or a version below 1, or two have the same name.
    """
    found: dict[str, AnyStrategy] = {}
    for one in strategies:
        kind = type(one).__name__
        if not one.name:
            raise ConfigError(f"strategy {kind} has no name: give the class a `name`")
        if one.version < 1:
            raise ConfigError(f"strategy {one.name}: version is {one.version}; it counts from 1")
        if one.name in found and found[one.name] is not one:
            raise ConfigError(f"two strategies are called {one.name}: rename one")
        found[one.name] = one
    return found
