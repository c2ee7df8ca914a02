"""Messages of a session over HTTP: send one, send a notice, read what was said."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from turnyard import errors
from turnyard.errors import InvalidInput
from turnyard.records import ids, log
from turnyard.records.input import check_id, notice_body
from turnyard.records.log import LogRecord
from turnyard.wire.listing import read_cursor
from turnyard.wire.shapes import JobShape
from turnyard.wire.submit import Submission, raise_refusal
from turnyard.wire.views import input_parts, rfc3339

from .body import validate
from .desk import At, Desk, SessionId, Tenant
from .jobs import answer_submit
from .replies import event_id, page, read_key, read_wait, reply
from .requests import MessageRequest, NoticeRequest, body_of
from .sessions import find

router = APIRouter(prefix="/v1/sessions/{session}/messages", tags=["messages"])


@router.post("", status_code=202, openapi_extra=body_of(MessageRequest, NoticeRequest), response_model=JobShape)
async def send_message(session: SessionId, request: Request, desk: At, tenant: Tenant) -> Response:
    """Send a message into a session, or a notice with `kind: notice`."""
    wait_s, key = read_wait(request), read_key(request)
    raw = await desk.json(request)
    if isinstance(raw, dict) and raw.get("kind") == "notice":  # pyright: ignore[reportUnknownMemberType]
        return await _notice(desk, session, validate(NoticeRequest, raw), tenant=tenant, key=key)
    body = validate(MessageRequest, raw)
    submission = Submission(
        agent=await _agent(desk, session, body.agent, tenant=tenant),
        input=body.input,
        session=session,
        key=key,
        user=body.user,
        mode=body.mode,
        complete_when=body.complete_when,
        priority=body.priority,
        delay_s=body.start_after,
        timeout_s=body.timeout_s,
        metadata=body.metadata,
        role=body.role,
    )
    return await answer_submit(desk, submission, tenant=tenant, wait_s=wait_s)


async def _agent(desk: Desk, session: str, named: str | None, *, tenant: str) -> str:
    if named is not None:
        return named
    return (await find(desk, session, tenant=tenant)).agent


async def _notice(desk: Desk, session: str, body: NoticeRequest, *, tenant: str, key: str | None) -> Response:
    agent = check_id(await _agent(desk, session, body.agent, tenant=tenant), pointer="/agent")
    manifest = await desk.edge.manifest(agent)
    if manifest is None:
        raise errors.UnknownAgent
    raise_refusal(
        await desk.edge.accept_notice(
            tenant=tenant,
            session=session,
            agent=agent,
            pool=manifest.pool,
            group=check_id(body.group, pointer="/group"),
            key=check_id(body.key, pointer="/key"),
            body=_notice_body(body),
            event=event_id("notice", tenant, session, key),
            clear=body.clear,
            supersede=body.supersede,
            ttl_ms=None if body.ttl_s is None else int(body.ttl_s * 1000),
        )
    )
    return reply({"object": "notice", "session": session, "group": body.group, "key": body.key, "clear": body.clear}, status=202)


def _notice_body(body: NoticeRequest) -> dict[str, Any]:
    if body.clear:
        if body.input is not None:
            raise InvalidInput("a notice is either cleared or replaced: leave out input or clear", pointer="/input")
        return {}
    said = notice_body(body.input or "", tag=body.tag, origin=body.origin, metadata=body.metadata)
    return said | {"group": body.group, "key": body.key}


@router.get("", response_model=None)
async def get_messages(
    session: SessionId,
    desk: At,
    tenant: Tenant,
    after: Annotated[str | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Return what users and the agent said in a session's present history, oldest first."""
    view = await find(desk, session, tenant=tenant)
    records = await desk.edge.read_log(ids.session_key(tenant, session), view.ordinal, after=read_cursor(after) or 0, limit=limit)
    behind = str(records[-1].seq) if len(records) == limit else None
    return page([_said(record) for record in records if record.type in (log.USER, log.ASSISTANT)], after=behind)


def _said(record: LogRecord) -> dict[str, Any]:
    role = str(record.body.get("role") or "user") if record.type == log.USER else "assistant"
    return {
        "object": "message",
        "seq": record.seq,
        "role": role,
        "content": input_parts(record.body),
        "user": record.body.get("user"),
        "turn": record.turn or None,
        "job": record.jobs[0] if record.jobs else None,
        "at": rfc3339(record.at_ms),
    }
