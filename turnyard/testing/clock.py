"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools

# How often the loop runs after each wake-up, so that what woke can go on and sleep again.
_SETTLE_ROUNDS = 20


class ManualClock:
    """Time that only `advance` moves. Whoever sleeps wakes in order of deadline, each at its own time."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._now_s = 0.0
        self._epoch_ms = now_ms
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        """Return wall time in milliseconds since 1970."""
        return self._epoch_ms + round(self._now_s * 1000)

    def monotonic(self) -> float:
        """Return seconds since the clock was made."""
        return self._now_s

    @property
    def sleepers(self) -> int:
        """Return how many sleep right now."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved that far; no time at all just lets others run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time on, waking everybody whose time comes, also those who sleep again meanwhile."""
        end = self._now_s + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline, _, future = heapq.heappop(self._sleepers)
            self._now_s = max(self._now_s, deadline)
            if not future.done():
                future.set_result(None)
                await self._settle()
        self._now_s = end

    async def _settle(self) -> None:
        for _ in range(_SETTLE_ROUNDS):
            await asyncio.sleep(0)
