"""How a worker's death is seen before its lease runs out.

Every incarnation keeps one connection that carries its name. A process that is killed loses it at once, so one whose
name is missing and whose last beat is overdue needs no further waiting. A missing name alone proves nothing (a proxy
may have dropped the connection), nor does a late beat alone: that is what the lease is for.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import orjson
from redis import exceptions as rx

from turnyard.backoff import Backoff
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.state")

_PREFIX = "ty-w-"
_NAMED = re.compile(rb" name=ty-w-([0-9a-f]+) ")
_PING_EVERY_S = 1.0


class Witness:
    """The named connection of one process."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._connection: Any = yard.blocking.connection_pool.make_connection()
        self._owner = ""
        self._given = ""

    def name(self, owner: str) -> None:
        """Carry the name of this incarnation from now on."""
        self._owner = owner

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        backoff = Backoff()
        while True:
            try:
                await self._show()
            except (TimeoutError, rx.RedisError, OSError):
                await self._connection.disconnect(nowait=True)
                self._given = ""
                await self._yard.clock.sleep(backoff.next_s())
            else:
                backoff.reset()
                await self._yard.clock.sleep(_PING_EVERY_S)

    async def _show(self) -> None:
        await self._connection.connect()
        if self._given == self._owner:
            await self._connection.send_command("PING")
        else:
            given = self._owner
            await self._connection.send_command("CLIENT", "SETNAME", _PREFIX + given)
            self._given = given
        await self._connection.read_response()

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._connection.disconnect()


async def server_now_ms(shard: Shard) -> int:
    """Return the server's time in milliseconds.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading("the server's time"):
        seconds, micros = await shard.redis.time()
    return seconds * 1000 + micros // 1000


async def unwitnessed(shard: Shard, *, now_ms: int, lease_ms: int, overdue_ms: int) -> list[str] | None:
    """Return the incarnations that have lost their named connection and have not beaten for `overdue_ms`.

    `now_ms` is the server's time. `lease_ms` is the lease that most have; one with another lease is judged by its own.
    None: this server does not tell who is connected.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading(f"the fleet of shard {shard.n}"):
        late = await shard.redis.zrangebyscore(shard.keys.prefix + "workers", "(-inf", now_ms + lease_ms - overdue_ms, withscores=True)
        if not late:
            return []
        facts = await shard.redis.hmget(shard.keys.prefix + "fleet", [owner for owner, _ in late])
        try:
            clients: bytes = await shard.redis.execute_command("CLIENT", "LIST")
        except rx.ResponseError as error:
            log.info("this server does not tell who is connected", extra={"reason": str(error)})
            return None
    named = set(_NAMED.findall(clients))
    return [
        text(owner)
        for (owner, score), raw in zip(late, facts, strict=True)
        if raw and owner not in named and score - orjson.loads(raw).get("lease_ms", lease_ms) < now_ms - overdue_ms
    ]
