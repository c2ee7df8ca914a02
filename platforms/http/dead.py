"""Dead letters over HTTP: what could not be handled, and trying it once more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from turnyard.errors import Conflict, NotFound
from turnyard.wire.views import letter_shape

from .desk import At, Tenant
from .replies import page, reply

router = APIRouter(prefix="/v1/dead", tags=["operators"])


@router.get("", response_model=None)
async def get_dead(
    desk: At, tenant: Tenant, limit: Annotated[int, Query(ge=1, le=100)] = 50, before: Annotated[str | None, Query()] = None
) -> Response:
    """List dead letters, newest first."""
    letters = await desk.edge.dead_letters(tenant=tenant, limit=limit, before=before)
    return page([letter_shape(letter) for letter in letters], after=letters[-1].id if len(letters) >= limit else None)


@router.post("/{letter}/retry", response_model=None)
async def retry_dead(letter: str, desk: At, tenant: Tenant) -> Response:
    """Send what came once more: a message becomes a new job. Twice is once; what cannot be taken is refused and kept."""
    decision = await desk.edge.retry_dead(letter, tenant=tenant)
    if decision.code == "gone":
        raise NotFound("no such dead letter: it may have been decided already")
    if not decision.done:
        raise Conflict(decision.why)
    return reply({"object": "dead_letter", "id": letter, "outcome": "retried", "job": decision.job})
