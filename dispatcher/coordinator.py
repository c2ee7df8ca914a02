"""Who divides the limits of a deployment over its shards.

Every dispatcher tries; one at a time holds the lease. It asks all shards what they use and what waits, lowers the parts
that are more than needed, and raises others out of what has really become free, so that all parts together never exceed
the limit, and neither do the turns that run, but for those that ran before the limit was lowered.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from turnyard.errors import ConfigError
from turnyard.state import flows, plan, shares
from turnyard.state.plan import ALL, Deposed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnyard.settings import Settings
    from turnyard.state.plan import Use
    from turnyard.state.yard import Yard

log = logging.getLogger("turnyard.dispatcher")

LEAST_PER_SHARD = 4
_TICKS = 2  # between two looks
_LEASE_LOOKS = 5


def wholes_of(settings: Settings) -> dict[str, int]:
    """Return every limit that shards share, by resource."""
    tenants = {f"t/{name}": t.max_concurrent_turns for name, t in settings.tenants.items()}
    pools = {f"p/{name}": p.max_concurrent_turns for name, p in settings.pools.items()}
    capped = {res: most for res, most in (tenants | pools).items() if most is not None}
    return {ALL: settings.limits.max_concurrent_turns, **capped}


def check_limits(settings: Settings, count: int) -> None:
    """Refuse a limit that is too small to be divided.

    Raises:
        ConfigError: it is less than four for each of `count` shards.
    """
    most = settings.limits.max_concurrent_turns
    if count > 1 and most < LEAST_PER_SHARD * count:
        raise ConfigError(
            f"limits.max_concurrent_turns is {most}, and this deployment has {count} shards, which share it: "
            f"make it at least {LEAST_PER_SHARD * count}"
        )


class Coordinator:
    """One dispatcher's attempt to be the one. `every_s` is how often to call `look`."""

    def __init__(self, yard: Yard, settings: Settings) -> None:
        self._yard = yard
        self._wholes = wholes_of(settings)
        self._weights = frozenset(settings.tenants)
        self._owner = secrets.token_hex(8)
        self.every_s = _TICKS * settings.timing.tick_ms / 1000
        self._lease_ms = round(_LEASE_LOOKS * self.every_s * 1000)
        self._looks = 0
        self._above = 0
        self._published: object = None
        self._cleared = 0

    async def look(self) -> bool:
        """Divide anew if this process holds the lease; return whether it does.

        Raises:
            StoreUnavailable: a server did not answer; the parts are what they are, and no more than the limits.
        """
        version = await plan.hold(self._yard, self._owner, lease_ms=self._lease_ms, above=self._above)
        if version is None:
            return False
        try:
            await self._divide(version)
        except Deposed as error:
            log.info("the plan is older than one that a shard has heard", extra={"version": version, "heard": error.heard})
            self._above = error.heard
            return False
        return True

    async def let_go(self) -> None:
        """Let another one take over at once."""
        await plan.let_go(self._yard, self._owner)

    async def _divide(self, version: int) -> None:
        self._looks += 1
        # Whoever was the coordinator before is heard by no shard after this, so what they answer stays so.
        uses = await self._tell(version, [dict.fromkeys(self._wholes)] * len(self._yard.shards))
        await self._clear(version)
        targets = {res: self._target(res, [use[res] for use in uses]) for res in self._wholes}
        lower = [self._change(use, {res: targets[res][n] for res in use}, up=False) for n, use in enumerate(uses)]
        if any(lower):
            uses = await self._tell(version, [dict.fromkeys(self._wholes) | parts for parts in lower])
        raised = {res: self._raised(res, [use[res] for use in uses], targets[res]) for res in self._wholes}
        higher = [self._change(use, {res: raised[res][n] for res in use}, up=True) for n, use in enumerate(uses)]
        if any(higher):
            uses = await self._tell(version, [dict.fromkeys(self._wholes) | parts for parts in higher])
        await self._publish(uses)

    async def _clear(self, version: int) -> None:
        """Take away, once in each plan, what an earlier configuration divided and this one does not name: nobody would raise it again."""
        if version != self._cleared:
            for shard in self._yard.shards:
                await flows.keep_limits(shard, resources=self._wholes, weights=self._weights)
            self._cleared = version

    async def _tell(self, version: int, parts: Sequence[Mapping[str, int | None]]) -> list[dict[str, Use]]:
        return await asyncio.gather(*(plan.share(s, version, p) for s, p in zip(self._yard.shards, parts, strict=True)))

    def _target(self, res: str, uses: Sequence[Use]) -> list[int]:
        whole, count = self._wholes[res], len(uses)
        floor = whole // (LEAST_PER_SHARD * count)
        wants = [use.used + use.waiting for use in uses]
        # A shard without a part is as one that has everything: it is lowered first.
        now = [whole if use.part is None else use.part for use in uses]
        return shares.next_parts(whole, now, [use.used for use in uses], wants, floor=floor, turn=self._looks)

    def _raised(self, res: str, uses: Sequence[Use], target: Sequence[int]) -> list[int]:
        return shares.raised(self._wholes[res], [use.part or 0 for use in uses], [use.used for use in uses], target)

    @staticmethod
    def _change(use: Mapping[str, Use], parts: Mapping[str, int], *, up: bool) -> dict[str, int | None]:
        """Return the parts that go up, or those that go down; a first part is nothing, and then goes up as others do."""
        changed: dict[str, int | None] = {}
        for res, part in parts.items():
            was = use[res].part
            if was is None and not up:
                changed[res] = 0
            elif was is not None and (part > was if up else part < was):
                changed[res] = part
        return changed

    async def _publish(self, uses: Sequence[Mapping[str, Use]]) -> None:
        parts = {res: [use[res].part or 0 for use in uses] for res in self._wholes}
        if parts != self._published:
            self._published = parts
            await plan.publish(self._yard, self._wholes, parts)
