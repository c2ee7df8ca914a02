"""What surrounds every request: its id, its exact path, who may reach us by which name, and the last catch.

A session id may hold any printable character, a slash too, so the path is split before it is decoded and each part
keeps its slashes escaped until a route takes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from fastapi import Request

from turnyard.errors import InvalidRequest

from . import problems
from .options import HttpOptions, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("turnyard.http")

_DRAIN_S = 5.0
_DRAIN_BYTES = 64 * 1024 * 1024


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, options: HttpOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; whatever happens, the answer has an id and no traceback."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ref = f"req_{secrets.token_hex(8)}"
        scope.setdefault("state", {})["request_id"] = ref
        scope["path"] = exact_path(scope)

        body = _Body(scope, receive)

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(b"request-id", ref.encode())]
                if body.unread:
                    # Else the server would go on reading, and throwing away, what may never end.
                    added.append((b"connection", b"close"))
                message = {**message, "headers": [*message.get("headers", []), *added]}
            elif body.unread and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await body.drain()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        try:
            refusal = None if self._options.allow_open else stranger(scope)
            if refusal is not None:
                await problems.answer(Request(scope), refusal)(scope, body.receive, with_id)
                return
            await self._app(scope, body.receive, with_id)
        except Exception:
            # The app has answered already, or the answer was under way and the connection is closed.
            route: Any = scope.get("route")
            log.exception("request failed", extra={"ref": ref, "route": getattr(route, "path", None), "method": scope["method"]})


class _Body:
    """Whether a request's body has been read to its end."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self.unread = any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in scope["headers"])

    async def receive(self) -> Message:
        """Receive, and note the end."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.unread = False
        return message

    async def drain(self) -> None:
        """Throw away what still comes, within bounds.

        A connection that is closed on data nobody read is reset, and its client may never see the answer.
        """
        left = _DRAIN_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while self.unread and left > 0:
                    message = await self.receive()
                    if message["type"] != "http.request":
                        return
                    left -= len(message.get("body", b""))


def exact_path(scope: Scope) -> str:
    """Return the path with each part decoded, save for slashes and percent signs inside a part."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%" not in raw:
        return scope["path"]
    parts = raw.partition(b"?")[0].decode("latin-1").split("/")
    return "/".join(unquote(part).replace("%", "%25").replace("/", "%2F") for part in parts)


def stranger(scope: Scope) -> InvalidRequest | None:
    """Return why a request may not reach an open API: it names another host, or a page of another origin sent it."""
    hosts = _values(scope, b"host")
    if len(hosts) != 1 or not is_loopback(_name_of(f"//{hosts[0]}")):
        return InvalidRequest("without keys this server answers only to localhost: the Host header names something else")
    origins = _values(scope, b"origin")
    if any(_place_of(origin) != hosts[0] for origin in origins):
        return InvalidRequest("a page of another origin may not use this server")
    return None


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _name_of(url: str) -> str:
    """Return the host that a URL names, nothing when it cannot be read or hides the name behind a user."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return "" if "@" in parts.netloc else parts.hostname or ""


def _place_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
