"""One connection to one MCP server: opened when it is needed, kept while it is used, opened anew when it broke.

The connection lives in a task of its own, so nobody who waits for it can leave it half open. One that cannot be opened
is left alone for a while that grows, and whoever asks meanwhile is told so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

import mcp_types as types
from mcp.client.client import Client
from mcp.client.extension import ClientExtension
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from turnyard.backoff import Backoff
from turnyard.errors import ConfigError
from turnyard.ports import Clock
from turnyard.tools.mcp.followers import Wanted
from turnyard.tools.mcp.process import over_stdio
from turnyard.tools.mcp.server import Server
from turnyard.tools.mcp.tasks import Tasks
from turnyard.tools.mcp.wire import Wire, over_http
from turnyard.tools.secrets import revealed

log = logging.getLogger("turnyard.tools")

OPEN_S = 20.0
IDLE_S = 300.0
_EARS_S = 2.0  # how long to wait for the server to say that it will tell of changes
_MOST_RETRY_S = 60.0
_HEARD_AGAIN_S = 1.0
_CLOSE_S = 8.0


class ServerAway(Exception):
    """The server cannot be reached now; the message says why, without addresses, and when it is tried again."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who is told of a connection: what the server says without being asked, and that it may have said something unheard.

    `busy` tells that the connection is to be kept though nobody calls.
    """

    hear: Callable[[types.ServerNotification], None]
    lost: Callable[[], None]
    busy: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Wants:
    """What a connection tells the server that this client can do and wants to hear of."""

    tasks: bool = True
    wanted: Wanted = field(default_factory=Wanted)
    extensions: Sequence[ClientExtension] = ()


class Link:
    """The connection of this process to a server. `env` joins the environment of one that is started."""

    def __init__(self, server: Server, owner: Owner, wants: Wants, *, clock: Clock, env: tuple[tuple[str, str], ...] = ()) -> None:
        self.server = server
        self.more: ContextVar[Mapping[str, str]] = ContextVar(f"headers for {server.name}")
        self.hears = False
        self.users = 0
        self._clock = clock
        self._owner = owner
        self._wants = wants
        self._env = env
        self._life: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Client] | None = None
        self._end = asyncio.Event()
        self._used_s = 0.0
        self._not_before_s = 0.0
        self._reason = ""
        self._backoff = Backoff(first_s=1.0, most_s=_MOST_RETRY_S)

    @property
    def open(self) -> bool:
        """Tell whether the connection stands, as far as this process knows."""
        return self._ready is not None and self._ready.done() and not self._end.is_set()

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[Client]:
        """Yield the connected client, connecting first where that is needed.

        Raises:
            ServerAway: there is no connection, and there will be none for a while.
        """
        self.users += 1
        try:
            yield await self._client()
        finally:
            self.users -= 1
            self._used_s = self._clock.monotonic()

    def broke(self) -> None:
        """Have the connection closed and opened anew for the next that needs it."""
        self._end.set()

    async def aclose(self) -> None:
        """Close the connection, and end the process that was started for it."""
        self._end.set()
        (life, ready), self._life, self._ready = (self._life, self._ready), None, None
        if life is not None:
            if ready is None or not ready.done():
                life.cancel()
            await asyncio.wait({life}, timeout=_CLOSE_S)
            life.cancel()

    async def _client(self) -> Client:
        if self._life is None or self._life.done() or self._end.is_set():
            await self._open()
        ready = self._ready
        if ready is None:
            raise ServerAway(f"{self.server.name} was closed")
        # whoever gives up leaves the connection to open: the next one finds it there
        return await asyncio.shield(ready)

    async def _open(self) -> None:
        if self._life is not None and not self._life.done():
            if self._ready is not None and not self._end.is_set():
                return
            await asyncio.wait({self._life})
        if self._ready is not None and not self._end.is_set():
            return  # somebody else was faster
        wait_s = self._not_before_s - self._clock.monotonic()
        if wait_s > 0:
            raise ServerAway(f"{self._reason}; it is tried again in {wait_s:.0f} s")
        self._end = asyncio.Event()
        self._ready = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(self._ready, self._end), name=f"mcp {self.server.name}")

    async def _live(self, ready: asyncio.Future[Client], end: asyncio.Event) -> None:
        """Be the connection, from the first word to the last."""
        try:
            async with asyncio.timeout(OPEN_S) as opening, Client(self._wire(end), **self._client_options()) as client:
                ears = asyncio.create_task(self._listen(client, heard := asyncio.Event()))
                try:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(heard.wait(), _EARS_S)
                    opening.reschedule(None)
                    self._backoff.reset()
                    self._used_s = self._clock.monotonic()
                    ready.set_result(client)
                    await self._last(end)
                finally:
                    ears.cancel()
        except BaseException as error:
            self._failed(ready, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            end.set()
            self.hears = False
            self._owner.lost()

    def _failed(self, ready: asyncio.Future[Client], error: BaseException) -> None:
        if not ready.done():
            self._reason = f"{self.server.name} cannot be reached: {reason_of(error)}"
            self._not_before_s = self._clock.monotonic() + self._backoff.next_s()
            ready.set_exception(ServerAway(self._reason))
            ready.exception()  # it may be that nobody waits any more
        elif not isinstance(error, asyncio.CancelledError):
            log.warning("the connection to a server ended", extra={"provider": self.server.name, "reason": reason_of(error)})

    def _wire(self, end: asyncio.Event) -> Wire:
        server = self.server
        if server.command:
            env = {name: revealed(value) for name, value in server.env.items()} | dict(self._env)
            return over_stdio(server.command, env, cwd=server.cwd, gone=end.set)
        headers = {name: revealed(value) for name, value in server.headers.items()}
        return over_http(server.url, headers, more=self.more, timeout_s=server.timeout_s)

    def _client_options(self) -> dict[str, Any]:
        return {
            "message_handler": self._message,
            "client_info": types.Implementation(name="turnyard", version="1"),
            "extensions": [*([Tasks()] if self._wants.tasks else ()), *self._wants.extensions],
            "log_level": "warning" if self._wants.wanted.messages else None,
            "read_timeout_seconds": OPEN_S,
            "cache": None,
        }

    async def _message(self, message: types.ServerNotification | Exception) -> None:
        if not isinstance(message, Exception):
            self._owner.hear(message)

    async def _last(self, end: asyncio.Event) -> None:
        """Return once the connection broke, or nobody has used it for a while."""
        ending = asyncio.create_task(end.wait())
        try:
            while not end.is_set():
                idle_s = self._clock.monotonic() - self._used_s
                if self.users == 0 and not self._owner.busy() and idle_s >= IDLE_S:
                    return
                napping = asyncio.create_task(self._clock.sleep(max(IDLE_S - idle_s, 1.0)))
                await asyncio.wait({ending, napping}, return_when=asyncio.FIRST_COMPLETED)
                napping.cancel()
        finally:
            ending.cancel()

    async def _listen(self, client: Client, heard: asyncio.Event) -> None:
        """Have the server tell of changes as long as the connection lives; `heard` is set once it is known whether it does."""
        tools = client.server_capabilities.tools
        tells = tools is not None and bool(tools.list_changed)
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await self._subscribe(client)
            self.hears = tells
            heard.set()
            return
        again = Backoff(first_s=_HEARD_AGAIN_S, most_s=_MOST_RETRY_S)
        wanted = self._wants.wanted
        while tells or wanted.resources or wanted.uris:
            try:
                async with client.listen(
                    tools_list_changed=tells, resources_list_changed=wanted.resources, resource_subscriptions=wanted.uris
                ) as subscription:
                    self.hears = tells and bool(subscription.honored.tools_list_changed)
                    if again.reset():
                        self._owner.lost()  # what changed meanwhile went unheard
                    heard.set()
                    async for _ in subscription:
                        pass  # each event reaches the message handler, too
            except (SubscriptionLost, MCPError, TimeoutError):
                pass
            self.hears = False
            heard.set()
            await self._clock.sleep(again.next_s())
        heard.set()

    async def _subscribe(self, client: Client) -> None:
        """Ask a server of an older protocol to tell of single resources; one that cannot is not asked again."""
        for uri in self._wants.wanted.uris:
            with contextlib.suppress(MCPError):
                await client.session.send_request(types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri)), types.EmptyResult)


def reason_of(error: BaseException) -> str:
    """Return what went wrong in words that hold no address, header or argument: those may hold secrets."""
    cause = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cast("BaseException", cause.exceptions[0])
    match cause:
        case MCPError() if cause.error.code == CONNECTION_CLOSED:
            return "it closed the connection, or takes none"
        case MCPError():
            return f"it answers with error {cause.error.code}"
        case TimeoutError():
            return f"no answer within {OPEN_S:g} s"
        case ValidationError():
            return "what it says does not follow the protocol"
        case ConfigError():
            return str(cause)
        case OSError():
            return cause.strerror or type(cause).__name__
        case _:
            return type(cause).__name__
