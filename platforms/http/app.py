"""The API as one ASGI app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import Response

from . import agents, approvals, calls, dead, files, health, jobs, messages, problems, scale, sessions
from .desk import Desk
from .guard import Guard

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_ROUTERS = (
    health.router,
    jobs.router,
    messages.router,
    sessions.router,
    approvals.router,
    calls.router,
    files.router,
    agents.router,
    scale.router,
    dead.router,
)


def create_api(desk: Desk) -> FastAPI:
    """Return the routes over a desk, without the guard around them."""
    api = FastAPI(title="Turnyard", version="1", openapi_url="/openapi.json", redoc_url=None, redirect_slashes=False)
    api.state.desk = desk
    problems.install(api)

    async def unexpected(request: Request, error: Exception) -> Response:
        return problems.answer(request, error)

    api.add_exception_handler(Exception, unexpected)
    for router in _ROUTERS:
        api.include_router(router)
    return api


def create_app(desk: Desk) -> ASGIApp:
    """Return the whole app, ready to be served."""
    return Guard(create_api(desk), desk.options)
