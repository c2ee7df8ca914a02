"""What every route is given: the store, the options, the clock, and who is asking."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, Request

from turnyard.errors import Overloaded
from turnyard.ports import Blobs, Clock
from turnyard.records.input import check_id
from turnyard.wire.edge import Edge

from .body import read_body, read_json
from .options import HttpOptions
from .strangers import Strangers

OPEN_TENANT = "default"


@dataclass(slots=True)
class Desk:
    """One process's view of everything. `closing` is set when open streams must end; `blobs` None: no files are kept here."""

    edge: Edge
    clock: Clock
    options: HttpOptions
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0
    blobs: Blobs | None = None
    strangers: Strangers = field(init=False)

    def __post_init__(self) -> None:
        burst, per_minute = self.options.wrong_tokens, self.options.wrong_tokens_per_minute
        self.strangers = Strangers(self.clock, burst=burst, per_minute=per_minute)

    @contextmanager
    def stream(self) -> Generator[None]:
        """Count a stream for as long as the block runs.

        Raises:
            Overloaded: as many are open as may be.
        """
        if self.streams >= self.options.max_streams:
            raise Overloaded
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    async def json(self, request: Request) -> Any:
        """Return a request's JSON body, bounded and clean."""
        return await read_json(request, limit_bytes=self.options.message_bytes, timeout_s=self.options.body_timeout_s)

    async def optional_json(self, request: Request) -> Any:
        """Return a request's JSON body, {} when it has none."""
        if "content-type" not in request.headers and request.headers.get("content-length", "0") == "0":
            return {}
        return await self.json(request)

    async def raw(self, request: Request) -> bytes:
        """Return a request's body, bounded."""
        return await read_body(request, limit_bytes=self.options.message_bytes, timeout_s=self.options.body_timeout_s)


# Dependencies are coroutines: FastAPI would send plain functions through a thread, once per request each.


async def desk_of(request: Request) -> Desk:
    """Return the desk of the app that serves the request."""
    return request.app.state.desk


async def tenant_of() -> str:
    """Return whose request it is. It never comes from a body, a path or a query; without keys there is one tenant."""
    return OPEN_TENANT


async def session_of(session: str) -> str:
    """Return the session that a path names, as its owner writes it."""
    return check_id(unquote(session), pointer="/session")


At = Annotated[Desk, Depends(desk_of)]
Tenant = Annotated[str, Depends(tenant_of)]
SessionId = Annotated[str, Depends(session_of)]
