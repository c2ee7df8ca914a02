"""How a shard's accepted events become turns, and how what waits is remembered.

Three loops per shard, each nothing but a script called again: one drains ingress whenever it holds anything, one ticks,
one looks out for workers that died without a word. Several shards share the limits: a fourth loop divides them.
No state lives here, so any number of dispatchers may run and any of them may die at any moment; whoever comes second
finds nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import TYPE_CHECKING

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.state import flows, upkeep
from turnyard.state.plan import has_part

from .coordinator import Coordinator, wholes_of
from .sentinel import Sentinel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from turnyard.lifecycle import Life
    from turnyard.settings import Settings
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.dispatcher")

_PART_EVERY_S = 0.1
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
        self._coordinator = Coordinator(yard, settings) if len(yard.shards) > 1 else None
        self._away = {f"limits {shard.n}" for shard in yard.shards}
        self._sentinels = {shard.n: Sentinel(shard, settings.timing, life.clock) for shard in yard.shards}

    @property
    def ready(self) -> bool:
        """Tell whether the server answers every loop."""
        return not self._away

    async def run(self) -> None:
        """Dispatch and tick until the process is told to stop."""
        async with asyncio.TaskGroup() as group:
            if self._coordinator is not None:
                group.create_task(self._repeat("coordinate", partial(self._coordinate, self._coordinator)))
            for shard in self._yard.shards:
                group.create_task(self._shard(shard))

    async def _shard(self, shard: Shard) -> None:
        """Keep one shard going, from the moment that it knows its limits."""
        name = f"limits {shard.n}"
        setting = asyncio.create_task(self._repeat(name, partial(self._set_limits, shard), once=True))
        if self._coordinator is not None:
            await setting
            await self._repeat(name, partial(self._until_it_has_a_part, shard), once=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(f"dispatch {shard.n}", partial(self._dispatch, shard)))
            group.create_task(self._repeat(f"tick {shard.n}", partial(self._tick, shard)))
            group.create_task(self._repeat(f"look {shard.n}", partial(self._look, shard)))
        await setting

    async def _set_limits(self, shard: Shard, name: str) -> None:
        """Make the server's limits those of the settings; every replica has the same ones. Several shards share what is capped."""
        del name
        settings = self._settings
        alone = self._coordinator is None
        tenants = {name: t.max_concurrent_turns for name, t in settings.tenants.items() if t.max_concurrent_turns is not None}
        pools = {name: p.max_concurrent_turns for name, p in settings.pools.items() if p.max_concurrent_turns is not None}
        await flows.set_limits(
            shard,
            max_concurrent_turns=settings.limits.max_concurrent_turns if alone else None,
            tenants=tenants if alone else None,
            pools=pools if alone else None,
            weights={name: t.weight for name, t in settings.tenants.items()},
            begin_by_ms=self._timing.begin_by_ms,
            quantum_ms=self._timing.quantum_ms,
            relay_ms=_RELAY_LEASES * self._timing.lease_ms,
        )
        if alone:
            await flows.keep_limits(shard, resources=wholes_of(settings), weights=settings.tenants)

    async def _until_it_has_a_part(self, shard: Shard, name: str) -> None:
        while not (self._life.drain.is_set() or await has_part(shard)):
            self._life.progress.tick(name)
            await self._life.clock.sleep(_PART_EVERY_S)

    async def _coordinate(self, coordinator: Coordinator, name: str) -> None:
        if await coordinator.look():
            log.debug("the limits are divided", extra={"loop": name})
        waits = [asyncio.ensure_future(wait) for wait in (self._life.clock.sleep(coordinator.every_s), self._life.drain.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if self._life.drain.is_set():
            await coordinator.let_go()

    async def _repeat(self, name: str, work: Callable[[str], Awaitable[None]], *, once: bool = False) -> None:
        """Do `work` again and again, or until it is done once; a server that is away delays it and never ends it."""
        backoff = Backoff()
        self._away.add(name)
        while not self._life.drain.is_set():
            self._life.progress.tick(name)
            try:
                await work(name)
            except StoreUnavailable as error:
                if not backoff.failing:
                    self._away.add(name)
                    log.warning("the server does not answer; trying until it does", extra={"loop": name, "reason": str(error)})
                await self._life.clock.sleep(backoff.next_s())
            else:
                self._away.discard(name)
                if backoff.reset():
                    log.info("the server answers again", extra={"loop": name})
                if once:
                    break
        self._life.progress.forget(name)

    async def _dispatch(self, shard: Shard, name: str) -> None:
        if await flows.wait_ingress(shard, block_ms=_BLOCK_MS):
            while (await flows.dispatch(shard)).left and not self._life.drain.is_set():
                self._life.progress.tick(name)

    async def _tick(self, shard: Shard, name: str) -> None:
        del name
        timing = self._timing
        await upkeep.tick_through(shard, lease_ms=timing.lease_ms, tick_ms=timing.tick_ms, stopped=self._life.drain.is_set)
        # Replicas drift apart, so that the shard is looked at more often than each of them looks.
        await self._life.clock.sleep(self._timing.tick_ms / 1000 * self._rng.uniform(0.75, 1.0))

    async def _look(self, shard: Shard, name: str) -> None:
        del name
        sentinel = self._sentinels[shard.n]
        dead = await sentinel.dead()
        if dead:
            await upkeep.tick(shard, dead=dead, lease_ms=self._timing.lease_ms, tick_ms=self._timing.tick_ms)
        await self._life.clock.sleep(sentinel.wait_s)
