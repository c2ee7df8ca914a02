"""A handle on one deployment: its servers and all of its shards.

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
from turnyard.state.confirm import Confirm
from turnyard.state.connection import describe
from turnyard.state.keys import Keys, shard_tags
from turnyard.state.links import Links
from turnyard.state.presence import Presence, this_process
from turnyard.state.schema import THIS_VERSION, Schemas, check_layout, read_layout
from turnyard.state.scripts import Library, Scripts
from turnyard.state.target import parse_target

if TYPE_CHECKING:
    from turnyard.ports import Clock
    from turnyard.state.connection import ServerFacts
    from turnyard.state.links import Link
    from turnyard.state.target import DurableAck


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: its number, its keys and how its scripts run. `redis` is for plain reads.

    redis-py 5 annotates its asyncio commands as if they might be synchronous, so its clients are Any here.
    """

    n: int
    keys: Keys
    scripts: Scripts
    durable: Scripts
    redis: Any
    blocking: Any
    clock: Clock

    async def run(self, name: str, *args: Any, oom: bool = True, durable: bool = False) -> Any:
        """Run a script on this shard; with `durable` wait until what it wrote is where `durable_ack` wants it.

        Errors as `Scripts.run`; StoreUnavailable as well when it is not there in time: make the same call again.
        """
        return await (self.durable if durable else self.scripts).run(name, self.keys.ingress, *args, oom=oom)


class Yard:
    """All shards of a deployment. Open it inside the loop that uses it."""

    def __init__(self, links: Links, tags: list[str], library: Library, clock: Clock, schemas: Schemas = THIS_VERSION) -> None:
        self._links = links
        self._library = library
        self.redis: Any = links.control.redis
        self.blocking: Any = links.control.blocking
        self.clock = clock
        self.schemas = schemas
        self._presence: Presence | None = None
        self._senders: dict[tuple[int, DurableAck | None], Scripts] = {}
        self.shards = tuple(self._shard(n, Keys(tag)) for n, tag in enumerate(tags))

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
        """Connect to the deployment at `url` (state/target.py), making it if it is new.

        `shards` is used at the first start alone (None: as the URL says, else 1). `schemas` are those this version knows.

        Raises:
            StoreUnavailable: the server does not answer.
            Unsupported: it is too old, evicts, cannot confirm what `durable_ack` asks for, or holds another layout than asked for.
            ConfigError: the URL cannot be read, or is not that of this kind of server.
        """
        target = parse_target(url)
        links = Links(target)
        try:
            await links.check()
            layout = await read_layout(links.control.redis, schemas=schemas, shards=shards or target.shards)
        except BaseException:
            await links.aclose()
            raise
        return cls(links, shard_tags(layout.shards), library or Library(), clock or SystemClock(), schemas)

    def _shard(self, n: int, keys: Keys) -> Shard:
        link, ack = self._links.to(keys.tag), self._links.target.durable_ack
        scripts = self._sender(link, None)
        # Calls that wait for a confirmation travel apart, so that the others do not wait with them.
        durable = scripts if ack == "none" else self._sender(link, ack)
        return Shard(n, keys, scripts, durable, link.redis, link.blocking, self.clock)

    def _sender(self, link: Link, ack: DurableAck | None) -> Scripts:
        """Return what sends scripts over this link; calls of all its shards travel together."""
        if (id(link), ack) not in self._senders:
            redis, schemas = self.redis, self.schemas
            self._senders[id(link), ack] = Scripts(
                link.redis,
                self._library,
                self.clock,
                # A server that lost this version's scripts may have been migrated past it: it is asked before it is taught.
                before_teaching=lambda: check_layout(redis, schemas),
                confirm=Confirm(ack) if ack else None,
            )
        return self._senders[id(link), ack]

    def shard_for(self, session_key: str) -> Shard:
        """Return the shard that owns a session."""
        return self.shards[shard_of(session_key, len(self.shards))]

    def shard(self, n: int) -> Shard | None:
        """Return shard number `n`, or None when there is none."""
        return self.shards[n] if 0 <= n < len(self.shards) else None

    @property
    def commands_sent(self) -> int:
        """Commands that script calls of this process have sent so far."""
        return sum(scripts.sent for scripts in self._senders.values())

    async def check(self) -> list[ServerFacts]:
        """Return what every server says of itself; errors as `open`."""
        return await self._links.check()

    async def ping(self) -> None:
        """Return when every server answers.

        Raises:
            StoreUnavailable: one does not.
        """
        for link in self._links.all():
            try:
                await link.redis.ping()
            except (TimeoutError, rx.RedisError, OSError) as error:
                raise StoreUnavailable(f"{describe(link.redis)} does not answer: {error}") from error

    @property
    def library(self) -> str:
        """Return which library of scripts this process calls."""
        return self._library.version

    async def attend(self, role: str) -> None:
        """Show this process among those at work, until `aclose`; a migration waits for the old ones."""
        self._presence = Presence(self.redis, self.clock, this_process(role, self.schemas, self.library))
        await self._presence.start()

    async def aclose(self) -> None:
        """Let go of all connections."""
        if self._presence is not None:
            await self._presence.aclose()
        for scripts in self._senders.values():
            await scripts.aclose()
        await self._links.aclose()
