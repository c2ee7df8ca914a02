"""What one process has of an MCP server while its agents use it: connections, the list of tools, who follows.

The list is kept as long as the server would tell of a change. While it would not (it cannot, or the connection is gone),
the list counts as changed after a while, and with every new connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from turnyard.errors import ToolError
from turnyard.ports import Clock
from turnyard.tools.context import ToolContext
from turnyard.tools.detailed import Detailed
from turnyard.tools.mcp.calls import Caller, Stale
from turnyard.tools.mcp.catalogue import Complaints, Hands, admitted, all_tools
from turnyard.tools.mcp.followers import Followers, Wanted
from turnyard.tools.mcp.link import OPEN_S, Link, Owner, ServerAway, Wants, reason_of
from turnyard.tools.mcp.news import News
from turnyard.tools.mcp.remote import outcome_of
from turnyard.tools.mcp.server import Rules, Server
from turnyard.tools.mcp.tasks import cancel_task
from turnyard.tools.park import Park
from turnyard.tools.tool import Tool

AnyTool = Tool[..., Any]
Env = tuple[tuple[str, str], ...]

UNHEARD_S = 60.0  # how long a list is good of a server that does not tell of changes
MOST_LINKS = 16
_STOP_S = 1.0


class Opened:
    """A server in use. `changed` begins at `count`, and is never again what it was."""

    def __init__(self, server: Server, rules: Rules, wanted: Wanted, *, clock: Clock, count: int = 0) -> None:
        self.server = server
        self._rules = rules
        self._wanted = wanted
        self._clock = clock
        self._count = count
        self._followers = Followers(clock.monotonic)
        self._news = News(server.name, wanted, self._followers, clock)
        self._links: OrderedDict[Env, Link] = OrderedDict()
        self._complaints = Complaints(server.name)
        self._caller = Caller(rules)
        self._tools: tuple[AnyTool, ...] | None = None
        self._names: frozenset[str] = frozenset()
        self._listed = -1
        self._stale_at_s = 0.0
        self._listing: asyncio.Task[tuple[AnyTool, ...]] | None = None

    # -- the list -----------------------------------------------------------------------------------------------------

    @property
    def changed(self) -> int:
        """Return a number that is another one whenever the list may have changed."""
        return self._count + (1 if self._is_stale() else 0)

    def _is_stale(self) -> bool:
        link = self._links.get(())
        return self._tools is not None and not (link is not None and link.hears) and self._clock.monotonic() >= self._stale_at_s

    async def list_tools(self) -> Sequence[AnyTool]:
        """Return the tools, asking the server when they may have changed.

        Raises:
            ServerAway: it cannot be reached, or does not list them.
        """
        if self._tools is not None and self._listed == self._count and not self._is_stale():
            return self._tools
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._list())
        # whoever gives up leaves it to be done: the next one finds it there
        return await asyncio.shield(self._listing)

    async def _list(self) -> tuple[AnyTool, ...]:
        self._count = count = self.changed
        try:
            async with self._link(()).use() as client, asyncio.timeout(OPEN_S):
                listed, ttl_ms = await all_tools(client)
        except ServerAway:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the server's doing
            # the SDK's own words may hold what the server said, or was told
            raise ServerAway(f"{self.server.name} does not list its tools: {reason_of(error)}") from None
        self._names = frozenset(tool.name for tool in listed)
        # a schema takes milliseconds to check, and there may be hundreds: not on the loop that runs turns
        made = await asyncio.to_thread(
            admitted, listed, self.server, self._rules, Hands(self._call, self._poll, self._stop), self._complaints
        )
        self._tools = made
        self._listed = count
        self._stale_at_s = self._clock.monotonic() + max(UNHEARD_S, (ttl_ms or 0) / 1000)
        return self._tools

    def _lost(self) -> None:
        self._count += 1

    def _hear(self, notification: types.ServerNotification) -> None:
        if isinstance(notification, types.ToolListChangedNotification):
            self._count += 1
        self._news.take(notification)

    # -- calls --------------------------------------------------------------------------------------------------------

    async def _call(self, name: str, ctx: ToolContext[Any], arguments: dict[str, Any]) -> str | Detailed | Park:
        if name not in self._names:
            raise ToolError(f"{self.server.name} has no tool {name} any more; it was not called")
        if self._wanted:
            self._followers.follow(ctx)
        try:
            return await self._caller.call(self._link(self._rules.bind.env_of(ctx)), name, ctx, arguments)
        except Stale:
            self._lost()
            raise

    async def _poll(self, ctx: ToolContext[Any], state: dict[str, Any]) -> str | Detailed | Park:
        """Return what a task of the server came to, or when to look again.

        Raises:
            ToolError: it failed, was stopped, or can never be done.
            MCPError: the server cannot be reached; look again.
            ServerAway: likewise.
        """
        link, task = self._link(self._rules.bind.env_of(ctx)), str(state["task"])
        async with link.use() as client:
            try:
                return await outcome_of(client, state, server=self.server, files=ctx.files)
            except asyncio.CancelledError:
                await _stopped(client, task)
                raise
            except MCPError as error:
                if error.error.code == CONNECTION_CLOSED:
                    link.broke()
                raise

    async def _stop(self, ctx: ToolContext[Any], state: dict[str, Any]) -> None:
        """Ask the server to stop a task that nobody waits for any more.

        Raises:
            MCPError: the server refuses, or cannot be reached.
            ServerAway: likewise.
        """
        async with self._link(self._rules.bind.env_of(ctx)).use() as client:
            await cancel_task(client.session, str(state["task"]), timeout_s=self.server.timeout_s)

    # -- connections --------------------------------------------------------------------------------------------------

    def _link(self, env: Env) -> Link:
        """Return the connection for calls with this environment; of too many, the one unused for longest is closed."""
        if env not in self._links:
            idle = [key for key, link in self._links.items() if key and not link.users]
            if len(self._links) >= MOST_LINKS and idle:
                self._links.pop(idle[0]).broke()
            owner = Owner(hear=_unheard if env else self._hear, lost=_nothing if env else self._lost, busy=self._busy)
            wants = Wants(self._rules.tasks, Wanted() if env else self._wanted, self._news.extensions())
            self._links[env] = Link(self.server, owner, wants, clock=self._clock, env=env)
        self._links.move_to_end(env)
        return self._links[env]

    def _busy(self) -> bool:
        return bool(self._wanted) and bool(self._followers.current())

    async def aclose(self) -> None:
        """Close all connections, and end the processes that were started for them."""
        if self._listing is not None:
            self._listing.cancel()
        links, self._links = self._links, OrderedDict()
        await asyncio.gather(self._news.aclose(), *(link.aclose() for link in links.values()))


async def _stopped(client: Client, task: str) -> None:
    """Ask the server to stop a task, in the short time there is; one that cannot be told goes on to its own end."""
    with contextlib.suppress(MCPError, TimeoutError):
        async with asyncio.timeout(_STOP_S):
            await cancel_task(client.session, task, timeout_s=_STOP_S)


def _nothing() -> None:
    """Let the end of a connection that lists no tools change nothing."""


def _unheard(_notification: types.ServerNotification) -> None:
    """Leave what is said on a connection of one tenant or user to that which lists the tools."""
