"""How much one turn of an agent may do before it is stopped, and how patient it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from turnyard.engine.bounds import (
    DEFAULT_ATTEMPTS,
    DEFAULT_MODEL_CALLS,
    DEFAULT_RETRY_BASE_MS,
    DEFAULT_SOFT_RATIO,
    UNLIMITED,
    Bounds,
)
from turnyard.engine.effects import APPROVAL_MS
from turnyard.errors import ConfigError
from turnyard.text import OUTPUT_BYTES

_ALL_AT_ONCE = 1 << 30
_LEAST_OUTPUT_BYTES = 256  # room for the note that says what is missing
_AT_LEAST = {
    "model_calls": 0,
    "tool_calls": 0,
    "tokens": 0,
    "cost": 0,
    "continuations": 0,
    "segment_steps": 1,
    "paid_attempts": 1,
    "parallel_tools": 1,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one turn; None or -1 is no bound.

    Args:
        model_calls: how often the turn may ask the model, messages that arrive meanwhile included; 0 means the default of 100.
        tool_calls: how many calls it may make. The results of the last one are still read; one more stops the turn.
        tokens: input and output together. A turn that has used them up is stopped before the next model call.
        cost: money, as far as the provider reports it (`cost_micros` of an answer's usage is millionths of it).
        active: how long the turn may run on workers, waits left out: a timedelta, or seconds.
        paid_attempts: how often one step may ask the model when the failure may pass.
        parallel_tools: how many plain calls of one answer run at once, 1 meaning one after the other.
        continuations: how often turn_stopping hooks may let one turn go on; 0 is never.
        segment_steps: after so many model calls in a row without a new message the hooks are asked; nobody goes on: the turn fails.
        soft_ratio: from this share of a bound on the model is told, once, to finish; between 0 and 1.
        retry_base: what the first retry waits, each further one twice as long: a timedelta, or seconds.
        output_bytes: how much of one result the model is shown; the whole of a longer one is kept as a file, which it can read in parts.
        approval_expires_in: how long people are asked about a call where no rule says it: a timedelta, or seconds.
        loop_guard: warn a model that made the same calls with the same results five times in a row, and stop the turn at ten.

    Raises:
        ConfigError: a value makes no sense; the message names it.
    """

    model_calls: int | None = DEFAULT_MODEL_CALLS
    tool_calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    active: timedelta | float | None = None
    paid_attempts: int | None = DEFAULT_ATTEMPTS
    parallel_tools: int | None = 1
    continuations: int | None = 0
    segment_steps: int | None = None
    soft_ratio: float = DEFAULT_SOFT_RATIO
    retry_base: timedelta | float = timedelta(milliseconds=DEFAULT_RETRY_BASE_MS)
    approval_expires_in: timedelta | float = timedelta(milliseconds=APPROVAL_MS)
    loop_guard: bool = True
    output_bytes: int = OUTPUT_BYTES

    def __post_init__(self) -> None:
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and value != UNLIMITED and not value >= least:
                raise ConfigError(f"Limits({name}={value}): it must be at least {least}; leave it out, or -1, for no bound")
        if not 0 < self.soft_ratio < 1:
            raise ConfigError(f"Limits(soft_ratio={self.soft_ratio}): it must be between 0 and 1, both left out")
        for name in ("active", "retry_base", "approval_expires_in"):
            value = getattr(self, name)
            if value is not None and value != UNLIMITED and not _ms(value) > 0:
                raise ConfigError(f"Limits({name}={value}): it must be longer than nothing: a timedelta, or seconds")
        if self.output_bytes < _LEAST_OUTPUT_BYTES:
            raise ConfigError(f"Limits(output_bytes={self.output_bytes}): it must be at least {_LEAST_OUTPUT_BYTES}")
        _check_ending("retry_base", self.retry_base, "a retry cannot wait")
        _check_ending("approval_expires_in", self.approval_expires_in, "a question cannot stand")

    @property
    def bounds(self) -> Bounds:
        """Return what the engine goes by."""
        return Bounds(
            model_calls=_bound(self.model_calls or (None if self.model_calls is None else DEFAULT_MODEL_CALLS)),
            tool_calls=_bound(self.tool_calls),
            tokens=_bound(self.tokens),
            cost_micros=None if _none(self.cost) else round((self.cost or 0) * 1_000_000),
            active_ms=None if self.active is None or _none(self.active) else _ms(self.active),
            continuations=_bound(self.continuations),
            segment_steps=_bound(self.segment_steps),
            soft_ratio=self.soft_ratio,
            attempts=_bound(self.paid_attempts),
            retry_base_ms=_ms(self.retry_base),
            loop_guard=self.loop_guard,
        )

    @property
    def approval_ms(self) -> int:
        """Return how long people are asked about a call where no rule says it."""
        return _ms(self.approval_expires_in)

    @property
    def parallel(self) -> int:
        """Return how many plain calls of one answer run at once."""
        return _bound(self.parallel_tools) or _ALL_AT_ONCE

    def to_json(self) -> dict[str, Any]:
        """Return the limits as a manifest shows them, times in seconds."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in given.items()}


def _check_ending(name: str, value: timedelta | float, what: str) -> None:
    if value == UNLIMITED:
        raise ConfigError(f"Limits({name}=-1): {what} for ever; give a timedelta, or seconds")


def _none(value: object) -> bool:
    return value is None or value == UNLIMITED


def _bound(value: int | None) -> int | None:
    return None if value == UNLIMITED else value


def _ms(value: timedelta | float) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return round(seconds * 1000)
