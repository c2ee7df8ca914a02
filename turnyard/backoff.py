"""How long to wait before trying again, so that many processes that failed together do not return together."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from `first_s` to `most_s`, each drawn from the upper half of its range."""

    def __init__(self, *, first_s: float = 0.05, most_s: float = 2.0, rng: random.Random | None = None) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._uniform = rng.uniform if rng is not None else random.uniform
        self._next_s = first_s

    @property
    def failing(self) -> bool:
        """Tell whether a delay was given since the last success."""
        return self._next_s > self._first_s

    def next_s(self) -> float:
        """Return the seconds to wait after one more failure."""
        delay_s = self._next_s
        self._next_s = min(self._next_s * 2, self._most_s)
        return delay_s * self._uniform(0.5, 1.0)

    def reset(self) -> bool:
        """Note a success; return whether it ended a row of failures."""
        was, self._next_s = self.failing, self._first_s
        return was
