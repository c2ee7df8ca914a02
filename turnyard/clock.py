"""The real clock. Leases never look at it: they live by the server's time."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Time of this machine."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait that long, at least."""
        await asyncio.sleep(seconds)
