"""Sessions over HTTP: look at, list, follow, explain, cancel, start anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from turnyard.errors import NotFound
from turnyard.records import ids
from turnyard.records.input import check_id
from turnyard.wire.edge import Control
from turnyard.wire.feed_ids import FeedPosition
from turnyard.wire.follow import session_events
from turnyard.wire.listing import read_cursor
from turnyard.wire.shapes import ExplainShape, SessionShape
from turnyard.wire.submit import raise_refusal
from turnyard.wire.views import entry_shape, explain_shape, session_shape

from .body import validate
from .desk import At, Desk, SessionId, Tenant
from .jobs import After, LastEventId, read_after
from .replies import event_id, page, read_key, reply
from .requests import CancelRequest, body_of
from .sse import open_stream, read_types

if TYPE_CHECKING:
    from turnyard.state.sessions import SessionView

NO_SESSION = "no such session: check the id, or send it a message first"

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])


async def find(desk: Desk, session: str, *, tenant: str) -> SessionView:
    """Return a session of the tenant.

    Raises:
        NotFound: there is none; another tenant's looks the same.
    """
    view = await desk.edge.read_session(session, tenant=tenant)
    if view is None:
        raise NotFound(NO_SESSION)
    return view


@router.get("", response_model=None)
async def get_sessions(
    desk: At, tenant: Tenant, limit: Annotated[int, Query(ge=1, le=100)] = 50, before: Annotated[str | None, Query()] = None
) -> Response:
    """List sessions, last used first."""
    views = await desk.edge.list_sessions(tenant=tenant, limit=limit, before=read_cursor(before))
    return page([session_shape(view) for view in views], after=str(views[-1].updated_ms) if len(views) >= limit else None)


@router.get("/{session}", response_model=SessionShape)
async def get_session(session: SessionId, desk: At, tenant: Tenant) -> Response:
    """Return a session."""
    return reply(session_shape(await find(desk, session, tenant=tenant)))


@router.get("/{session}/entries", response_model=None)
async def get_entries(
    session: SessionId,
    desk: At,
    tenant: Tenant,
    after: Annotated[str | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Return what a model may see of a session's present history, oldest first."""
    view = await find(desk, session, tenant=tenant)
    start = read_cursor(after) or 0
    records = await desk.edge.read_log(ids.session_key(tenant, session), view.ordinal, after=start, limit=limit)
    behind = str(records[-1].seq) if len(records) == limit else None
    return page([entry_shape(record) for record in records if record.is_entry], after=behind)


@router.get("/{session}/events", response_model=None)
async def get_events(
    session: SessionId,
    desk: At,
    tenant: Tenant,
    last_event_id: LastEventId = None,
    after: After = None,
    types: Annotated[str | None, Query()] = None,
    deltas: Annotated[bool, Query()] = True,
) -> Response:
    """Follow a session. The ids go on after /new and on any replica: come back with `Last-Event-ID`."""
    position: FeedPosition | None = read_after(last_event_id, after)
    events = session_events(desk.edge, session, tenant=tenant, after=position, deltas=deltas)
    return await open_stream(desk, events, read_types(types))


@router.get("/{session}/explain", response_model=ExplainShape)
async def explain(session: SessionId, desk: At, tenant: Tenant) -> Response:
    """Say why a session does not move, and what to do about it."""
    explanation = await desk.edge.explain(session, tenant=tenant)
    if explanation is None:
        raise NotFound(NO_SESSION)
    return reply(explain_shape(session, explanation))


@router.post("/{session}/cancel", status_code=202, openapi_extra=body_of(CancelRequest, required=False), response_model=None)
async def cancel(session: SessionId, request: Request, desk: At, tenant: Tenant) -> Response:
    """Ask for a session's turn to be cancelled; what waits in its inbox opens the next turn."""
    body = validate(CancelRequest, await desk.optional_json(request))
    view = await find(desk, session, tenant=tenant)
    turn = check_id(body.turn, pointer="/turn") if body.turn is not None else None
    await _control(desk, request, "cancel", session, tenant=tenant, turn=turn, cascade=body.cascade)
    return reply({"object": "session", "id": session, "turn": turn or view.turn or None, "cancel_requested": True}, status=202)


@router.post("/{session}/new", status_code=202, response_model=None)
async def new(session: SessionId, request: Request, desk: At, tenant: Tenant) -> Response:
    """Start a new history for a session; calls that are still out answer into the old one."""
    await find(desk, session, tenant=tenant)
    await _control(desk, request, "new", session, tenant=tenant)
    return reply({"object": "session", "id": session, "new_requested": True}, status=202)


async def _control(desk: Desk, request: Request, control: Control, session: str, *, tenant: str, **how: Any) -> None:
    event = event_id(control, tenant, session, read_key(request))
    raise_refusal(await desk.edge.accept_control(tenant=tenant, session=session, control=control, event=event, **how))
