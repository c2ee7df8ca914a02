"""The one door in: what a platform, a client, a callback or a lifted task may say to a session.

Every function is one call of `accept` and may be made again after StoreUnavailable: the second one answers
`duplicate` with the first answer.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Literal

import orjson

from turnyard.records.ids import job_shard, session_key, store_session
from turnyard.records.messages import Accepted, Cause, UserMessage
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.state.yard import Shard, Yard

Control = Literal["cancel", "new", "pause", "resume"]
INBOX_CAP = 100
_BUCKETS = 4096


def _bucket(event: str) -> int:
    return zlib.crc32(event.encode("utf-8", "surrogatepass")) % _BUCKETS


def _accepted(reply: list[Any], **known: str) -> Accepted:
    code = text(reply[0])
    position = int(reply[1]) if len(reply) > 1 and reply[1] not in (None, b"") else None
    return Accepted(code=code, position=position, entry=text(reply[2]) if len(reply) > 2 else None, **known)  # pyright: ignore[reportArgumentType]


def _flat(fields: dict[str, str | int]) -> list[str | int]:
    out: list[str | int] = [len(fields)]
    for name, value in fields.items():
        out += [name, value]
    return out


async def accept_message(yard: Yard, message: UserMessage, *, inbox_cap: int = INBOX_CAP) -> Accepted:
    """Make a user message durable and queue it for its session.

    Codes: accepted; duplicate (this job id is known, `entry` is its state); mismatch (known with another body);
    busy (mode reject and the session is not idle); inbox_full (the session has `inbox_cap` unclaimed messages).

    Raises:
        StoreUnavailable: nothing is known to be accepted; send it again with the same job id.
    """
    sid = session_key(message.tenant, message.session)
    fields: dict[str, str | int] = {
        "id": message.session,
        "tn": message.tenant,
        "ag": message.agent,
        "po": message.pool,
        "us": message.user,
        "pf": message.platform,
        "dl": message.delivery,
        "md": message.mode,
        "cw": message.complete_when,
        "pr": message.priority,
        "as": 1 if message.asker else 0,
        "bh": message.body_hash,
        "nf": message.notify or "",
        "me": orjson.dumps(message.metadata).decode() if message.metadata else "",
        "dy": message.delay_ms,
        "wn": message.window_ms,
        "wx": message.window_max_ms,
        **({"to": message.timeout_ms} if message.timeout_ms is not None else {}),
        **({"pa": message.parent} if message.parent is not None else {}),
        **({"dp": message.depth} if message.depth else {}),
        **({"ln": ",".join(message.lanes)} if message.lanes else {}),
    }
    args = ["user", sid, message.job, *_flat(fields), orjson.dumps(message.body), inbox_cap]
    return _accepted(await yard.shard_for(sid).run("accept", *args, oom=False, durable=True), job=message.job, session=message.session)


async def accept_notice(
    yard: Yard,
    *,
    tenant: str,
    session: str,
    agent: str,
    group: str,
    key: str,
    body: dict[str, Any],
    event: str,
    clear: bool = False,
    supersede: bool = True,
    ttl_ms: int | None = None,
    pool: str = "default",
    platform: str = "http",
) -> Accepted:
    """Leave a notice for the session's next model call; it wakes nobody. `event` is known for a day.

    A newer notice of the same (group, key) replaces one that was not shown yet, unless it is not to `supersede`; `clear`
    removes it, shown or not. `ttl_ms` is how long it matters, by the server's clock; None: until it is cleared.
    Codes: accepted; duplicate; inbox_full (hundreds of items wait for the session's next turn already).
    """
    sid = session_key(tenant, session)
    fields: dict[str, str | int] = {"id": session, "tn": tenant, "ag": agent, "po": pool, "pf": platform}
    fields |= {} if supersede else {"be": 1}
    fields |= {} if ttl_ms is None else {"tt": ttl_ms}
    args = ["notice", sid, event, _bucket(event), *_flat(fields), orjson.dumps(body), group, key, 1 if clear else 0]
    return _accepted(await yard.shard_for(sid).run("accept", *args, oom=False, durable=True), session=session)


async def accept_context(
    yard: Yard,
    *,
    tenant: str,
    session: str,
    agent: str,
    body: dict[str, Any],
    event: str,
    wake: bool = False,
    pool: str = "default",
    platform: str = "http",
) -> Accepted:
    """Add context that the session's next model call sees; it starts a turn only with `wake`. `event` is known for a day.

    Codes: accepted; duplicate; inbox_full (hundreds of items wait for the session's next turn already).
    """
    sid = session_key(tenant, session)
    fields: dict[str, str | int] = {"id": session, "tn": tenant, "ag": agent, "po": pool, "pf": platform, "be": 1}
    fields |= {"wk": 1} if wake else {}
    args = ["notice", sid, event, _bucket(event), *_flat(fields), orjson.dumps(body), "", "", 0]
    return _accepted(await yard.shard_for(sid).run("accept", *args, oom=False, durable=True), session=session)


async def accept_control(
    yard: Yard,
    *,
    tenant: str,
    session: str,
    control: Control,
    event: str,
    turn: str | None = None,
    cause: Cause = "user",
    everything: bool = False,
    cascade: bool = False,
) -> Accepted:
    """Cancel the session's open turn, begin a new history, pause or resume it. Never refused by limits.

    `turn` names the turn that cancel is meant for; None is the open one. With `everything` the messages that wait are
    cancelled, too, whether a turn is open or not; with `cascade` the sessions that the turn's calls started.
    Codes: accepted; duplicate; late (nothing to cancel); gone (no such session).
    """
    sid = session_key(tenant, session)
    how = _flat({"ca": cause, "all": int(everything), "cs": int(cascade)})
    args = ["control", sid, control, event, _bucket(event), turn or "", *how]
    return _accepted(await yard.shard_for(sid).run("accept", *args), session=session)


async def cancel_job(yard: Yard, job: str, *, tenant: str, cause: Cause = "user", cascade: bool = False) -> Accepted:
    """Ask for a job's end. A job that no turn has taken has ended when this returns, and never starts.

    Codes: accepted; duplicate (a cancel ended it before a turn took it); late (it has ended, `entry` is how); gone (no such job, or
    not the tenant's).
    """
    shard = _shard_of_job(yard, job)
    if shard is None:
        return Accepted(code="gone", job=job)
    with reading(f"job {job}"):
        owner = await shard.redis.hget(shard.keys.job(job), "tn")
    if text(owner) != tenant:
        return Accepted(code="gone", job=job)
    return _accepted(await shard.run("accept", "job", job, cause, int(cascade), durable=True), job=job)


def _shard_of_job(yard: Yard, job: str) -> Shard | None:
    n = job_shard(job)
    return None if n is None else yard.shard(n)


async def accept_outcome(
    yard: Yard,
    *,
    shard: int,
    store: str,
    call: str,
    outcome: str,
    body: dict[str, Any],
    secret_hash: str | None,
    owner: str | None = None,
    task: str | None = None,
    by: str = "",
    reason: str = "",
    grant: str = "",
) -> Accepted:
    """Settle a parked call from outside, or decide an approval ("allow", "deny"). The first answer wins.

    A callback proves itself by `secret_hash`, a lifted task by being the row's own (owner, task). `body` is a result
    body; of an "allow" what was decided, which the worker that runs the call gets. `by` and `reason` are told to who follows.
    `grant` is what the session may do from now on without being asked ("": nothing more). "raw" is what came to a callback's URL
    as it came: the result, unless the call's tool reads such answers; then up to 16 wait for it, in order. "later" is
    `calls.put_off`. Codes: accepted; duplicate (the same body again); conflict (another body, `entry` is what stands); gone (no row
    or wrong secret, and so a week after the deadline: docs/adr/0007; or nobody was asked yet); expired (a decision, or an answer to
    be read, after the deadline); inbox_full (16 answers wait to be read).
    """
    home = yard.shard(shard)
    sid, _, ordinal = store.partition(".")
    if home is None or sid != store_session(store) or not ordinal.isdigit():
        return Accepted(code="gone")
    args = ["outcome", sid, ordinal, call, outcome, orjson.dumps(body), secret_hash or "", owner or "", task or "", by]
    args += [reason, grant] if reason or grant else []
    return _accepted(await home.run("accept", *args, durable=True))


async def say(yard: Yard, tenant: str, session: str, text: str, *, event: str, turn: str = "", call: str = "") -> Accepted:
    """Tell those who follow a session something that is no part of the model's answer: one event `message/sent` in its log.

    `event` is known for a day. Codes: accepted; duplicate; gone (no such session).

    Raises:
        StoreUnavailable: it is not known whether it was said; say it again with the same `event`.
    """
    sid = session_key(tenant, session)
    what = _flat({"c": call, "b": orjson.dumps({"text": text, "call": call or None}).decode()})
    args = ["control", sid, "say", event, _bucket(event), turn, *what]
    return _accepted(await yard.shard_for(sid).run("accept", *args, durable=True), session=session)


async def follow(yard: Yard, session: str, seconds: float) -> None:
    """Ask workers to write deltas of a session (its key part) for that many seconds from now."""
    await yard.shard_for(session).run("accept", "follow", session, int(seconds * 1000))
