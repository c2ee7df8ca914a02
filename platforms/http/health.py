"""Whether this process is alive, and whether it can take work."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from fastapi.responses import Response

from turnyard.errors import StoreUnavailable

from .desk import At
from .replies import reply

router = APIRouter(tags=["health"])

_READY_WAIT_S = 2.0


@router.get("/healthz", response_model=None)
async def healthz() -> Response:
    """Say that the process answers."""
    return reply({"status": "ok"})


@router.get("/readyz", response_model=None)
async def readyz(desk: At) -> Response:
    """Say that the store answers and the process is not about to end."""
    if desk.closing.is_set():
        raise StoreUnavailable("this process is about to end")
    try:
        async with asyncio.timeout(_READY_WAIT_S):
            await desk.edge.ping()
    except TimeoutError:
        raise StoreUnavailable(f"the server did not answer within {_READY_WAIT_S:g} s") from None
    return reply({"status": "ready"})
