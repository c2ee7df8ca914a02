"""What the turn's strategy says, and what of the turn has to be remembered with it.

The state of a turn is one JSON object: the kernel's counters, and what the strategy encodes, beside the version that
encoded it. It is committed together with the decision it belongs to, and only when it changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from turnyard.engine.progress import Progress
from turnyard.engine.strategy import AnyStrategy, Ask, Call, Continue, Decision
from turnyard.errors import StrategyError
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import TurnView

MAX_STATE_BYTES = 16_384
_STRATEGY, _VERSION = "s", "v"


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, and the strategy's part of the turn's state once it is committed."""

    decision: Decision
    held: dict[str, Any]

    def state(self, view: TurnView) -> dict[str, Any] | None:
        """Return the turn's whole state for the commit, the kernel's part as it was; None when nothing changed."""
        state = Progress.of(view).into(self.held)
        return None if state == view.state else state


def decide(view: TurnView, strategy: AnyStrategy, answer: Done | None) -> Decided:
    """Ask the strategy: what is next, or what becomes of `answer`.

    Raises:
        StrategyError: its decision, or its state, cannot be used.
    """
    before = _recall(view, strategy)
    after, decision = strategy.step(view, before, None)
    if answer is not None:
        after, decision = strategy.step(view, after, answer)
        if isinstance(decision, Ask):
            decision = Continue()
    held = _held(strategy, after)
    if answer is None and decision == Continue() and held == _part(view):
        raise StrategyError(f"strategy {strategy.name} goes on without an effect, a note or another state: it would do so for ever")
    return Decided(decision, held)


def calls_of(view: TurnView, strategy: AnyStrategy, answer: Done) -> tuple[AskedCall, ...]:
    """Return the calls of tools that the strategy makes of an answer; none when it raises, which the decision itself will do, too."""
    try:
        decision = decide(view, strategy, answer).decision
    except BaseException:  # noqa: BLE001 - as above
        return ()
    return asked_calls(decision)


def asked_calls(decision: Decision) -> tuple[AskedCall, ...]:
    """Return the calls of tools that a decision makes."""
    return tuple(call for call in decision.calls if isinstance(call, AskedCall)) if isinstance(decision, Call) else ()


def _recall(view: TurnView, strategy: AnyStrategy) -> Any:
    if _VERSION not in view.state:
        return strategy.init(view)
    return strategy.decode(view.state[_VERSION], view.state[_STRATEGY])


def _part(view: TurnView) -> dict[str, Any]:
    return {name: view.state[name] for name in (_STRATEGY, _VERSION) if name in view.state}


def _held(strategy: AnyStrategy, state: Any) -> dict[str, Any]:
    encoded = strategy.encode(state)
    if encoded is None:
        return {}
    try:
        raw = orjson.dumps(encoded)
    except TypeError as error:
        raise StrategyError(f"strategy {strategy.name}: its state is no JSON ({error}); let `encode` make it one") from error
    if len(raw) > MAX_STATE_BYTES:
        raise StrategyError(
            f"strategy {strategy.name}: its state has {len(raw):,} bytes and may have {MAX_STATE_BYTES:,}; keep large things in the log"
        )
    return {_STRATEGY: orjson.loads(raw), _VERSION: strategy.version}
