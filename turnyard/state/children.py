"""Sessions that work for a call of another session: how one starts, how it is stopped, and how its end is told.

A child is named by its call: session, job and delivery are made of it, so that starting it twice starts it once. What it
brought becomes the outcome of the call's row, where the first one stands, so that telling it twice tells it once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from turnyard.errors import InvalidInput
from turnyard.records import children, ids
from turnyard.records.input import message_body
from turnyard.records.jobs import TERMINAL, Job
from turnyard.records.messages import UserMessage
from turnyard.state.ingress import accept_message, accept_outcome, cancel_job
from turnyard.state.jobs import read_job
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.records.manifest import Manifest
    from turnyard.records.messages import Cause
    from turnyard.state.yard import Shard, Yard

PLATFORM = "child"


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A call of kind child, and the session that made it.

    `agent` is whom it asks, `user` for whom. `depth` is how many such calls lie above the session that made it.
    `metadata` is that of the message which the turn works for. `settled` tells that the call has its outcome, and nobody waits for a child any more.
    """

    shard: int
    store: str
    call: str
    tenant: str
    session: str
    user: str
    agent: str
    args: dict[str, Any]
    depth: int
    priority: int
    deadline_ms: int
    settled: bool
    metadata: dict[str, str]

    @property
    def child(self) -> str:
        """Return the id of the session that works for it."""
        return ids.child_session(self.tenant, self.session, self.call)

    def job(self, shards: int) -> str:
        """Return the id of that session's job in a deployment of so many shards."""
        shard = ids.shard_of(ids.session_key(self.tenant, self.child), shards)
        return ids.keyed_job_id(shard, self.tenant, self.child, self.call)


async def read_child_call(shard: Shard, store: str, call: str) -> ChildCall | None:
    """Return a call of kind child, or None when its row is gone. It asks what people approved, where they changed what it asks.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading(f"call {call}"):
        async with shard.redis.pipeline(transaction=False) as pipe:
            pipe.hmget(shard.keys.calls(store), call, f"{call}:d")
            pipe.hmget(shard.keys.head(ids.store_session(store)), "tn", "id", "us", "dp", "pr", "tu", "jb")
            (raw, decided), (tenant, session, user, depth, priority, turn, jobs) = await pipe.execute()
        if raw is None or tenant is None:
            return None
        row: dict[str, Any] = orjson.loads(raw)
        told = text(jobs).split(",") if jobs and text(turn) == row["t"] else row.get("j")
        said, metadata = await _said(shard, store, int(row["q"]), told[-1] if told else "")
        edited: dict[str, Any] | None = orjson.loads(decided).get("input") if decided else None
    return ChildCall(
        shard=shard.n,
        store=store,
        call=call,
        tenant=text(tenant),
        session=text(session),
        user=str(row.get("us") or text(user)),
        agent=str(said.get("name", "")),
        args=edited if edited is not None else said.get("args") or {},
        depth=int(depth or 0),
        priority=int(priority or 0),
        deadline_ms=int(row.get("dl") or 0),
        settled="o" in row,
        metadata=metadata,
    )


async def _said(shard: Shard, store: str, seq: int, job: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what a call's record says, and the metadata of a job."""
    async with shard.redis.pipeline(transaction=False) as pipe:
        pipe.execute_command("XRANGE", shard.keys.log(store), f"{seq}-0", f"{seq}-0")
        pipe.hget(shard.keys.job(job), "me")
        found, metadata = await pipe.execute()
    said: dict[str, Any] = orjson.loads(found[0][1].get(b"b", b"{}")) if found else {}
    return said, orjson.loads(metadata) if metadata else {}


