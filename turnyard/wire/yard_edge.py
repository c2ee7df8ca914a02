"""The store as a door sees it, over a yard.

One per process: all followers share one feed, all waiting requests one watch.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Self, cast

from turnyard.errors import NotFound, Overloaded
from turnyard.records.approvals import Approval, ApprovalPage, Decided, Decision
from turnyard.records.ids import job_shard, shard_of, store_key
from turnyard.records.jobs import Job
from turnyard.records.log import LogRecord
from turnyard.records.manifest import Manifest
from turnyard.records.messages import Accepted, UserMessage
from turnyard.state import approvals, call_facts, dead, explain, fleet, ingress, jobs, scale, sessions
from turnyard.state.agents import AgentsCache
from turnyard.state.feed import Feed, FeedId, FeedItem, SlowFollower
from turnyard.state.jobs import JobWatch
from turnyard.state.log import read_log
from turnyard.state.yard import Yard
from turnyard.wire.edge import Control


class YardEdge:
    """Implements `Edge`. Make it with `start`, end it with `aclose`; the yard stays its owner's."""

    def __init__(self, yard: Yard, feed: Feed, watch: JobWatch, *, inbox_cap: int) -> None:
        self._yard = yard
        self._feed = feed
        self._watch = watch
        self._inbox_cap = inbox_cap
        self._agents = AgentsCache(yard)

    @classmethod
    async def start(cls, yard: Yard, *, inbox_cap: int = ingress.INBOX_CAP) -> Self:
        """Return an edge that listens. `inbox_cap` is how many unread messages a session may have.

        Raises:
            StoreUnavailable: the server did not answer.
        """
        return cls(yard, await Feed.start(yard), await JobWatch.start(yard), inbox_cap=inbox_cap)

    async def aclose(self) -> None:
        """Stop listening; followers end."""
        await self._feed.aclose()
        await self._watch.aclose()

    @property
    def channel(self) -> str:
        """Return the channel on which the ends of jobs are announced to this process."""
        return self._watch.channel

    async def ping(self) -> None:
        """Return when the server answers."""
        await self._yard.ping()

    def shard_of(self, session_key: str) -> int:
        """Return the number of the shard that owns a session."""
        return shard_of(session_key, len(self._yard.shards))

    async def manifest(self, agent: str) -> Manifest | None:
        """Return what workers published of an agent, None when none ever did."""
        return await self._agents.get(agent)

    async def manifests(self) -> dict[str, Manifest]:
        """Return every published agent by name."""
        return await self._agents.all()

    async def accept_message(self, message: UserMessage) -> Accepted:
        """Take a message in, durably and once."""
        return await ingress.accept_message(self._yard, message, inbox_cap=self._inbox_cap)

    async def accept_notice(
        self,
        *,
        tenant: str,
        session: str,
        agent: str,
        pool: str,
        group: str,
        key: str,
        body: dict[str, Any],
        event: str,
        clear: bool,
        supersede: bool,
        ttl_ms: int | None,
    ) -> Accepted:
        """Take a notice in, or clear the one of the same group and key."""
        return await ingress.accept_notice(
            self._yard,
            tenant=tenant,
            session=session,
            agent=agent,
            pool=pool,
            group=group,
            key=key,
            body=body,
            event=event,
            clear=clear,
            supersede=supersede,
            ttl_ms=ttl_ms,
        )

    async def accept_control(
        self, *, tenant: str, session: str, control: Control, event: str, turn: str | None = None, cascade: bool = False
    ) -> Accepted:
        """Take a control in."""
        how: dict[str, Any] = {"control": control, "event": event, "turn": turn, "cascade": cascade}
        return await ingress.accept_control(self._yard, tenant=tenant, session=session, **how)

    async def cancel_job(self, job: str, *, tenant: str, cascade: bool = False) -> Accepted:
        """Ask for a job to be cancelled."""
        return await ingress.cancel_job(self._yard, job, tenant=tenant, cascade=cascade)

    async def accept_outcome(
        self, *, shard: int, store: str, call: str, outcome: str, body: dict[str, Any], secret_hash: str | None, by: str
    ) -> Accepted:
        """Settle a call from outside."""
        return await ingress.accept_outcome(
            self._yard, shard=shard, store=store, call=call, outcome=outcome, body=body, secret_hash=secret_hash, by=by
        )

    async def call_facts(self, *, shard: int, store: str, call: str) -> call_facts.CallFacts | None:
        """Return what is known of a call, None when there is none."""
        return await call_facts.read_call_facts(self._yard, shard=shard, store=store, call=call)

    async def read_job(self, job: str, *, tenant: str) -> Job | None:
        """Return a job of a tenant, None when there is none."""
        return await jobs.read_job(self._yard, job, tenant=tenant) if job_shard(job) is not None else None

    async def wait_job(self, job: str, *, tenant: str, timeout_s: float) -> Job:
        """Return a job once it has ended.

        Raises:
            TimeoutError: it has not ended in time.
            NotFound: it is gone.
        """
        try:
            return await self._watch.done(job, tenant=tenant, timeout_s=timeout_s)
        except LookupError:
            raise NotFound(f"no job {job!r}: check the id; ended jobs are kept for seven days") from None

    async def read_session(self, session: str, *, tenant: str) -> sessions.SessionView | None:
        """Return a session of a tenant, None when there is none."""
        return await sessions.read_session(self._yard, tenant=tenant, session=session)

    async def list_sessions(self, *, tenant: str, limit: int, before: int | None) -> list[sessions.SessionView]:
        """Return a tenant's sessions, last used first."""
        return await sessions.list_sessions(self._yard, tenant=tenant, limit=limit, before_ms=before)

    async def explain(self, session: str, *, tenant: str) -> explain.Explanation | None:
        """Return why a session does not move, None when there is none."""
        return await explain.explain(self._yard, tenant=tenant, session=session)

    async def read_log(self, session_key: str, ordinal: int, *, after: int, limit: int) -> list[LogRecord]:
        """Return up to `limit` records of one history after seq `after`."""
        return await read_log(self._yard.shard_for(session_key), store_key(session_key, ordinal), after=after, limit=limit)

    async def feed(self, session_key: str, *, after: str | None, deltas: bool) -> AsyncGenerator[FeedItem]:
        """Yield what happens in a session from a position on.

        Raises:
            Overloaded: the consumer fell too far behind; go on from the last id.
        """
        start = FeedId.parse(after) if after is not None else None
        items = cast("AsyncGenerator[FeedItem]", self._feed.follow(session_key, after=start, deltas=deltas))
        async with contextlib.aclosing(items):
            try:
                async for item in items:
                    yield item
            except SlowFollower:
                raise Overloaded from None

    async def pending_approvals(self, *, tenant: str, limit: int, after: str | None) -> ApprovalPage:
        """Return what waits for a tenant's people, oldest first."""
        return await approvals.pending(self._yard, tenant, limit=limit, after=after)

    async def read_approval(self, approval: str, *, tenant: str) -> Approval | None:
        """Return an approval or question of a tenant, None when there is none."""
        return await approvals.read(self._yard, tenant, approval)

    async def decide(self, approval: str, decision: Decision, *, tenant: str) -> Decided:
        """Decide an approval or answer a question; the first who may decides it."""
        return await approvals.decide(self._yard, tenant, approval, decision)

    async def dead_letters(self, *, tenant: str, limit: int, before: str | None) -> list[dead.DeadLetter]:
        """Return a tenant's dead letters, newest first."""
        return await dead.list_letters(self._yard, tenant=tenant, limit=limit, before=before)

    async def retry_dead(self, letter: str, *, tenant: str) -> dead.Decision:
        """Send what a dead letter holds once more."""
        return await dead.retry_letter(self._yard, letter, tenant=tenant, by="api")

    async def workers(self) -> list[fleet.WorkerView]:
        """Return the workers that are alive."""
        return await fleet.list_workers(self._yard)

    async def scale(self, pool: str) -> scale.Scale:
        """Return how much work a pool has."""
        return await scale.scale(self._yard, pool)
