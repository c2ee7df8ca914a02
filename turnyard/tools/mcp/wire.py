"""The wire to an MCP server over HTTP, on which what goes wrong with one request stays with that request.

The SDK lets a failed request end the whole connection, and reads answers of any size; here such a request alone fails.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import httpx2
import orjson
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

MOST_ANSWER_BYTES = 16 * 1024 * 1024
_CONNECT_S = 10.0
_SILENCE_S = 300.0  # how long a stream may say nothing: servers send a sign of life far more often
Wire = AbstractAsyncContextManager[tuple[Any, Any]]


def over_http(url: str, headers: Mapping[str, str], *, more: ContextVar[Mapping[str, str]], timeout_s: float) -> Wire:
    """Return the wire to a URL. `more` holds further headers of the call at hand; `timeout_s` bounds one call."""

    @asynccontextmanager
    async def wire() -> AsyncGenerator[tuple[Any, Any]]:
        limits = httpx2.Timeout(_CONNECT_S, read=max(timeout_s, _SILENCE_S))
        async with (
            _Patient(more, headers=dict(headers), timeout=limits) as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=MOST_ANSWER_BYTES) as streams,
        ):
            yield streams

    return wire()


class _Patient(httpx2.AsyncClient):
    """An HTTP client whose failed requests are answers that say so."""

    def __init__(self, more: ContextVar[Mapping[str, str]], **options: Any) -> None:
        super().__init__(**options)
        self._more = more

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request of the call at hand."""
        request.headers.update(self._more.get({}))
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            return _unreachable(request, error)
        if options.get("stream") and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Bounded(response.stream)
        return response


def _unreachable(request: httpx2.Request, error: httpx2.TransportError) -> httpx2.Response:
    fault = {"code": CONNECTION_CLOSED, "message": f"the server cannot be reached ({type(error).__name__})"}
    body = orjson.dumps({"jsonrpc": "2.0", "id": None, "error": fault})
    return httpx2.Response(503, headers={"content-type": "application/json"}, content=body, request=request)


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer up to a size; one that breaks off, or is longer, ends there: then it is no JSON, and the request fails."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_ANSWER_BYTES
        try:
            async for chunk in self._inner:
                yield chunk[:left]
                left -= len(chunk)
                if left < 0:
                    return
        except httpx2.TransportError:
            return

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._inner.aclose()
