"""What happens in the sessions that somebody follows, live and without a gap.

One blocking read per shard serves every follower of the process. A follower first joins, then reads its backlog, then
takes what the reader hands it, dropping what it has seen: so nothing falls between. Records come in order of their
store; deltas come between them and may be missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis import exceptions as rx

from turnyard.records.ids import store_key
from turnyard.records.live import Live
from turnyard.records.log import OPENED, LogRecord, parse_record
from turnyard.state.ingress import follow
from turnyard.state.reads import reading, text
from turnyard.state.turns import flat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from turnyard.state.yard import Shard, Yard

_BLOCK_MS = 2000
_COUNT = 200
_PAGE = 200
_BUFFER = 4096
_FOLLOW_S = 30.0
_REFRESH_S = 10.0
_WAKE_TTL_S = 60


@dataclass(frozen=True, slots=True, order=True)
class FeedId:
    """Where a follower stands: store ordinal, seq, and how many deltas after it. Written `<ordinal>.<seq>-<k>`."""

    ordinal: int
    seq: int
    k: int = 0

    def __str__(self) -> str:
        return f"{self.ordinal}.{self.seq}-{self.k}"

    @classmethod
    def parse(cls, raw: str) -> FeedId | None:
        """Return the position that `raw` names, or None when it names none."""
        head, _, k = raw.partition("-")
        ordinal, _, seq = head.partition(".")
        parts = (ordinal, seq, k or "0")
        if any(not p.isascii() or not p.isdigit() or len(p) > 15 for p in parts):
            return None
        return cls(*(int(p) for p in parts))


@dataclass(frozen=True, slots=True)
class FeedItem:
    """One thing that happened; `id` is where to resume after it."""

    id: FeedId
    record: LogRecord | Live


class SlowFollower(Exception):
    """This follower does not read as fast as things happen: it is dropped and may resume from its last id."""


class _Follower:
    def __init__(self, session: str, *, deltas: bool) -> None:
        self.session = session
        self.deltas = deltas
        self.queue: asyncio.Queue[FeedItem | None] = asyncio.Queue()
        self.dropped = False

    def offer(self, item: FeedItem) -> None:
        if self.queue.qsize() < _BUFFER:
            self.queue.put_nowait(item)
        else:
            self.drop()

    def drop(self) -> None:
        if not self.dropped:
            self.dropped = True
            self.queue.put_nowait(None)


class _Reader:
    """The one blocking read of a shard."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.followers: dict[str, list[_Follower]] = {}
        self.cursors: dict[str, str] = {}
        self._stores: dict[str, str] = {}
        self._wake_key = f"{shard.keys.prefix}x:{secrets.token_hex(8)}"
        self._wake_id = "0-0"

    async def join(self, follower: _Follower, stores: list[str]) -> None:
        self.followers.setdefault(follower.session, []).append(follower)
        for store in stores:
            await self.add(store)

    async def add(self, store: str) -> None:
        """Read this store's streams from now on, and wake the reader if it waits without them."""
        keys = (self.shard.keys.log(store), self.shard.keys.live(store))
        if keys[0] in self.cursors:
            return
        with reading(f"log of {store}"):
            for key in keys:
                last = await self.shard.redis.execute_command("XREVRANGE", key, "+", "-", "COUNT", 1)
                self.cursors.setdefault(key, text(last[0][0]) if last else "0-0")
                self._stores[key] = store
            await self.shard.redis.xadd(self._wake_key, {"w": "1"}, maxlen=1)
            await self.shard.redis.expire(self._wake_key, _WAKE_TTL_S)

    def part(self, follower: _Follower) -> None:
        left = self.followers.get(follower.session, [])
        if follower in left:
            left.remove(follower)
        if left:
            return
        self.followers.pop(follower.session, None)
        for key in [k for k, s in self._stores.items() if s.startswith(follower.session + ".")]:
            self.cursors.pop(key, None)
            self._stores.pop(key, None)

    async def run(self) -> None:
        while True:
            try:
                await self._read()
            except (TimeoutError, rx.RedisError, OSError):
                await self.shard.clock.sleep(0.2)
                with contextlib.suppress(TimeoutError, rx.RedisError, OSError):
                    await self._step_back()

    async def _step_back(self) -> None:
        """After a failover that lost writes, a stream may end before our place in it, and goes on from there.

        Who followed its log has seen what is no more: it is dropped, and resumes with what there is now.
        """
        for key, cursor in list(self.cursors.items()):
            found = await self.shard.redis.execute_command("XREVRANGE", key, "+", "-", "COUNT", 1)
            last = text(found[0][0]) if found else "0-0"
            if _place(last) < _place(cursor):
                self.cursors[key] = last
                if key.endswith(":log"):
                    for follower in self.followers.get(self._stores[key].partition(".")[0], []):
                        follower.drop()

    async def _read(self) -> None:
        streams: list[str] = [self._wake_key, *self.cursors]
        ids: list[str] = [self._wake_id, *self.cursors.values()]
        command: list[Any] = ["XREAD", "COUNT", _COUNT, "BLOCK", _BLOCK_MS, "STREAMS", *streams, *ids]
        reply: list[Any] = await self.shard.blocking.execute_command(*command) or []
        for name, found in reply:
            key = text(name)
            if not found:
                continue
            if key == self._wake_key:
                self._wake_id = text(found[-1][0])
            elif key in self.cursors:
                self.cursors[key] = text(found[-1][0])
                await self._hand_out(key, found)

    async def _hand_out(self, key: str, found: list[Any]) -> None:
        store = self._stores[key]
        session, _, ordinal = store.partition(".")
        live = key.endswith(":live")
        for eid, fields in found:
            item = _live(int(ordinal), eid, fields) if live else _record(int(ordinal), eid, fields)
            for follower in self.followers.get(session, []):
                if follower.deltas or not live:
                    follower.offer(item)
            if not live and isinstance(item.record, LogRecord) and item.record.type == OPENED:
                await self.add(store_key(session, int(item.record.extra["x"])))


