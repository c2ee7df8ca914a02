"""What this process keeps open to each server of a deployment, made when a shard is first spoken to.

On one server, or on the primary that Sentinel names, all shards share one link. On a cluster each shard has its own: its
keys are one slot, and the slot may move to another master at any time. One map of the cluster serves them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis import exceptions as rx

from turnyard.errors import ConfigError, StoreUnavailable
from turnyard.state.connection import asker, check_server, client, describe
from turnyard.state.keys import slot_of
from turnyard.state.places import ClusterMap, Sentinels, SlotPlace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turnyard.state.connection import ServerFacts
    from turnyard.state.places import Place
    from turnyard.state.target import Target

_CONTROL_TAG = "ctl"
_BLOCKED_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Link:
    """The clients of one server: `redis` for commands, `blocking` for reads that wait there.

    redis-py 5 annotates its asyncio commands as if they might be synchronous, so its clients are Any here.
    """

    redis: Any
    blocking: Any


class Links:
    """The links of one process. Use it inside the loop that made it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._cluster = ClusterMap(target.seeds, asker(target)) if target.kind == "cluster" else None
        self._primary = Sentinels(target.seeds, target.service, asker(target)) if target.kind == "sentinel" else None
        self._links: dict[int, Link] = {}

    @property
    def control(self) -> Link:
        """What leads to the keys of the whole deployment."""
        return self.to(_CONTROL_TAG)

    def to(self, tag: str) -> Link:
        """Return what leads to the keys with this tag."""
        slot = slot_of(tag) if self._cluster else 0
        if slot not in self._links:
            place: Place | None = SlotPlace(self._cluster, slot) if self._cluster else self._primary
            redis = client(self.target, place)
            self._links[slot] = Link(redis, client(self.target, place, blocking=True, max_connections=_BLOCKED_AT_ONCE))
        return self._links[slot]

    async def check(self) -> list[ServerFacts]:
        """Return what every master says of itself; errors as `check_server`."""
        if self._cluster is None:
            return [await check_server(self.control.redis, durable_ack=self.target.durable_ack)]
        try:
            masters = await self._cluster.masters()
        except (rx.RedisError, OSError) as error:
            if "cluster support disabled" in str(error):
                seed = ":".join(map(str, self.target.seeds[0]))
                raise ConfigError(f"server {seed}: it is no node of a Redis Cluster; write its URL as redis://{seed}") from error
            raise StoreUnavailable(
                f"{describe(self.control.redis)} does not answer ({error}); start the cluster, or correct REDIS_URL"
            ) from error
        facts: list[ServerFacts] = []
        for address in masters:
            redis = client(self.target, _Here(address), max_connections=1)
            try:
                facts.append(await check_server(redis, durable_ack=self.target.durable_ack, cluster=True))
            finally:
                await redis.aclose()
        return facts

    def all(self) -> Iterable[Link]:
        """Return every link made so far."""
        return tuple(self._links.values())

    async def aclose(self) -> None:
        """Let go of all connections."""
        for link in self._links.values():
            await link.redis.aclose()
            await link.blocking.aclose()


class _Here:
    """One node, whatever it serves."""

    masters_only = False

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def __str__(self) -> str:
        return f"node {self._address[0]}:{self._address[1]}"

    async def find(self) -> tuple[str, int]:
        return self._address

    def doubt(self) -> None:
        return None
