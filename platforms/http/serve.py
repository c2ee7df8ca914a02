"""How the API runs as a process: until told to stop, and then without cutting off what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator
from typing import TYPE_CHECKING

import uvicorn

from turnyard.errors import ConfigError

from .app import create_app
from .desk import Desk
from .options import HttpOptions, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger("turnyard.http")

_GRACE_S = 20
_BACKLOG = 2048


class _Server(uvicorn.Server):
    """A server whose signals are somebody else's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone: the role's life handles them."""
        yield


def listen(options: HttpOptions) -> socket.socket:
    """Open the port.

    Raises:
        ConfigError: it may not be opened without keys, or it cannot be.
    """
    options.check()
    if options.allow_open and not is_loopback(options.host):
        log.warning(
            "THE API IS OPEN: whoever reaches this address may use it; let the network decide who does",
            extra={"host": options.host, "port": options.port},
        )
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((options.host, options.port))
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"{options.host}:{options.port} cannot be opened ({error.strerror or error}); choose another with --port, or 0 for a free one"
        ) from error
    sock.listen(_BACKLOG)
    return sock


def url_of(sock: socket.socket) -> str:
    """Return where a listening socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_http(desk: Desk, drain: asyncio.Event, sock: socket.socket) -> None:
    """Answer requests on a socket until `drain` is set; then let requests end, tell streams to, and return."""
    server = _Server(_config(create_app(desk)))
    async with asyncio.TaskGroup() as group:
        stopper = group.create_task(_stop(server, desk, drain))
        await server.serve(sockets=[sock])
        stopper.cancel()


async def _stop(server: uvicorn.Server, desk: Desk, drain: asyncio.Event) -> None:
    await drain.wait()
    desk.closing.set()
    server.should_exit = True


def _config(app: ASGIApp) -> uvicorn.Config:
    # No access log: paths of callbacks are secrets. No server header: nobody needs to know.
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=75,
    )
