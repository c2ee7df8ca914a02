"""How events reach a reader over HTTP.

A reader that does not keep up holds nothing back and costs no more than bounded buffers: when it lags too far behind,
it is told so and dropped, and it comes back with the id of the last event it has. One that takes nothing at all is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import orjson
from starlette.responses import Response

from turnyard.errors import InvalidRequest, TurnyardError
from turnyard.records.sse import format_event
from turnyard.wire.events import FeedEvent

from .desk import Desk
from .problems import problem_body

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger("turnyard.http")

RETRY_MS = 2_000
_BATCH = 64
# A reader that takes nothing for so long is gone, whatever its connection says.
_STUCK_S = 30.0
_ALWAYS = frozenset({"hello", "gap", "error"})
_MAX_TYPES = 40

Wanted = Callable[[str], bool]


def read_types(text: str | None) -> Wanted:
    """Return which events a reader wants: names with commas between them, `*` for any rest of a name."""
    if not text:
        return lambda _: True
    patterns = [part.strip() for part in text.split(",") if part.strip()]
    if len(patterns) > _MAX_TYPES or any(len(p) > _MAX_TYPES or "[" in p for p in patterns):
        raise InvalidRequest("types is a short list of event names, such as message/*,job", pointer="/types")
    return lambda name: name in _ALWAYS or any(fnmatchcase(name, pattern) for pattern in patterns)


class EventStream(Response):
    """A response that stays open and tells events as they come.

    Make it with `open_stream`, which waits for the first event: what is wrong shows before the status is sent.
    """

    media_type = "text/event-stream"

    def __init__(self, desk: Desk, first: FeedEvent, rest: AsyncGenerator[FeedEvent], wanted: Wanted) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._desk = desk
        self._first = first
        self._rest = rest
        self._wanted = wanted
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(desk.options.stream_buffer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end, the reader goes away, or the process closes."""
        ref = str(scope.get("state", {}).get("request_id", ""))
        async with contextlib.aclosing(self._rest):
            with self._desk.stream():
                await self._serve(ref, receive, send)

    async def _serve(self, ref: str, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        pump = asyncio.create_task(self._pump(ref))
        over = asyncio.create_task(self._over(receive))
        try:
            await self._send(send, over)
        except TimeoutError:
            log.info("stream dropped", extra={"ref": ref, "reason": "its reader takes nothing"})
        finally:
            pump.cancel()
            over.cancel()
            await asyncio.gather(pump, over, return_exceptions=True)

    async def _pump(self, ref: str) -> None:
        """Move events into the buffer; when it is full, wait, and let the feed drop a follower that lags too far."""
        try:
            await self._queue.put(_format(self._first, retry_ms=RETRY_MS))
            async for event in self._rest:
                if self._wanted(event.event):
                    await self._queue.put(_format(event))
        except TurnyardError as error:
            await self._queue.put(_error(error.code, error.status, str(error), ref))
        except Exception:
            log.exception("stream failed", extra={"ref": ref})
            await self._queue.put(_error("internal", 500, "something broke on our side; come back with the last id", ref))
        await self._queue.put(None)

    async def _over(self, receive: Receive) -> None:
        """Return when the reader is gone or the process closes."""
        gone = asyncio.create_task(_disconnected(receive))
        closing = asyncio.create_task(self._desk.closing.wait())
        try:
            await asyncio.wait({gone, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            closing.cancel()

    async def _send(self, send: Send, over: asyncio.Task[None]) -> None:
        step = asyncio.create_task(self._queue.get())
        try:
            while not over.done():
                await asyncio.wait({step, over}, timeout=self._desk.options.ping_s, return_when=asyncio.FIRST_COMPLETED)
                if over.done():
                    break
                text, last = self._ready(step.result()) if step.done() else (": ping\n\n", False)
                if step.done() and not last:
                    step = asyncio.create_task(self._queue.get())
                async with asyncio.timeout(_STUCK_S):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": not last})
                if last:
                    return
        finally:
            step.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _ready(self, item: str | None) -> tuple[str, bool]:
        """Return this and what else is ready to be sent, and whether it is the end."""
        texts: list[str] = []
        while item is not None:
            texts.append(item)
            if self._queue.empty() or len(texts) >= _BATCH:
                return "".join(texts), False
            item = self._queue.get_nowait()
        return "".join(texts), True


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def open_stream(desk: Desk, events: AsyncGenerator[FeedEvent], wanted: Wanted) -> EventStream:
    """Return the response that tells these events; raises what keeps the first one from coming."""
    first = await anext(events)
    return EventStream(desk, first, events, wanted)


def _format(event: FeedEvent, *, retry_ms: int | None = None) -> str:
    return format_event(event.event, orjson.dumps(event.data).decode(), id=event.id, retry_ms=retry_ms)


def _error(code: str, status: int, detail: str, ref: str) -> str:
    body = problem_body(status=status, code=code, detail=detail, ref=ref)
    envelope = {"type": "error", "session": None, "turn": None, "job": None, "seq": None, "at": None, "data": body}
    return format_event("error", orjson.dumps(envelope).decode())
