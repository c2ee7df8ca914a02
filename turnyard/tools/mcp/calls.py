"""How a call of an MCP server's tool is made, and what a model is told of what came of it.

The server learns the call's idempotency key with each call, and who makes it only where the app binds that. What the
server says of a failure is text for the model; what the connection says is not, as it may hold what is secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT
from pydantic import ValidationError

from turnyard.errors import ToolError
from turnyard.text import bound
from turnyard.tools.context import ToolContext
from turnyard.tools.detailed import Detailed
from turnyard.tools.mcp.catalogue import all_tools
from turnyard.tools.mcp.content import read_result
from turnyard.tools.mcp.link import Link, ServerAway
from turnyard.tools.mcp.remote import parked
from turnyard.tools.mcp.server import Rules
from turnyard.tools.mcp.tasks import TaskMade
from turnyard.tools.park import Park

KEY_META = "turnyard/idempotency-key"
_MOST_ERROR_BYTES = 4_096
_GONE = (INVALID_PARAMS, METHOD_NOT_FOUND)


class Stale(ToolError):
    """The server refuses a call in a way that a tool which is gone, or has changed, would explain."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls the tools of one server."""

    rules: Rules

    async def call(self, link: Link, name: str, ctx: ToolContext[Any], arguments: dict[str, Any]) -> str | Detailed | Park:
        """Return what the tool says, or leave the call parked when the server goes on with it as a task.

        Raises:
            ToolError: what the model is told of a call that failed.
        """
        server = link.server
        try:
            async with link.use() as client:
                token = link.more.set(self.rules.bind.headers_of(ctx))
                try:
                    result = await self._send(client, server.timeout_s, name, ctx, arguments)
                finally:
                    link.more.reset(token)
        except ServerAway as error:
            raise ToolError(f"{name} was not called: {error}") from error
        except MCPError as error:
            raise self._failed(link, name, error) from error
        except ValidationError as error:
            raise ToolError(f"{server.name} answered {name} with what is no result; whether the call took effect is not known") from error
        except RuntimeError as error:  # the SDK's word for structured content that does not fit the server's own schema
            raise ToolError(f"{name} was called, and its result does not fit what {server.name} says its results are") from error
        if isinstance(result, TaskMade):
            return parked(server.name, name, result, wait=self.rules.wait)
        if isinstance(result, types.InputRequiredResult):
            asked = ", ".join(sorted(result.input_requests or {})) or "something"
            raise ToolError(f"{server.name} asks for more before it can do this ({asked:.500}), and nobody can be asked here")
        return await read_result(result, ctx.files)

    async def _send(self, client: Client, timeout_s: float, name: str, ctx: ToolContext[Any], arguments: dict[str, Any]) -> Any:
        async def told(progress: float, total: float | None, message: str | None) -> None:
            await ctx.progress(progress / total if total else 0.0, bound(message or f"{progress:g}", 500))

        meta: Any = {KEY_META: ctx.idempotency_key, **self.rules.bind.meta_of(ctx)}
        for again in (True, False):
            try:
                return await client.session.call_tool(
                    name,
                    arguments,
                    read_timeout_seconds=timeout_s,
                    progress_callback=told,
                    meta=meta,
                    allow_input_required=True,
                    allow_claimed=True,
                )
            except MCPError as error:
                if not again or error.error.code != HEADER_MISMATCH:
                    raise
                await all_tools(client)  # the SDK takes from the list which arguments are headers, too
        raise AssertionError

    def _failed(self, link: Link, name: str, error: MCPError) -> ToolError:
        """Return what the model is told; a connection that broke is opened anew for the next call."""
        server, code = link.server, error.error.code
        if code == REQUEST_TIMEOUT:
            limit = timedelta(seconds=server.timeout_s)
            return ToolError(f"{name} did not answer within {limit.total_seconds():g} s; whether it took effect is not known")
        if code == CONNECTION_CLOSED or error.error.message == "Session terminated":
            link.broke()
            return ToolError(f"the connection to {server.name} was lost during the call; whether {name} took effect is not known")
        said = bound(error.error.message, _MOST_ERROR_BYTES)
        return Stale(said) if code in _GONE else ToolError(said)