def _place(eid: str) -> tuple[int, int]:
    seq, _, k = eid.partition("-")
    return int(seq), int(k)


def _record(ordinal: int, eid: Any, fields: Any) -> FeedItem:
    record = parse_record(eid, flat(fields))
    return FeedItem(FeedId(ordinal, record.seq), record)


def _live(ordinal: int, eid: Any, fields: Any) -> FeedItem:
    seq, _, k = text(eid).partition("-")
    flat_fields = flat(fields)
    f = {text(flat_fields[i]): flat_fields[i + 1] for i in range(0, len(flat_fields), 2)}
    live = Live(int(seq), int(k) + 1, text(f["u"]), int(f["s"]), text(f["k"]), int(f["i"]), text(f["b"]))
    return FeedItem(FeedId(ordinal, live.seq, live.k), live)


class Feed:
    """All followers of one process."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._readers = [_Reader(shard) for shard in yard.shards]
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, yard: Yard) -> Feed:
        """Return a feed that reads; close it with `aclose`."""
        feed = cls(yard)
        feed._tasks = [asyncio.create_task(reader.run()) for reader in feed._readers]
        feed._tasks.append(asyncio.create_task(feed._ask_for_deltas()))
        return feed

    async def aclose(self) -> None:
        """Stop reading; followers end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for reader in self._readers:
            for follower in [f for group in reader.followers.values() for f in group]:
                follower.queue.put_nowait(None)

    async def follow(self, session_key: str, *, after: FeedId | None = None, deltas: bool = True) -> AsyncIterator[FeedItem]:
        """Yield what happened after `after` (None: from the beginning), then what happens, until closed.

        `session_key` is the session's key part. Deltas of a message under way are not repeated: its record follows.

        Raises:
            SlowFollower: the follower fell too far behind; resume from the last id.
            StoreUnavailable: the server did not answer while joining.
        """
        shard = self._yard.shard_for(session_key)
        reader = self._readers[shard.n]
        follower = _Follower(session_key, deltas=deltas)
        try:
            with reading(f"session {session_key}"):
                count = int(await shard.redis.hget(shard.keys.head(session_key), "sn") or 1)
            await reader.join(follower, [store_key(session_key, n) for n in range(count)])
            if deltas:
                await follow(self._yard, session_key, _FOLLOW_S)
            seen: dict[int, int] = {}
            async for item in self._backlog(shard, session_key, count, after or FeedId(0, 0), seen):
                seen[item.id.ordinal] = item.id.seq
                yield item
            while (item := await follower.queue.get()) is not None:
                if item.id.seq > seen.get(item.id.ordinal, 0) or isinstance(item.record, Live):
                    yield item
            if follower.dropped:
                raise SlowFollower
        finally:
            reader.part(follower)

    async def _backlog(self, shard: Shard, session: str, count: int, after: FeedId, seen: dict[int, int]) -> AsyncIterator[FeedItem]:
        """Yield what the logs hold behind `after`; note in `seen` from where on each of them is new."""
        for ordinal in range(count):
            at = 0
            if ordinal <= after.ordinal:
                # a log that lost writes in a failover may end before `after`
                last = await _last_seq(shard, store_key(session, ordinal))
                at = last if ordinal < after.ordinal else min(after.seq, last)
            seen[ordinal] = at
            while True:
                with reading(f"log of {session}"):
                    key = shard.keys.log(store_key(session, ordinal))
                    page = await shard.redis.execute_command("XRANGE", key, f"({at}-0", "+", "COUNT", _PAGE)
                for eid, fields in page:
                    item = _record(ordinal, eid, fields)
                    at = item.id.seq
                    yield item
                if len(page) < _PAGE:
                    break

    async def _ask_for_deltas(self) -> None:
        while True:
            await self._yard.clock.sleep(_REFRESH_S)
            for reader in self._readers:
                for session, group in list(reader.followers.items()):
                    if any(f.deltas for f in group):
                        with contextlib.suppress(Exception):
                            await follow(self._yard, session, _FOLLOW_S)


async def _last_seq(shard: Shard, store: str) -> int:
    with reading(f"log of {store}"):
        last = await shard.redis.execute_command("XREVRANGE", shard.keys.log(store), "+", "-", "COUNT", 1)
    return int(text(last[0][0]).partition("-")[0]) if last else 0
