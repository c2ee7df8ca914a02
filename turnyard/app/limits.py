"""How much one turn of an agent may do before it is stopped."""

from __future__ import annotations

from dataclasses import dataclass

from turnyard.engine.effects import DEFAULT_MODEL_CALLS
from turnyard.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one turn; None is no bound.

    `model_calls` and `tool_calls` count calls; 0 model calls mean the default of 100. `tokens` counts input and output
    together. `parallel_tools` is how many plain calls of one answer run at once, 1 meaning one after the other.
    `paid_attempts` is how often one step may ask the model when the failure may pass.
    """

    model_calls: int = DEFAULT_MODEL_CALLS
    tool_calls: int | None = None
    tokens: int | None = None
    parallel_tools: int = 1
    paid_attempts: int = 3

    def __post_init__(self) -> None:
        for name in ("parallel_tools", "paid_attempts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Limits({name}={getattr(self, name)}): it must be at least 1")
        for name in ("tool_calls", "tokens"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"Limits({name}={value}): it must not be negative; leave it out for no bound")
