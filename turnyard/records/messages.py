"""What comes in at the door: message events, and what the door answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Mode = Literal["steer", "follow_up", "collect", "interrupt", "rollback", "reject"]
CompleteWhen = Literal["settled", "turn"]
Cause = Literal["user", "deadline", "superseded", "budget"]
AcceptCode = Literal["accepted", "duplicate", "mismatch", "busy", "inbox_full", "quota", "late", "gone", "denied", "conflict", "expired"]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message for a session, as a platform or a client accepted it.

    `session` is the effective id as its owner writes it. `job` is the id its answer will have; the same id twice is
    the same message (first answer stands). `body` is the log body: {"text"} or {"parts"}, plus "metadata".
    `delay_ms` keeps it in `next` until then; `window_ms` and `window_max_ms` shape a collect window.
    `body_hash` is compared when the same job id comes again; another hash is a mismatch.
    `timeout_ms` is how long the job may take from now on, waiting included; None for no bound.
    `parent` names the call of another session that this job answers, as `child_parent` spells it; `depth` is how many
    calls of that kind lie above a session that the message opens, 0 for one that nobody's call opened.
    `lanes` are the out lanes that are to tell of the job's end, however it comes.
    `notify` is the channel on which the end of the job is announced, None when nobody waits.
    """

    tenant: str
    session: str
    agent: str
    body: dict[str, Any]
    job: str
    body_hash: str
    mode: Mode = "steer"
    complete_when: CompleteWhen = "settled"
    priority: int = 0
    user: str = ""
    platform: str = "http"
    delivery: str = ""
    pool: str = "default"
    delay_ms: int = 0
    window_ms: int = 1500
    window_max_ms: int = 10_000
    timeout_ms: int | None = None
    parent: str | None = None
    depth: int = 0
    lanes: tuple[str, ...] = ()
    asker: bool = True
    notify: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the door answered. `position` counts accepted and unclaimed items of the session, this one included."""

    code: AcceptCode
    job: str | None = None
    session: str | None = None
    position: int | None = None
    entry: str | None = None
