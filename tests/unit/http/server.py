"""A real HTTP server in the test's own loop, because event streams end only when their reader goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx

from platforms.http.desk import Desk
from platforms.http.options import HttpOptions
from platforms.http.serve import listen, serve_http, url_of
from turnyard.records.sse import Event, SSEParser


@contextlib.asynccontextmanager
async def served(desk: Desk) -> AsyncIterator[str]:
    """Serve a desk on a free port for the length of the block and give its URL."""
    drain = asyncio.Event()
    sock = listen(HttpOptions(port=0))
    task = asyncio.create_task(serve_http(desk, drain, sock))
    try:
        yield url_of(sock)
    finally:
        drain.set()
        await asyncio.wait_for(task, 10)


class Reader:
    """Reads an event stream piece by piece."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._chunks = response.aiter_text()
        self._parser = SSEParser()
        self._ready: list[Event] = []
        self.raw = ""

    async def next(self) -> Event | None:
        """Return the next event, None at the end."""
        while not self._ready:
            try:
                text = await asyncio.wait_for(anext(self._chunks), 10)
            except StopAsyncIteration:
                return None
            self.raw += text
            self._ready = self._parser.feed(text)
        return self._ready.pop(0)

    async def take(self, count: int) -> list[Event]:
        """Return the next `count` events."""
        events = [await self.next() for _ in range(count)]
        return [event for event in events if event is not None]

    async def until(self, name: str) -> list[Event]:
        """Return events up to and with the first of a name, or to the end."""
        found: list[Event] = []
        while (event := await self.next()) is not None:
            found.append(event)
            if event.event == name:
                break
        return found

    async def rest(self) -> list[Event]:
        """Return all events to the end."""
        return await self.until("")


@contextlib.asynccontextmanager
async def reading(url: str, path: str, **headers: str) -> AsyncIterator[Reader]:
    """Open an event stream for the length of the block."""
    async with (
        httpx.AsyncClient(base_url=url, timeout=10) as client,
        client.stream("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()}) as response,
    ):
        yield Reader(response)