async def start_child(yard: Yard, asked: ChildCall, manifest: Manifest | None, *, now_ms: int, most_deep: int = children.MOST_DEEP) -> None:
    """Start the session that works for a call, once; a call that cannot have one gets an error instead.

    `manifest` is that of the agent asked for, None when nobody ever published it. `now_ms` is the server's time: the child may take
    as long as its call may wait.

    Raises:
        StoreUnavailable: nothing is known to have started; start it again.
    """
    refusal = _refusal(asked, manifest, most_deep)
    body = None
    if refusal is None:
        try:
            body = message_body(children.child_input(asked.args))
        except InvalidInput as error:
            refusal = str(error)
    if manifest is None or body is None:
        await _settle(yard, asked.shard, asked.store, asked.call, outcome="error", body=children.no_child(str(refusal)))
        return
    accepted = await accept_message(yard, _message(yard, asked, manifest, body, left_ms=asked.deadline_ms - now_ms))
    if accepted.code == "duplicate" and accepted.entry in TERMINAL:
        # Its end may have been told to a server that lost it.
        await tell_parent(yard, asked.job(len(yard.shards)), tenant=asked.tenant, parent=_parent(asked))
    elif accepted.code == "accepted":
        await _stop_if_late(yard, asked)
    elif accepted.code != "duplicate":
        await _settle(yard, asked.shard, asked.store, asked.call, outcome="error", body=children.no_child(accepted.code))


def _refusal(asked: ChildCall, manifest: Manifest | None, most_deep: int) -> str | None:
    if manifest is None:
        return f"no worker has ever published the agent {asked.agent!r}"
    if asked.depth >= most_deep:
        return children.too_deep(most_deep)
    return None


def _message(yard: Yard, asked: ChildCall, manifest: Manifest, body: dict[str, Any], *, left_ms: int) -> UserMessage:
    return UserMessage(
        tenant=asked.tenant,
        session=asked.child,
        agent=asked.agent,
        body=body | ({"metadata": asked.metadata} if asked.metadata else {}),
        job=asked.job(len(yard.shards)),
        body_hash=ids.body_hash(asked.call.encode()),
        priority=asked.priority,
        user=asked.user,
        platform=PLATFORM,
        delivery=asked.call,
        pool=manifest.pool,
        timeout_ms=max(1, left_ms),
        parent=_parent(asked),
        depth=asked.depth + 1,
        metadata=asked.metadata,
    )


def _parent(asked: ChildCall) -> str:
    return ids.child_parent(asked.shard, asked.store, asked.call)


async def _stop_if_late(yard: Yard, asked: ChildCall) -> None:
    """Stop a child whose call got its outcome while the child was started: no cancel that came before could find it."""
    home = yard.shards[asked.shard]
    now = await read_child_call(home, asked.store, asked.call)
    if now is None or now.settled:
        await cancel_job(yard, asked.job(len(yard.shards)), tenant=asked.tenant, cause="superseded", cascade=True)


async def stop_child(yard: Yard, asked: ChildCall, *, cause: Cause) -> None:
    """Cancel the session that works for a call, and those that work for its calls.

    Raises:
        StoreUnavailable: ask again; what was cancelled stays so.
    """
    await cancel_job(yard, asked.job(len(yard.shards)), tenant=asked.tenant, cause=cause, cascade=True)


Bounded = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any]]]


async def tell_parent(yard: Yard, job: str, *, tenant: str, parent: str, bounded: Bounded | None = None) -> None:
    """Give a call its outcome: what the job that worked for it came to. The first outcome stands.

    `bounded` makes of (tenant, call, body) the body that the row is to hold; None: as it is.

    Raises:
        StoreUnavailable: nothing is known to have been told; tell it again.
    """
    found = await read_job(yard, job, tenant=tenant)
    if found is None or not found.done:
        return
    shard, store, call = ids.read_child_parent(parent)
    outcome, body = outcome_of(found)
    body = body if bounded is None else await bounded(tenant, call, body)
    await _settle(yard, shard, store, call, outcome=outcome, body=body)


async def _settle(yard: Yard, shard: int, store: str, call: str, *, outcome: str, body: dict[str, Any]) -> None:
    await accept_outcome(yard, shard=shard, store=store, call=call, outcome=outcome, body=body, secret_hash=None, by="child")


def outcome_of(job: Job) -> tuple[str, dict[str, Any]]:
    """Return the outcome and the result body that a child's job means for the call it worked for."""
    facts: dict[str, Any] = {"session": job.session, "job": job.id, "usage": job.usage}
    if job.state == "succeeded":
        said = job.output or {"text": "", "output": ""}
        return children.answered(said["text"], said["output"], facts)
    if job.state == "cancelled":
        return children.cancelled(job.agent, job.cause or "user", job.partial, facts)
    return children.failed(job.agent, job.error or {}, job.partial, facts)
