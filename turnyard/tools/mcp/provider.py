"""A server of the Model Context Protocol whose tools an agent may use.

Each process that runs calls has a connection of its own, opened when it is needed. The list of tools is kept until the
server says that it changed or the connection is a new one. A server that is slow, broken or hostile costs its own tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from turnyard.clock import SystemClock
from turnyard.errors import ConfigError
from turnyard.tools.mcp.bind import bind_of
from turnyard.tools.mcp.config import read_config
from turnyard.tools.mcp.followers import wanted_of
from turnyard.tools.mcp.server import Rules, Server, Value, server_at

if TYPE_CHECKING:
    from turnyard.ports import Clock
    from turnyard.tools.mcp.opened import Opened
    from turnyard.tools.tool import Tool


class MCP:
    """The tools of one server, as something an agent is given in `tools=`.

    A tool is called `PREFIX_TOOL`, or as the server calls it when there is no prefix. The globs of `allow`, `deny`, `approval` and
    `idempotent` match the server's own names.
    """

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        prefix: str = "",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        approval: Sequence[str] = (),
        headers: Mapping[str, Value] | None = None,
        env: Mapping[str, Value] | None = None,
        timeout: timedelta | float = 60.0,
        wait: bool = False,
        idempotent: Sequence[str] | None = None,
        name: str | None = None,
        bind: Mapping[str, Mapping[str, str]] | None = None,
        notices: Sequence[str] = (),
        tasks: bool = True,
        cwd: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Declare a server; nothing is started or reached yet.

        Args:
            target: the URL of a server that speaks streamable HTTP, or the words of a command to start, which then speaks over its stdin and stdout.
            prefix: what the names of its tools begin with here, followed by _.
            allow: which of its tools there are; empty: all of them.
            deny: which of them there are not.
            approval: of which of them people decide about each call.
            headers: what each request to the URL carries; values may be `secret(...)`.
            env: what the command has in its environment beside PATH, HOME and the like; values may be `secret(...)`.
            timeout: how long one call may take, a timedelta or seconds.
            wait: a call that the server runs as a task stops the turn until it is done; else its result comes later, as news.
            idempotent: which of its tools may be called again after a crash; None: those that the server calls read-only or idempotent.
            name: what manifests and logs call the server; None: the prefix, the host or the command.
            bind: what a call tells the server of who makes it, as {"headers"|"meta"|"env": {name: source}}, a source being tenant, user,
                session, agent, turn, call or metadata.NAME.
            notices: what the server may tell sessions that called its tools in the last hour: "messages" (its log), "resources" (their list
                changed), the URI of a resource (it changed), or the method of a notification of its own.
            tasks: whether the server may answer a call with a task that goes on.
            cwd: the directory the command is started in.
            clock: the time it lives by; None for that of this machine.

        Raises:
            ConfigError: something of it cannot be, or the extra `mcp` is not installed.
        """
        if find_spec("mcp") is None:
            raise ConfigError("MCP servers need the extra mcp: pip install 'turnyard[mcp]'")
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        server = server_at(target, name=name, prefix=prefix, headers=dict(headers or {}), env=dict(env or {}), cwd=cwd, timeout_s=seconds)
        _check(server)
        self._server = server
        self._rules = Rules(
            prefix=prefix,
            allow=_globs("allow", allow),
            deny=_globs("deny", deny),
            approval=_globs("approval", approval),
            idempotent=None if idempotent is None else _globs("idempotent", idempotent),
            wait=wait,
            tasks=tasks,
            bind=bind_of(bind, is_command=bool(server.command)),
        )
        self._wanted = wanted_of(_globs("notices", notices))
        self._clock = clock or SystemClock()
        self._open: Opened | None = None
        self._count = 0

    def __repr__(self) -> str:
        """Return the server's name and place; neither holds a secret."""
        return f"<MCP {self.name} at {self._server.where}>"

    @property
    def name(self) -> str:
        """Return what the server is called in manifests and logs."""
        return self._server.name

    @property
    def changed(self) -> int:
        """Return a number that is another one whenever the list of tools may have changed."""
        return self._count if self._open is None else self._open.changed

    async def list_tools(self) -> Sequence[Tool[..., Any]]:
        """Return the tools there are now, connecting first where that is needed.

        Raises:
            ServerAway: the server cannot be reached, or does not list them.
        """
        return await (await self.opened()).list_tools()

    async def aclose(self) -> None:
        """Close the connections, and end the processes that were started."""
        opened, self._open = self._open, None
        if opened is not None:
            self._count = opened.changed + 1
            await opened.aclose()

    async def opened(self) -> Opened:
        """Return what this process has of the server."""
        if self._open is None:
            # the SDK takes a second to import: not on the loop that runs turns
            module = await asyncio.to_thread(import_module, "turnyard.tools.mcp.opened")
            if self._open is None:
                self._open = module.Opened(self._server, self._rules, self._wanted, clock=self._clock, count=self._count)
        return cast("Opened", self._open)

    @classmethod
    def from_config(cls, config: str | Path | Mapping[str, Any], **options: Any) -> list[MCP]:
        """Return the servers of a `mcpServers` file as other clients use it, or of what such a file holds.

        Each gets the prefix `NAME_`, so that its tools are called `NAME__TOOL`. A value `env:NAME`, or `${NAME}`, is that of a
        secret of this name when the connection is made. `options` are given to each of them.

        Raises:
            ConfigError: it is no such file.
        """
        return [cls(entry.target, **(entry.options | options)) for entry in read_config(config)]


def _check(server: Server) -> None:
    if server.timeout_s <= 0:
        raise ConfigError(f"MCP {server.name}: timeout= must be more than zero")
    if server.headers and server.command:
        raise ConfigError(f"MCP {server.name}: headers= are for servers with a URL; use env= for a command")
    if server.command == () and (server.env or server.cwd):
        raise ConfigError(f"MCP {server.name}: env= and cwd= are for servers that are started with a command; use headers= for a URL")


def _globs(word: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigError(f"MCP: {word}= is a list, as in ['get_*']")
    return tuple(given)
