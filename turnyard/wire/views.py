"""How stored things look to clients.

Pure: a view says only what the row says, and never guesses what it does not know.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from turnyard.records.approvals import Approval
from turnyard.records.jobs import Job
from turnyard.records.log import LogRecord
from turnyard.wire.shapes import (
    AlsoShape,
    ApprovalBrief,
    ApprovalLinks,
    ApprovalShape,
    DeadLetterShape,
    DecidedShape,
    EntryShape,
    ExplainShape,
    JobErrorShape,
    JobLinks,
    JobShape,
    ParkedShape,
    ProgressShape,
    QueueShape,
    SessionLinks,
    SessionShape,
    SessionState,
    Usage,
    WaitingFor,
)

if TYPE_CHECKING:
    from turnyard.state.dead import DeadLetter
    from turnyard.state.explain import Explanation
    from turnyard.state.sessions import ParkedCall, SessionView

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(ms: int | None) -> str | None:
    """Return a time of the server's clock as text; None stays None, and so does 0, which means never."""
    if not ms:
        return None
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def session_path(session: str) -> str:
    """Return the path of a session; its id may hold any printable character."""
    return f"/v1/sessions/{quote(session, safe='')}"


def input_parts(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message's body as the list of its parts."""
    parts = body.get("parts")
    if isinstance(parts, list):
        return cast("list[dict[str, Any]]", parts)
    return [{"type": "text", "text": body.get("text", "")}]


def job_shape(job: Job, *, session: SessionView | None = None, position: int | None = None) -> JobShape:
    """Return a job as clients see it.

    `session` lets a waiting job say what it waits for; `position` is known only right after the accept.
    """
    output = job.output or {}
    return JobShape(
        id=job.id,
        state=job.state,
        agent=job.agent,
        session=job.session,
        turn=job.turn or None,
        user=job.user or None,
        input=input_parts(job.input),
        output=output.get("output"),
        text=output.get("text"),
        error=_job_error(job.error),
        stop_reason=_stop_reason(job),
        mode=job.mode,
        complete_when=job.complete_when,
        merged_into=job.merged_into,
        waiting_for=_waiting_for(job, session),
        usage=Usage.model_validate({name: count for name, count in job.usage.items() if name in Usage.model_fields}),
        cancel_requested=job.cancel_requested,
        queue=QueueShape(position=position, reason=_queue_reason(job, session)),
        priority=job.priority,
        metadata=job.metadata,
        created_at=rfc3339(job.created_ms),
        started_at=rfc3339(job.started_ms),
        finished_at=rfc3339(job.finished_ms),
        links=JobLinks(
            self=f"/v1/jobs/{job.id}",
            events=f"/v1/jobs/{job.id}/events",
            cancel=f"/v1/jobs/{job.id}/cancel",
            session=session_path(job.session),
        ),
    )


def _job_error(error: dict[str, Any] | None) -> JobErrorShape | None:
    if error is None:
        return None
    return JobErrorShape(
        code=str(error.get("code", "internal")),
        message=str(error.get("message", "")),
        retryable=bool(error.get("retryable", False)),
        ref=error.get("ref"),
    )


def _stop_reason(job: Job) -> str | None:
    if job.state == "cancelled":
        return job.cause or "cancelled"
    if job.state == "failed" and job.error:
        return str(job.error.get("code", "internal"))
    return None


def _waiting_for(job: Job, session: SessionView | None) -> list[WaitingFor]:
    if job.state != "waiting" or session is None:
        return []
    return [WaitingFor(**_parked(p)) for p in session.parked]


def _parked(call: ParkedCall) -> dict[str, Any]:
    brief = None
    if call.approval is not None:
        asked = call.request
        brief = ApprovalBrief(
            id=call.approval,
            approvers=list(asked.get("approvers") or ()),
            reason=asked.get("reason") or None,
            expires_at=rfc3339(call.deadline_ms),
        )
    return {
        "call": call.call,
        "tool": call.tool or None,
        "kind": call.kind,
        "wait": call.awaited,
        "since": rfc3339(call.since_ms),
        "expires_at": rfc3339(call.deadline_ms),
        "approval": brief,
        "progress": _progress(call.progress),
    }


def _progress(said: dict[str, Any] | None) -> ProgressShape | None:
    return None if said is None else ProgressShape(fraction=said["fraction"], note=said["note"] or None, at=rfc3339(said["at"]))


def _queue_reason(job: Job, session: SessionView | None) -> str | None:
    if job.state == "waiting":
        return "parked"
    if job.state != "queued" or session is None:
        return None
    return "paused" if session.paused else session.state


def session_shape(view: SessionView) -> SessionShape:
    """Return a session as clients see it. `store` names its history: the id itself, then id:new:1 and so on.

    The head keeps the name of the last holder; only a running turn has one.
    """
    return SessionShape(
        id=view.id,
        state=cast("SessionState", view.state),
        agent=view.agent or None,
        store=f"{view.id}:new:{view.ordinal}" if view.ordinal else view.id,
        user=view.user or None,
        platform=view.platform or None,
        title=view.title or None,
        entries=view.entries,
        last_seq=view.last_seq,
        inbox=view.inbox,
        turn=view.turn or None,
        holder=(view.holder or None) if view.state == "running" else None,
        parked=[ParkedShape(**_parked(p)) for p in view.parked],
        usage=dict(view.usage),
        metadata=dict(view.metadata),
        paused=view.paused,
        created_at=rfc3339(view.created_ms),
        updated_at=rfc3339(view.updated_ms),
        links=SessionLinks(explain=f"{session_path(view.id)}/explain"),
    )


def explain_shape(session: str, explanation: Explanation) -> ExplainShape:
    """Return the answer to "why does it not move?"."""
    return ExplainShape(session=session, also=[AlsoShape(**_said(more)) for more in explanation.also], **_said(explanation))


def _said(explanation: Explanation) -> dict[str, Any]:
    return {
        "code": explanation.code,
        "detail": explanation.detail or None,
        "fix": explanation.fix or None,
        "holder": explanation.holder,
        "age_ms": explanation.age_ms,
        "facts": explanation.facts,
    }


def letter_shape(letter: DeadLetter) -> DeadLetterShape:
    """Return a dead letter as clients see it."""
    return DeadLetterShape(
        id=letter.id,
        reason=letter.reason,
        fix=letter.fix,
        at=rfc3339(letter.at_ms),
        session=letter.session or None,
        job=letter.job or None,
        turn=letter.turn or None,
        agent=letter.agent or None,
        call=letter.call or None,
        kind=letter.kind or None,
        came={**letter.more, **letter.came},
    )


def entry_shape(record: LogRecord) -> EntryShape:
    """Return one entry of a log."""
    return EntryShape(
        seq=record.seq,
        type=record.type,
        turn=record.turn or None,
        step=record.step or None,
        jobs=list(record.jobs),
        call=record.call,
        outcome=record.outcome,
        aside=record.aside,
        late=record.late,
        at=rfc3339(record.at_ms),
        body=record.body,
    )


def approval_path(approval: str) -> str:
    """Return where an approval is read and decided."""
    return f"/v1/approvals/{approval}"


def approval_shape(approval: Approval) -> ApprovalShape:
    """Return an approval or a question as clients see it."""
    return ApprovalShape(
        id=approval.id,
        kind=approval.kind,
        state=approval.state,
        session=approval.session,
        agent=approval.agent or None,
        user=approval.user or None,
        turn=approval.turn or None,
        call=approval.call,
        tool=approval.tool or None,
        args=approval.args,
        reason=approval.reason or None,
        approvers=list(approval.approvers),
        self_approve=approval.self_approve,
        superseded_by=approval.scope,
        remember=approval.remember,
        options=list(approval.options),
        multi_select=approval.multi_select,
        created_at=rfc3339(approval.since_ms),
        expires_at=rfc3339(approval.expires_ms),
        decided=_decided(approval.decided),
        links=ApprovalLinks(self=approval_path(approval.id), session=session_path(approval.session)),
    )


def _decided(decided: dict[str, Any] | None) -> DecidedShape | None:
    if decided is None:
        return None
    return DecidedShape(
        by=decided.get("by") or None,
        at=rfc3339(decided.get("at")),
        scope=decided.get("scope"),
        reason=decided.get("reason") or None,
        input=decided.get("input"),
        answer=decided.get("answer"),
    )
