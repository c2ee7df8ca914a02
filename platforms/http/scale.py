"""Who works, and how much there is to do: for operators and autoscalers."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from fastapi.responses import Response

from turnyard.records.input import check_id

from .desk import At
from .replies import page, reply

router = APIRouter(prefix="/v1", tags=["operators"])


@router.get("/workers", response_model=None)
async def get_workers(desk: At) -> Response:
    """List the workers that are alive, a line per child."""
    return page([{"object": "worker", **asdict(worker)} for worker in await desk.edge.workers()])


@router.get("/scale/{pool}", response_model=None)
async def get_scale(pool: str, desk: At) -> Response:
    """Return how many turns a pool has ready and running, and how many it should be able to run."""
    return reply(asdict(await desk.edge.scale(check_id(pool, pointer="/pool"))))
