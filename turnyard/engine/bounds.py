"""How far a turn may go, and how much of that is left.

`Bounds` is what an agent's limits mean to the engine: plain numbers, None for no bound. `Budget` is what somebody who
is asked about the turn may know of them. Neither decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL_CALLS = 100
DEFAULT_ATTEMPTS = 3
DEFAULT_RETRY_BASE_MS = 2000
DEFAULT_SOFT_RATIO = 0.8
UNLIMITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one turn; None is no bound.

    `model_calls`, `tokens` (input and output together), `cost_micros` and `active_ms` stop the turn when they are used up,
    `tool_calls` when more than that were made: what the last one brought is still read. `continuations` is how often
    turn_stopping hooks may go on, `segment_steps` how many model calls in a row need no leave of theirs. From `soft_ratio` of a
    bound on, the model is told. `attempts` is how often one step may ask the model when its failure may pass; the first
    retry waits `retry_base_ms`, each further one twice as long. `loop_guard` False lets a model do the same again and again.
    """

    model_calls: int | None = DEFAULT_MODEL_CALLS
    tool_calls: int | None = None
    tokens: int | None = None
    cost_micros: int | None = None
    active_ms: int | None = None
    continuations: int | None = 0
    segment_steps: int | None = None
    soft_ratio: float = DEFAULT_SOFT_RATIO
    attempts: int | None = DEFAULT_ATTEMPTS
    retry_base_ms: int = DEFAULT_RETRY_BASE_MS
    loop_guard: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What is left of a turn's bounds: never below 0, and -1 where there is no bound.

    `soft_exhausted`: some bound is used up to the ratio from which the model is told. `exhausted`: the model may not be
    asked again. Continuations count for neither.
    """

    model_calls: int
    tool_calls: int
    tokens: int
    cost_micros: int
    active_ms: int
    continuations: int
    soft_exhausted: bool
    exhausted: bool
