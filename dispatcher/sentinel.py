"""Who is known to be dead without waiting for a lease.

A dispatcher trusts what it sees of connections only while it has looked often and without a break: after a server was
away or stood still, every connection is new and every beat is late, and nobody is dead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from turnyard.state import witness

if TYPE_CHECKING:
    from turnyard.ports import Clock
    from turnyard.settings.sections import TimingSection
    from turnyard.state.yard import Shard

log = logging.getLogger("turnyard.dispatcher")

_OVERDUE_BEATS = 1.5
_STEADY_BEATS = 3
_GAP_LOOKS = 4
_TIME_AGE_S = 60.0
# Server and process round to a millisecond each, and count on from a time that was some milliseconds old.
_MARGIN_S = 0.02


class Sentinel:
    """What one dispatcher has seen of one shard's workers lately. Look again after `wait_s`."""

    def __init__(self, shard: Shard, timing: TimingSection, clock: Clock) -> None:
        self._shard = shard
        self._timing = timing
        self._clock = clock
        self.every_s = timing.tick_ms / 2000
        self.wait_s = self.every_s
        self._looked_s = float("-inf")
        self._steady_since_s = float("-inf")
        self._time: tuple[float, int] | None = None
        self._blind = False

    async def dead(self) -> list[str]:
        """Look once; return the incarnations whose process is gone.

        Raises:
            StoreUnavailable: the server did not answer.
        """
        if self._blind:
            return []
        steady, began_s = self._steady(), self._looked_s
        found = await witness.unwitnessed(
            self._shard,
            now_ms=await self._server_now_ms(),
            lease_ms=self._timing.lease_ms,
            overdue_ms=round(self._timing.beat_ms * _OVERDUE_BEATS),
            ahead_ms=round(self.every_s * 1000),
        )
        if found is None:
            self._blind = True
            log.info("dead workers are found by their leases alone", extra={"shard": self._shard.n})
            return []
        # Whose beat is late is looked at again in the moment in which it is overdue; the others have beaten by then.
        self.wait_s = self.every_s if found.next_ms is None else min(self.every_s, found.next_ms / 1000 + _MARGIN_S)
        # An answer that took long is one of a server that stood still meanwhile.
        if not steady or self._clock.monotonic() - began_s > self.every_s:
            return []
        for owner in found.dead:
            log.warning("worker gone: its connection is closed and its beats have stopped", extra={"worker": owner})
        return found.dead

    def _steady(self) -> bool:
        """Note this look; tell whether there was none missing for some beats."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s > _GAP_LOOKS * self.every_s:
            self._steady_since_s, self._time = now_s, None
        self._looked_s = now_s
        return now_s - self._steady_since_s > _STEADY_BEATS * self._timing.beat_ms / 1000

    async def _server_now_ms(self) -> int:
        """Return the server's time; asked for now and then and counted on from there."""
        now_s = self._clock.monotonic()
        if self._time is None or now_s - self._time[0] > _TIME_AGE_S:
            self._time = (now_s, await witness.server_now_ms(self._shard))
        return self._time[1] + round((now_s - self._time[0]) * 1000)
