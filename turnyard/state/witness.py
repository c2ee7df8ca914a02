"""How a worker's death is seen before its lease runs out.

Every incarnation keeps one connection to each server that carries its name. A process that is killed loses it at once, so one whose
name is missing and whose last beat is overdue needs no further waiting. A missing name alone proves nothing (a proxy
may have dropped the connection), nor does a late beat alone: that is what the lease is for.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from redis import exceptions as rx

from turnyard.backoff import Backoff
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.state.target import Address
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.state")

_PREFIX = "ty-w-"
_NAMED = re.compile(rb" name=ty-w-([0-9a-f]+) ")
_PING_EVERY_S = 1.0


class Witness:
    """The named connections of one process: one to each server that holds a shard."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._shown: dict[Address | None, tuple[Any, str]] = {}
        self._owner = ""

    def name(self, owner: str) -> None:
        """Carry the name of this incarnation from now on."""
        self._owner = owner

    async def run(self) -> None:
        """Keep the connections up until cancelled."""
        backoff = Backoff()
        while True:
            try:
                await self._show()
            except (TimeoutError, rx.RedisError, OSError):
                await self._yard.clock.sleep(backoff.next_s())
            else:
                backoff.reset()
                await self._yard.clock.sleep(_PING_EVERY_S)

    async def _show(self) -> None:
        """Be seen on every server; one that does not answer keeps the process from none of the others."""
        pools = {await pool.address(): pool for pool in {shard.n: shard.blocking.connection_pool for shard in self._yard.shards}.values()}
        for address in self._shown.keys() - pools.keys():
            await self._drop(address)
        failed: Exception | None = None
        for address, pool in pools.items():
            try:
                await self._show_at(address, pool)
            except (TimeoutError, rx.RedisError, OSError) as error:
                await self._drop(address)
                failed = error
        if failed is not None:
            raise failed

    async def _show_at(self, address: Address | None, pool: Any) -> None:
        connection, given = self._shown.get(address) or (pool.make_connection(), "")
        self._shown[address] = (connection, given)
        await connection.connect()
        name = self._owner
        await connection.send_command(*(("PING",) if name == given else ("CLIENT", "SETNAME", _PREFIX + name)))
        await connection.read_response()
        self._shown[address] = (connection, name)

    async def _drop(self, address: Address | None) -> None:
        connection, _ = self._shown.pop(address)
        await connection.disconnect(nowait=True)

    async def aclose(self) -> None:
        """Let go of the connections."""
        for address in list(self._shown):
            await self._drop(address)


async def server_now_ms(shard: Shard) -> int:
    """Return the server's time in milliseconds.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading("the server's time"):
        seconds, micros = await shard.redis.time()
    return seconds * 1000 + micros // 1000


@dataclass(frozen=True, slots=True)
class Fleet:
    """What one look at a shard's incarnations found.

    `dead` have lost their named connection and are overdue. `next_ms` is how long until the first of the others is overdue
    if it does not beat before; None when none is within the time asked for.
    """

    dead: list[str]
    next_ms: int | None


async def unwitnessed(shard: Shard, *, now_ms: int, lease_ms: int, overdue_ms: int, ahead_ms: int) -> Fleet | None:
    """Return the incarnations that have lost their named connection and have not beaten for `overdue_ms`.

    `now_ms` is the server's time. `lease_ms` is the lease that most have; one with another lease is judged by its own. Those
    that will be overdue within `ahead_ms` unless they beat are told as a time. None: this server does not tell who is connected.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading(f"the fleet of shard {shard.n}"):
        latest = now_ms + lease_ms - overdue_ms + ahead_ms
        late = await shard.redis.zrangebyscore(shard.keys.prefix + "workers", "(-inf", latest, withscores=True)
        if not late:
            return Fleet([], None)
        facts = await shard.redis.hmget(shard.keys.prefix + "fleet", [owner for owner, _ in late])
        left = {
            owner: round(score) - orjson.loads(raw).get("lease_ms", lease_ms) + overdue_ms - now_ms
            for (owner, score), raw in zip(late, facts, strict=True)
            if raw
        }
        overdue = [owner for owner, ms in left.items() if ms < 0]
        named: set[bytes] = set()
        if overdue:
            try:
                named = set(_NAMED.findall(await shard.redis.execute_command("CLIENT", "LIST")))
            except rx.ResponseError as error:
                log.info("this server does not tell who is connected", extra={"reason": str(error)})
                return None
    return Fleet([text(owner) for owner in overdue if owner not in named], min((ms for ms in left.values() if ms >= 0), default=None))
