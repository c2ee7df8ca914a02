"""How a request becomes a message, and what a refusal means.

A job that is submitted with a key has an id made of that key, so that the job row itself remembers the request: a
repeat finds the row, and another body with the same key is seen by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from turnyard import errors
from turnyard.records import ids
from turnyard.records.input import check_id, check_metadata, message_body
from turnyard.records.jobs import Job
from turnyard.records.manifest import Manifest
from turnyard.records.messages import Accepted, CompleteWhen, Mode, UserMessage
from turnyard.wire.edge import Edge

MAX_PRIORITY = 9
MAX_DELAY_S = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Submission:
    """A request for a job, as its sender wrote it. None means: what the agent or the route has as default.

    `role` is one of the agent's own, None the user's. `timeout_s` is how long the job may take once it may start, waiting for its turn included; then it is cancelled.
    """

    agent: str
    input: str | Sequence[Mapping[str, Any]]
    session: str | None = None
    key: str | None = None
    user: str | None = None
    mode: Mode | None = None
    complete_when: CompleteWhen = "settled"
    priority: int = 0
    delay_s: float = 0
    timeout_s: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    platform: str = "http"
    role: str | None = None
    pointer: str = "/input"


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission: the job as it stands, and whether it was there before."""

    job: Job
    position: int | None
    replayed: bool


async def submit(
    edge: Edge, submission: Submission, *, tenant: str, now_ms: int, notify: bool = False, read_back: bool = True
) -> Submitted:
    """Take a job in; the answer is given only once it is durable.

    `notify` has the end of the job announced to this process, for `wait_job`. `now_ms` dates a job that is not read
    back, because nobody asked for that or the store stopped answering right after it accepted.

    Raises:
        UnknownAgent: no worker ever published the agent.
        InvalidInput: a value cannot be taken.
        IdempotencyMismatch: the key was used with another body.
        SessionBusy: the mode is reject and the session is not idle.
        InboxFull, QuotaExceeded: too much waits already.
        StoreUnavailable: nothing is known; the same key makes a repeat safe.
    """
    message = await _message(edge, submission, tenant=tenant, notify=notify)
    accepted = await edge.accept_message(message)
    raise_refusal(accepted)
    replayed = accepted.code == "duplicate"
    if not read_back and not replayed:
        return Submitted(_job_of(message, now_ms), accepted.position, replayed)
    try:
        job = await edge.read_job(message.job, tenant=tenant)
    except errors.StoreUnavailable:
        if replayed:
            raise
        job = None
    return Submitted(job or _job_of(message, now_ms), accepted.position, replayed)


async def _message(edge: Edge, s: Submission, *, tenant: str, notify: bool) -> UserMessage:
    manifest = await edge.manifest(check_id(s.agent, pointer="/agent"))
    if manifest is None:
        raise errors.UnknownAgent(f"no worker has ever published the agent {s.agent!r}: check its name, or start a worker that has it")
    body = message_body(s.input, pointer=s.pointer) | _role(s, manifest)
    metadata = check_metadata(s.metadata)
    session = _session(s, tenant)
    shard = edge.shard_of(ids.session_key(tenant, session))
    job = ids.new_job_id(shard) if s.key is None else ids.keyed_job_id(shard, tenant, session, s.key)
    return UserMessage(
        tenant=tenant,
        session=session,
        agent=s.agent,
        body=body | ({"metadata": metadata} if metadata else {}),
        job=job,
        body_hash=_fingerprint(s, body, metadata),
        mode=s.mode or _mode(manifest.mode),
        complete_when=s.complete_when,
        priority=s.priority,
        user=check_id(s.user, pointer="/user") if s.user is not None else "",
        platform=s.platform,
        pool=manifest.pool,
        delay_ms=int(s.delay_s * 1000),
        timeout_ms=None if s.timeout_s is None else int((s.delay_s + s.timeout_s) * 1000),
        notify=edge.channel if notify else None,
        metadata=metadata,
    )


def _session(s: Submission, tenant: str) -> str:
    if s.session is not None:
        return check_id(s.session, pointer="/session")
    return ids.new_session_id() if s.key is None else ids.keyed_session(tenant, check_id(s.key, pointer="/idempotency_key"))


def _role(s: Submission, manifest: Manifest) -> dict[str, str]:
    if s.role is None or s.role == "user":
        return {}
    if s.role not in manifest.roles:
        known = ", ".join(("user", *manifest.roles))
        raise errors.InvalidInput(f"the agent {s.agent} knows no messages of the role {s.role!r}; it knows {known}", pointer="/role")
    return {"role": s.role}


def _mode(name: str) -> Mode:
    match name:
        case "follow_up" | "collect" | "interrupt" | "rollback" | "reject":
            return name
        case _:
            return "steer"


def _fingerprint(s: Submission, body: dict[str, Any], metadata: dict[str, str]) -> str:
    facts = [s.agent, s.session, body, s.user, s.mode, s.complete_when, s.priority, s.delay_s, metadata]
    if s.timeout_s is not None:
        facts.append(s.timeout_s)
    return ids.body_hash(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS))


def _job_of(message: UserMessage, now_ms: int) -> Job:
    return Job(
        id=message.job,
        state="queued",
        tenant=message.tenant,
        session=message.session,
        session_key=ids.session_key(message.tenant, message.session),
        agent=message.agent,
        user=message.user,
        mode=message.mode,
        complete_when=message.complete_when,
        input=message.body,
        metadata=message.metadata,
        priority=message.priority,
        created_ms=now_ms,
    )


_REFUSALS: dict[str, type[errors.TurnyardError]] = {
    "mismatch": errors.IdempotencyMismatch,
    "busy": errors.SessionBusy,
    "inbox_full": errors.InboxFull,
    "quota": errors.QuotaExceeded,
    "late": errors.AlreadyFinished,
    "gone": errors.NotFound,
    "denied": errors.Conflict,
    "conflict": errors.AlreadyDecided,
    "expired": errors.Expired,
}


def raise_refusal(accepted: Accepted) -> None:
    """Raise what a refusal of the store means to its sender; an accepted or repeated event passes."""
    refusal = _REFUSALS.get(accepted.code)
    if refusal is not None:
        raise refusal()
