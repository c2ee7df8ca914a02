"""How calls that run outside a turn tell how far they are: the latest word of each, at most once a second.

Nothing waits for it, and what is lost is only a word that the next one replaces.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from turnyard.errors import StoreUnavailable
from turnyard.state import calls

if TYPE_CHECKING:
    from turnyard.ports import Clock
    from turnyard.state.yard import Yard

    from .telling import Errand

log = logging.getLogger("turnyard.workers")

_EVERY_S = 1.0


class Reports:
    """The one that tells it for a child."""

    def __init__(self, yard: Yard, clock: Clock) -> None:
        self._yard = yard
        self._clock = clock
        self._latest: dict[str, tuple[Errand, float, str]] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}

    def say(self, errand: Errand, fraction: float, note: str) -> None:
        """Tell how far a call is, now or with the next word of it."""
        self._latest[errand.call] = errand, fraction, note
        if errand.call not in self._telling:
            self._telling[errand.call] = asyncio.create_task(self._tell(errand.call))

    async def _tell(self, call: str) -> None:
        try:
            while call in self._latest:
                errand, fraction, note = self._latest.pop(call)
                await self._write(errand, fraction, note)
                await self._clock.sleep(_EVERY_S)
        finally:
            del self._telling[call]

    async def _write(self, errand: Errand, fraction: float, note: str) -> None:
        shard = self._yard.shard(errand.shard)
        if shard is None:
            return
        try:
            more = {"owner": errand.owner, "task": errand.task, "note": note}
            await calls.report(shard, errand.store, errand.call, fraction=fraction, **more)
        except StoreUnavailable:
            log.debug("a word on progress was lost", extra={"call": errand.call})
