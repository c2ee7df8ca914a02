"""Approvals and questions over HTTP: what waits for people, and deciding it.

Whose approvals they are comes from the credential, who decides from the body: a platform that knows its people says
which of them it was.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from turnyard.errors import InvalidInput
from turnyard.wire.approvals import Verdict, decide_approval, find_approval, list_approvals
from turnyard.wire.shapes import ApprovalShape
from turnyard.wire.views import approval_shape

from .body import validate
from .desk import At, Tenant
from .replies import page, reply
from .requests import DecideRequest, body_of

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])


@router.get("", response_model=None)
async def get_approvals(
    desk: At,
    tenant: Tenant,
    session: Annotated[str | None, Query()] = None,
    state: Annotated[Literal["pending"], Query()] = "pending",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    after: Annotated[str | None, Query()] = None,
) -> Response:
    """List what waits for people, oldest first; `session` lists one session's."""
    del state  # only what is pending has a list; a decided one is read by its id
    found, behind = await list_approvals(desk.edge, tenant=tenant, session=session, limit=limit, after=after)
    return page([approval_shape(each) for each in found], after=behind)


@router.get("/{approval}", response_model=ApprovalShape)
async def get_approval(approval: str, desk: At, tenant: Tenant) -> Response:
    """Return an approval or a question: what is asked, who may decide, until when, and what was decided."""
    return reply(approval_shape(await find_approval(desk.edge, approval, tenant=tenant)))


@router.post("/{approval}", openapi_extra=body_of(DecideRequest), response_model=ApprovalShape)
async def decide(approval: str, request: Request, desk: At, tenant: Tenant) -> Response:
    """Allow or deny a call, or answer a question. The first decision stands; the same one again is answered with it."""
    body = validate(DecideRequest, await desk.json(request))
    decided, repeated = await decide_approval(desk.edge, approval, _verdict(body), tenant=tenant)
    return reply(approval_shape(decided), headers={"Idempotency-Replayed": "true"} if repeated else None)


def _verdict(body: DecideRequest) -> Verdict:
    decision = body.decision or ("answer" if body.answer is not None else None)
    if decision is None:
        raise InvalidInput("say allow or deny, or give an answer", pointer="/decision")
    if decision != "answer" and body.answer is not None:
        raise InvalidInput("an answer is of a question: leave it out to allow or deny", pointer="/answer")
    return Verdict(decision=decision, user=body.user, scope=body.scope, input=body.input, reason=body.reason, answer=body.answer)
