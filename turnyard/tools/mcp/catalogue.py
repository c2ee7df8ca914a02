"""Which tools an MCP server has, as an app takes them: those its rules offer, bounded, with names of this side.

What a server says of its tools is a stranger's text. It is cut to size here, and never makes a call freer than the app
allows: a hint of the server can only tell that a call may be repeated after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import mcp_types as types
import orjson
from mcp.client.client import Client

from turnyard.errors import ConfigError
from turnyard.text import bound
from turnyard.tools.context import ToolContext
from turnyard.tools.mcp.server import Rules, Server
from turnyard.tools.tool import Tool

MOST_TOOLS = 512
MOST_DESCRIPTION_BYTES = 4_096
MOST_SCHEMA_BYTES = 65_536
_MOST_PAGES = 100


@dataclass(frozen=True, slots=True)
class Hands:
    """What calls a tool by the server's own name for it, and what looks for the result of a call that the server goes on with, and stops it."""

    call: Callable[[str, ToolContext[Any], dict[str, Any]], Awaitable[Any]]
    poll: Callable[[ToolContext[Any], dict[str, Any]], Awaitable[Any]]
    stop: Callable[[ToolContext[Any], dict[str, Any]], Awaitable[None]]


log = logging.getLogger("turnyard.tools")


@dataclass(slots=True)
class Complaints:
    """What was wrong with a server's tools: each thing is told once."""

    provider: str
    _told: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def tell(self, tool: str, reason: str) -> None:
        """Log that a tool is left out, or anything else about it, if that is new."""
        if (tool, reason) not in self._told and len(self._told) < MOST_TOOLS:
            self._told.add((tool, reason))
            log.warning("a tool of a server is left out", extra={"provider": self.provider, "tool": tool[:64], "reason": reason})


async def all_tools(client: Client) -> tuple[list[types.Tool], int | None]:
    """Return the server's tools, page by page, and for how many milliseconds it says that the list is good.

    Raises:
        MCPError: the server does not list them.
    """
    tools: list[types.Tool] = []
    cursor: str | None = None
    ttl_ms: int | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += page.tools
        ttl_ms = page.ttl_ms if cursor is None else ttl_ms
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools, ttl_ms


def admitted(listed: list[types.Tool], server: Server, rules: Rules, hands: Hands, complaints: Complaints) -> tuple[Tool[..., Any], ...]:
    """Return the tools that an app has of a server; what cannot be one is left out, and that is logged once."""
    offered = sorted((t for t in listed if rules.offers(t.name)), key=lambda t: t.name)
    if len(offered) > MOST_TOOLS:
        complaints.tell("", f"it has {len(offered):,} tools, and {MOST_TOOLS} are the most: name those you need with allow=")
    made: list[Tool[..., Any]] = []
    for one in offered[:MOST_TOOLS]:
        try:
            made.append(_tool(one, server, rules, hands))
        except ConfigError as error:
            complaints.tell(one.name, str(error)[:500])
    return tuple(made)


def _tool(one: types.Tool, server: Server, rules: Rules, hands: Hands) -> Tool[..., Any]:
    schema = one.input_schema
    size = len(orjson.dumps(schema, default=str, option=orjson.OPT_NON_STR_KEYS))
    if size > MOST_SCHEMA_BYTES:
        raise ConfigError(f"its schema is {size:,} bytes and may be {MOST_SCHEMA_BYTES:,}")

    async def handler(ctx: ToolContext[Any], arguments: dict[str, Any]) -> Any:
        return await hands.call(one.name, ctx, arguments)

    hints = one.annotations
    hinted = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
    made = Tool.from_schema(
        f"{rules.prefix}_{one.name}" if rules.prefix else one.name,
        bound(one.description or one.title or "", MOST_DESCRIPTION_BYTES),
        _normal(schema),
        handler,
        idempotent=rules.repeats(one.name, hinted=hinted),
        approval=rules.asks(one.name),
        timeout=timedelta(seconds=server.timeout_s),
    )
    if rules.tasks:
        made.poll(hands.poll)
        made.stop(hands.stop)
    return made


def _normal(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as model APIs take it: some servers say null where they mean nothing."""
    whole = {name: value for name, value in schema.items() if value is not None}
    return {"type": "object", "properties": {}, **whole}
