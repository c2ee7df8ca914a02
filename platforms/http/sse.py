"""How events reach a reader over HTTP.

A reader that does not keep up never holds anything back and never costs more than a bounded buffer: when the buffer
is full it is told so and dropped, and it comes back with the id of the last event it has.
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
# A reader that takes nothing for so long, with its buffer full, is gone.
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
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end, the reader goes away, or the process closes."""
        ref = str(scope.get("state", {}).get("request_id", ""))
        async with contextlib.aclosing(self._rest):
            with self._desk.stream():
                await self._serve(ref, receive, send)

    async def _serve(self, ref: str, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        tasks = [asyncio.create_task(self._pump(ref)), asyncio.create_task(self._watch(receive))]
        try:
            await self._send(send)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, ref: str) -> None:
        try:
            self._put(_format(self._first, retry_ms=RETRY_MS))
            async for event in self._rest:
                if not self._wanted(event.event):
                    continue
                if self._queue.qsize() >= self._desk.options.stream_buffer:
                    self._put(_error("overloaded", 503, "this reader fell too far behind; come back with the last id", ref))
                    break
                self._put(_format(event))
        except TurnyardError as error:
            self._put(_error(error.code, error.status, str(error), ref))
        except Exception:
            log.exception("stream failed", extra={"ref": ref})
            self._put(_error("internal", 500, "something broke on our side; come back with the last id", ref))
        finally:
            self._queue.put_nowait(None)

    def _put(self, text: str) -> None:
        self._queue.put_nowait(text)

    async def _watch(self, receive: Receive) -> None:
        """End the stream when the reader is gone or the process closes."""
        gone = asyncio.create_task(_disconnected(receive))
        closing = asyncio.create_task(self._desk.closing.wait())
        try:
            await asyncio.wait({gone, closing}, return_when=asyncio.FIRST_COMPLETED)
            self._over = True
            self._queue.put_nowait(None)
        finally:
            gone.cancel()
            closing.cancel()

    async def _send(self, send: Send) -> None:
        while not self._over:
            text = await self._next()
            if text:
                async with asyncio.timeout(_STUCK_S):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self) -> str:
        """Return what is ready to be sent, a comment when nothing happens for long; notes the end."""
        try:
            async with asyncio.timeout(self._desk.options.ping_s):
                item = await self._queue.get()
        except TimeoutError:
            return ": ping\n\n"
        texts: list[str] = []
        while True:
            if item is None:
                self._over = True
                break
            texts.append(item)
            if self._queue.empty() or len(texts) >= _BATCH:
                break
            item = self._queue.get_nowait()
        return "".join(texts)


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
