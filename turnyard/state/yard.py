"""A handle on one deployment: its server and all of its shards.

The shard count is fixed at the first start and written to the layout; a later start with another count is refused,
because sessions would be looked for where they are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis import exceptions as rx

from turnyard.clock import SystemClock
from turnyard.errors import StoreUnavailable
from turnyard.records.ids import shard_of
from turnyard.state.connection import check_server, connect, describe
from turnyard.state.keys import Keys, shard_tags
from turnyard.state.schema import THIS_VERSION, Schemas, check_layout, read_layout
from turnyard.state.scripts import Library, Scripts

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from turnyard.ports import Clock


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: its number, its keys and how its scripts run. `redis` is for plain reads.

    redis-py 5 annotates its asyncio commands as if they might be synchronous, so its clients are Any here.
    """

    n: int
    keys: Keys
    scripts: Scripts
    redis: Any
    blocking: Any
    clock: Clock

    async def run(self, name: str, *args: Any, oom: bool = True) -> Any:
        """Run a script on this shard; errors as `Scripts.run`."""
        return await self.scripts.run(name, self.keys.ingress, *args, oom=oom)


class Yard:
    """All shards of a deployment. Open it inside the loop that uses it."""

    def __init__(
        self, redis: Redis, blocking: Redis, tags: list[str], library: Library, clock: Clock, schemas: Schemas = THIS_VERSION
    ) -> None:
        self.redis: Any = redis
        self.blocking: Any = blocking
        self.clock = clock
        self.schemas = schemas
        # A server that lost this version's scripts may have been migrated past it: it is asked before it is taught.
        self.scripts = Scripts(redis, library, clock, before_teaching=lambda: check_layout(redis, schemas))
        self.shards = tuple(Shard(n, Keys(tag), self.scripts, redis, blocking, clock) for n, tag in enumerate(tags))

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        shards: int | None = None,
        library: Library | None = None,
        clock: Clock | None = None,
        schemas: Schemas = THIS_VERSION,
    ) -> Yard:
        """Connect to the deployment at `url`, making it if it is new.

        `shards` is used at the first start alone (None: 1). `schemas` are those this version knows.

        Raises:
            StoreUnavailable: the server does not answer.
            Unsupported: it is too old, evicts, or holds another layout than asked for.
        """
        redis = connect(url)
        blocking = connect(url, blocking=True, max_connections=4096)
        try:
            await check_server(redis)
            layout = await read_layout(redis, schemas=schemas, shards=shards)
        except BaseException:
            await redis.aclose()
            await blocking.aclose()
            raise
        return cls(redis, blocking, shard_tags(layout.shards), library or Library(), clock or SystemClock(), schemas)

    def shard_for(self, session_key: str) -> Shard:
        """Return the shard that owns a session."""
        return self.shards[shard_of(session_key, len(self.shards))]

    def shard(self, n: int) -> Shard | None:
        """Return shard number `n`, or None when there is none."""
        return self.shards[n] if 0 <= n < len(self.shards) else None

    @property
    def commands_sent(self) -> int:
        """Commands that script calls of this process have sent so far."""
        return self.scripts.sent

    async def ping(self) -> None:
        """Return when the server answers.

        Raises:
            StoreUnavailable: it does not.
        """
        try:
            await self.redis.ping()
        except (TimeoutError, rx.RedisError, OSError) as error:
            raise StoreUnavailable(f"{describe(self.redis)} does not answer: {error}") from error

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self.scripts.aclose()
        await self.redis.aclose()
        await self.blocking.aclose()
