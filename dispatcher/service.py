"""How a shard's accepted events become turns, and how what waits is remembered.

Three loops per shard, each nothing but a script called again: one drains ingress whenever it holds anything, one ticks,
one looks out for workers that died without a word.
No state lives here, so any number of dispatchers may run and any of them may die at any moment; whoever comes second
finds nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.state import flows, upkeep

from .sentinel import Sentinel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from turnyard.lifecycle import Life
    from turnyard.settings import Settings
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.dispatcher")

_BLOCK_MS = 1000  # also how long a drain may take to be noticed
_RELAY_LEASES = 3  # a lifted call that nobody begins for so long lies with a process that is gone


class Dispatcher:
    """The loops of one process over all shards of a deployment."""

    def __init__(self, yard: Yard, life: Life, settings: Settings, *, rng: random.Random | None = None) -> None:
        self._yard = yard
        self._life = life
        self._settings = settings
        self._timing = settings.timing
        self._rng = rng or random.Random()
        self._away: set[str] = set()
        self._sentinels = {shard.n: Sentinel(shard, settings.timing, life.clock) for shard in yard.shards}

    @property
    def ready(self) -> bool:
        """Tell whether the server answers every loop."""
        return not self._away

    async def run(self) -> None:
        """Dispatch and tick until the process is told to stop."""
        async with asyncio.TaskGroup() as group:
            for shard in self._yard.shards:
                group.create_task(self._once(shard))
                group.create_task(self._repeat(f"dispatch {shard.n}", self._dispatch, shard))
                group.create_task(self._repeat(f"tick {shard.n}", self._tick, shard))
                group.create_task(self._repeat(f"look {shard.n}", self._look, shard))

    async def _once(self, shard: Shard) -> None:
        """Make the server's limits those of the settings; every replica has the same ones."""
        backoff = Backoff()
        while not self._life.drain.is_set():
            try:
                await self._set_limits(shard)
            except StoreUnavailable:
                await self._life.clock.sleep(backoff.next_s())
            else:
                return

    async def _set_limits(self, shard: Shard) -> None:
        settings, shards = self._settings, len(self._yard.shards)
        tenants = {name: t.max_concurrent_turns for name, t in settings.tenants.items() if t.max_concurrent_turns is not None}
        pools = {name: p.max_concurrent_turns for name, p in settings.pools.items() if p.max_concurrent_turns is not None}
        await flows.set_limits(
            shard,
            max_concurrent_turns=max(1, settings.limits.max_concurrent_turns // shards),
            tenants={name: max(1, most // shards) for name, most in tenants.items()},
            pools={name: max(1, most // shards) for name, most in pools.items()},
            weights={name: t.weight for name, t in settings.tenants.items()},
            begin_by_ms=self._timing.begin_by_ms,
            quantum_ms=self._timing.quantum_ms,
            relay_ms=_RELAY_LEASES * self._timing.lease_ms,
        )

    async def _repeat(self, name: str, work: Callable[[Shard, str], Awaitable[None]], shard: Shard) -> None:
        """Do `work` again and again; a server that is away delays it and never ends it."""
        backoff = Backoff()
        self._away.add(name)
        while not self._life.drain.is_set():
            self._life.progress.tick(name)
            try:
                await work(shard, name)
            except StoreUnavailable as error:
                if not backoff.failing:
                    self._away.add(name)
                    log.warning("the server does not answer; trying until it does", extra={"loop": name, "reason": str(error)})
                await self._life.clock.sleep(backoff.next_s())
            else:
                self._away.discard(name)
                if backoff.reset():
                    log.info("the server answers again", extra={"loop": name})

    async def _dispatch(self, shard: Shard, name: str) -> None:
        if await flows.wait_ingress(shard, block_ms=_BLOCK_MS):
            while (await flows.dispatch(shard)).left and not self._life.drain.is_set():
                self._life.progress.tick(name)

    async def _tick(self, shard: Shard, name: str) -> None:
        del name
        await upkeep.tick(shard, lease_ms=self._timing.lease_ms, tick_ms=self._timing.tick_ms)
        # Replicas drift apart, so that the shard is looked at more often than each of them looks.
        await self._life.clock.sleep(self._timing.tick_ms / 1000 * self._rng.uniform(0.75, 1.0))

    async def _look(self, shard: Shard, name: str) -> None:
        del name
        sentinel = self._sentinels[shard.n]
        dead = await sentinel.dead()
        if dead:
            await upkeep.tick(shard, dead=dead, lease_ms=self._timing.lease_ms, tick_ms=self._timing.tick_ms)
        await self._life.clock.sleep(sentinel.wait_s)
