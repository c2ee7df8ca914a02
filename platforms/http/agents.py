"""Which agents there are, as their workers published them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from turnyard.errors import UnknownAgent
from turnyard.records.manifest import Manifest
from turnyard.wire.views import rfc3339

from .desk import At
from .replies import page, reply

router = APIRouter(prefix="/v1/agents", tags=["agents"])


@router.get("", response_model=None)
async def get_agents(desk: At) -> Response:
    """List agents by name."""
    return page([_agent(manifest) for _, manifest in sorted((await desk.edge.manifests()).items())])


@router.get("/{agent}", response_model=None)
async def get_agent(agent: str, desk: At) -> Response:
    """Return an agent: its mode, limits, models, tools and schemas."""
    manifest = await desk.edge.manifest(agent)
    if manifest is None:
        raise UnknownAgent
    return reply(_agent(manifest))


def _agent(manifest: Manifest) -> dict[str, Any]:
    return {**asdict(manifest), "object": "agent", "published_at": rfc3339(manifest.published_at)}
