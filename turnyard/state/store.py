"""A session in Redis as a store: one process drives its turns alone, with neither a dispatcher nor a worker.

The process is a worker incarnation like any other, with a lease and a fence, so a second one that takes the session over makes its
commits fail. What a dispatcher would do for the session is done here whenever its turn is asked for.

An agent's capacity is counted over all that run it, so the agent of such a session is one of its own: the name that was given, and
the session's key. No worker serves it, and no limit of the agent that workers serve holds for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from turnyard.errors import InboxFull, NotFound, StoreUnavailable
from turnyard.ports import Settled
from turnyard.records import ids
from turnyard.records.commit import Commit, TurnView
from turnyard.records.log import LogRecord, visible
from turnyard.records.messages import Accepted, UserMessage
from turnyard.records.notices import Notice, live, shown_notice
from turnyard.state import fleet, flows, ingress, turns, upkeep
from turnyard.state.log import read_entry, read_log
from turnyard.state.reads import reading, text
from turnyard.state.sessions import read_by_key
from turnyard.state.standing import read_standing

if TYPE_CHECKING:
    from turnyard.state.yard import Yard

_PAGE = 500
_POOL = "own"
_LEASE_MS = 10_000
_BEATS = 5  # in the time of a lease


class RedisStore:
    """A `SessionStore` on a session of a deployment. Made by `open_store`."""

    def __init__(self, yard: Yard, *, tenant: str, session: str, agent: str) -> None:
        self._yard = yard
        self._sid = ids.session_key(tenant, session)
        self._shard = yard.shard_for(self._sid)
        self._agent = agent
        self._served = f"{agent}.{self._sid}"
        self._who: dict[str, Any] = {"tenant": tenant, "session": session, "agent": self._served, "pool": _POOL, "platform": "local"}
        self._owner = ""
        self._epoch = 0
        self._known: TurnView | None = None

    # -- the turn -----------------------------------------------------------------------------------------------------

    async def begin(self) -> TurnView | None:
        """Take the session's turn, what is due done first; the turn that this client has already is answered again."""
        if not self._owner:
            await self._join()
        if self._epoch and (view := await self._take(self._epoch)) is not None:
            return view
        await upkeep.tick(self._shard, parts="wbd", lease_ms=_LEASE_MS, tick_ms=_LEASE_MS)
        await self._arrive()
        for found in await fleet.take(self._shard, fleet.Lists(self._registration()), free=1, block_ms=1):
            if isinstance(found, fleet.Assignment) and found.session == self._sid:
                return await self._take(found.epoch)
        return None

    async def commit(self, view: TurnView, change: Commit) -> TurnView:
        """Make one transition, whole; one that claims or ends sees what was accepted by now."""
        if change.claim or change.ending != "none":
            await self._arrive()
        after = await turns.commit(self._shard, view, self._owner, change)
        return self._seen(after)

    async def _take(self, epoch: int) -> TurnView | None:
        view = await turns.begin(self._shard, self._sid, epoch=epoch, owner=self._owner, serial=0, known=self._known)
        if view is None or view.ended:
            self._epoch, self._known = 0, None
            return None
        self._epoch = epoch
        return self._seen(view)

    def _seen(self, view: TurnView) -> TurnView:
        if view.ended:
            self._epoch = 0
        else:
            self._known = view
        return replace(view, head={**view.head, "agent": self._agent})

    # -- what arrives -------------------------------------------------------------------------------------------------

    async def publish(self, body: dict[str, Any]) -> str:
        """Leave a user message.

        Raises:
            InboxFull: the session has as many unread messages as it may hold.
        """
        job = ids.new_job_id(self._shard.n)
        message = UserMessage(**self._who, body=body, job=job, body_hash=job)
        _check(await ingress.accept_message(self._yard, message))
        return job

    async def inject(self, body: dict[str, Any], *, wake: bool = False) -> None:
        """Add context."""
        _check(await ingress.accept_context(self._yard, **self._who, body=body, event=secrets.token_hex(8), wake=wake))

    async def notice(self, body: dict[str, Any], *, group: str, key: str, supersede: bool = True, ttl_ms: int | None = None) -> None:
        """Leave a notice."""
        await self._notice(body, group, key, supersede=supersede, ttl_ms=ttl_ms)

    async def clear(self, *, group: str, key: str) -> None:
        """Take away the notices of a group and key."""
        await self._notice({}, group, key, clear=True)

    async def _notice(self, body: dict[str, Any], group: str, key: str, **how: Any) -> None:
        event = secrets.token_hex(8)
        _check(await ingress.accept_notice(self._yard, **self._who, group=group, key=key, body=body, event=event, **how))

    async def outcome(self, call: str, outcome: str, body: dict[str, Any]) -> Settled:
        """Give a call its outcome."""
        told = await ingress.accept_outcome(
            self._yard, shard=self._shard.n, store=await self._store(), call=call, outcome=outcome, body=body, secret_hash=None
        )
        return told.code if told.code in ("accepted", "duplicate", "gone") else "conflict"

    # -- what can be read ---------------------------------------------------------------------------------------------

    async def notices(self) -> Sequence[Notice]:
        """Return the notices that matter now."""
        await self._arrive()
        standing = await read_standing(self._shard, self._sid)
        if standing is None:
            return []
        shown = [notice for record in await self.entries() if (notice := shown_notice(record)) is not None]
        return live([*shown, *await self._unshown()], standing.now_ms)

    async def _unshown(self) -> list[Notice]:
        found: list[Notice] = []
        for key in (self._shard.keys.inbox(self._sid), self._shard.keys.next(self._sid)):
            with reading(f"notices of {self._who['session']}"):
                items = await self._shard.redis.xrange(key)
            notices = [item for _, item in items if item[b"k"] == b"notice" and item[b"gr"] + item[b"ky"]]
            found += [Notice(text(f[b"gr"]), text(f[b"ky"]), orjson.loads(f[b"b"]), until_ms=_number(f.get(b"un"))) for f in notices]
        return found

    async def pending(self) -> int:
        """Return how many items that wake the session wait."""
        await self._arrive()
        with reading(f"session {self._who['session']}"):
            found = await self._shard.redis.hmget(self._shard.keys.head(self._sid), "iw", "nw", "nd")
        return sum(int(count or 0) for count in found)

    async def entries(self) -> Sequence[LogRecord]:
        """Return what a model may see."""
        store, records = await self._store(), list[LogRecord]()
        while len(page := await read_log(self._shard, store, after=records[-1].seq if records else 0, limit=_PAGE)) == _PAGE:
            records += page
        return list(visible((), [*records, *page]))

    async def entry(self, seq: int) -> LogRecord | None:
        """Return one record of the log."""
        return await read_entry(self._shard, await self._store(), seq)

    async def _store(self) -> str:
        view = await read_by_key(self._shard, self._sid)
        return ids.store_key(self._sid, 0) if view is None else view.store

    async def _arrive(self) -> None:
        """Bring in what was accepted, as a dispatcher does."""
        while (await flows.dispatch(self._shard)).left:
            pass

    # -- the incarnation ----------------------------------------------------------------------------------------------

    def _registration(self) -> fleet.Registration:
        pid = os.getpid()
        return fleet.Registration(self._owner, "worker", socket.gethostname(), pid, pid, (_POOL,), {self._served: 0}, 1)

    async def _join(self) -> None:
        self._owner, self._epoch, self._known = ids.new_owner_id(), 0, None
        await fleet.register(self._shard, self._registration(), lease_ms=_LEASE_MS)

    async def keep(self) -> None:
        """Renew the lease until this is cancelled. One that is lost takes the turn with it; the next `begin` starts anew."""
        while True:
            await self._shard.clock.sleep(_LEASE_MS / _BEATS / 1000)
            with contextlib.suppress(StoreUnavailable):
                await self.beat()

    async def beat(self) -> None:
        """Renew the lease once.

        Raises:
            StoreUnavailable: the server did not answer; the lease runs on.
        """
        held = [self._sid] if self._epoch else []
        if self._owner and (await fleet.beat(self._shard, self._owner, held=held, lease_ms=_LEASE_MS)).lost:
            self._owner = ""

    async def leave(self) -> None:
        """Let go of the session; a turn that is open goes on where the session is opened next, once the lease has ended."""
        if self._owner:
            await fleet.leave(self._shard, self._owner)


@asynccontextmanager
async def open_store(yard: Yard, *, tenant: str, session: str, agent: str) -> AsyncGenerator[RedisStore]:
    """Open a session for one process that drives it. One that workers ran before is its with the next message, once it is idle.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    store = RedisStore(yard, tenant=tenant, session=session, agent=agent)
    keeping = asyncio.create_task(store.keep())
    try:
        yield store
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        with contextlib.suppress(StoreUnavailable):
            await store.leave()


def _check(told: Accepted) -> None:
    if told.code == "inbox_full":
        raise InboxFull
    if told.code != "accepted":
        raise NotFound(f"the session did not take it in: {told.code}")


def _number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)
