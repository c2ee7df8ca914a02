"""The JSON objects of the API, field for field.

A field that has no value is null, never missing. Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SessionState = Literal["idle", "ready", "running", "parked"]


class Shape(BaseModel):
    """An object that the API sends."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_serialization_defaults_required=True)


class JobLinks(Shape):
    """Where to go on from a job."""

    self: str
    events: str
    cancel: str
    session: str


class ApprovalBrief(Shape):
    """Who may decide what a parked call asks, and until when; empty `approvers`: whoever may use the API."""

    id: str
    approvers: list[str] = Field(default_factory=list[str])
    reason: str | None = None
    expires_at: str | None = None


class ProgressShape(Shape):
    """What the task of a call last said of it, `at` that moment; `fraction` runs from 0 to 1."""

    fraction: float | None = None
    note: str | None = None
    at: str | None = None


class WaitingFor(Shape):
    """A parked call that holds a job. `approval` is set where people decide it."""

    call: str
    tool: str | None = None
    kind: str | None = None
    wait: bool | None = None
    since: str | None = None
    expires_at: str | None = None
    approval: ApprovalBrief | None = None
    progress: ProgressShape | None = None


class Usage(Shape):
    """What a job has used so far."""

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: dict[str, str] | None = None
    paid_retries: int = 0


class JobErrorShape(Shape):
    """Why a job failed."""

    code: str
    message: str
    retryable: bool = False
    ref: str | None = None


class QueueShape(Shape):
    """Where an unfinished job stands; `position` counts unread messages of its session, its own included."""

    position: int | None = None
    reason: str | None = None


class JobShape(Shape):
    """A job: one accepted message and its answer."""

    id: str
    object: Literal["job"] = "job"
    state: Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
    agent: str
    agent_version: str | None = None
    session: str
    turn: str | None = None
    user: str | None = None
    input: list[dict[str, Any]]
    output: Any = None
    text: str | None = None
    error: JobErrorShape | None = None
    stop_reason: str | None = None
    mode: str
    complete_when: str
    merged_into: str | None = None
    waiting_for: list[WaitingFor] = Field(default_factory=list[WaitingFor])
    usage: Usage = Usage()
    attempts: int | None = None
    cancel_requested: bool = False
    queue: QueueShape = QueueShape()
    priority: int = 0
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    trace_id: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    expires_at: str | None = None
    links: JobLinks


class ParkedShape(Shape):
    """A parked call of a session. `wait` tells that its turn goes on only after it."""

    call: str
    tool: str | None = None
    kind: str | None = None
    wait: bool | None = None
    since: str | None = None
    expires_at: str | None = None
    approval: ApprovalBrief | None = None
    progress: ProgressShape | None = None


class ApprovalLinks(Shape):
    """Where to go on from an approval: a decision is posted to `self`."""

    self: str
    session: str


class DecidedShape(Shape):
    """What was decided: by whom, when, and for how long. `input` are arguments in place of the model's."""

    by: str | None = None
    at: str | None = None
    scope: Literal["once", "session"] | None = None
    reason: str | None = None
    input: dict[str, Any] | None = None
    answer: str | list[str] | None = None


class ApprovalShape(Shape):
    """A call that people decide, or a question that they answer.

    `user` is who asked the agent. With `superseded_by` asker only a newer message of that user takes its place, with
    anyone anybody's does. `remember` tells that it may be allowed for the whole session.
    """

    id: str
    object: Literal["approval"] = "approval"
    kind: Literal["allow_deny", "question"]
    state: Literal["pending", "allowed", "denied", "answered", "timeout", "superseded", "cancelled"]
    session: str
    agent: str | None = None
    user: str | None = None
    turn: str | None = None
    call: str
    tool: str | None = None
    args: Any = None
    reason: str | None = None
    approvers: list[str] = Field(default_factory=list[str])
    self_approve: bool = True
    superseded_by: Literal["asker", "anyone"] = "asker"
    remember: Literal["session"] | None = None
    options: list[str] = Field(default_factory=list[str])
    multi_select: bool = False
    created_at: str | None = None
    expires_at: str | None = None
    decided: DecidedShape | None = None
    links: ApprovalLinks


class SessionLinks(Shape):
    """Where to go on from a session."""

    explain: str


class SessionShape(Shape):
    """A conversation as its head says."""

    id: str
    object: Literal["session"] = "session"
    state: SessionState
    agent: str | None = None
    store: str
    user: str | None = None
    platform: str | None = None
    title: str | None = None
    entries: int
    last_seq: int
    inbox: int
    turn: str | None = None
    step: int | None = None
    holder: str | None = None
    parked: list[ParkedShape] = Field(default_factory=list[ParkedShape])
    usage: dict[str, int] = Field(default_factory=dict[str, int])
    context: dict[str, int] | None = None
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    paused: bool = False
    created_at: str | None = None
    updated_at: str | None = None
    links: SessionLinks


class EntryShape(Shape):
    """One entry of a session's log: what a model may see."""

    seq: int
    object: Literal["entry"] = "entry"
    type: str
    turn: str | None = None
    step: int | None = None
    jobs: list[str] = Field(default_factory=list[str])
    call: str | None = None
    outcome: str | None = None
    aside: bool = False
    late: bool = False
    at: str | None = None
    body: dict[str, Any] = Field(default_factory=dict[str, Any])


class AlsoShape(Shape):
    """What else is to be said of a session."""

    code: str
    detail: str | None = None
    fix: str | None = None
    holder: dict[str, Any] | None = None
    age_ms: int | None = None
    facts: dict[str, Any] = Field(default_factory=dict[str, Any])


class ExplainShape(Shape):
    """Why a session does not move, and what to do about it. `holder` is who or what it waits for, `age_ms` how long already."""

    session: str
    object: Literal["explanation"] = "explanation"
    code: str
    detail: str | None = None
    fix: str | None = None
    holder: dict[str, Any] | None = None
    age_ms: int | None = None
    facts: dict[str, Any] = Field(default_factory=dict[str, Any])
    also: list[AlsoShape] = Field(default_factory=list[AlsoShape])


class DeadLetterShape(Shape):
    """Something that could not be handled. `came` is the event as far as it was kept, without what anybody wrote."""

    id: str
    object: Literal["dead_letter"] = "dead_letter"
    reason: str
    fix: str
    at: str | None = None
    session: str | None = None
    job: str | None = None
    turn: str | None = None
    agent: str | None = None
    call: str | None = None
    kind: str | None = None
    came: dict[str, str] = Field(default_factory=dict[str, str])


class Page(Shape):
    """A list. `next` is the cursor of the next page, null on the last one."""

    object: Literal["list"] = "list"
    data: list[Any]
    next: str | None = None
