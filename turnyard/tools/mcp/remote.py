"""Calls that a server runs as tasks of its own: how they are parked, and what is asked of them later.

Nothing of such a call stays in this process: a row knows the server and the task, and whoever polls it needs no more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import ValidationError

from turnyard.errors import ToolError
from turnyard.text import bound
from turnyard.tools.detailed import Detailed
from turnyard.tools.files import Files
from turnyard.tools.mcp.content import read_result
from turnyard.tools.mcp.server import Server
from turnyard.tools.mcp.tasks import TaskMade, TaskNow, cancel_task, get_task
from turnyard.tools.park import Park

POLL_S = 5.0  # when the server does not say how often it wants to be asked
_LEAST_POLL_S, _MOST_POLL_S = 1.0, 300.0
_TTL_S = 86_400.0
_MOST_TEXT_BYTES = 4_096


def parked(server: str, tool: str, made: TaskMade, *, wait: bool) -> Park:
    """Return how the call is left: until the server forgets its task, asked about as often as the server likes."""
    ttl_s = min(made.ttl_ms / 1000, 365 * _TTL_S) if made.ttl_ms else _TTL_S
    return Park(
        f"{server} works on {tool}; its result comes later.",
        expires_in=timedelta(seconds=max(ttl_s, _LEAST_POLL_S)),
        wait=wait,
        poll=timedelta(seconds=poll_s(made.poll_interval_ms)),
        state={"server": server, "task": made.task_id, "tool": tool},
    )


def poll_s(interval_ms: int | None) -> float:
    """Return after how many seconds a task is asked about again."""
    return min(max(interval_ms / 1000, _LEAST_POLL_S), _MOST_POLL_S) if interval_ms else POLL_S


async def outcome_of(client: Client, state: dict[str, Any], *, server: Server, files: Files) -> str | Detailed | Park:
    """Return what a task came to, or when to ask again.

    Raises:
        ToolError: it failed, was stopped or is not known any more, or waits for what nobody here can give; then it is stopped.
        MCPError: the server cannot be reached; ask later.
    """
    task, name = str(state["task"]), server.name
    try:
        now = await get_task(client.session, task, timeout_s=server.timeout_s)
    except MCPError as error:
        if error.error.code == INVALID_PARAMS:
            raise ToolError(f"{name} knows nothing of this call any more: it was restarted, or the call took too long") from error
        raise
    except ValidationError as error:
        raise ToolError(f"{name} says of this call what no task can be") from error
    match now.status:
        case "completed":
            return await _read(now, name, files)
        case "failed":
            raise ToolError(bound(_why(now) or f"{name} says that the call failed, and nothing more", _MOST_TEXT_BYTES))
        case "cancelled":
            raise ToolError(f"{name} stopped this call")
        case "input_required":
            await cancel_task(client.session, task, timeout_s=server.timeout_s)
            raise ToolError(
                bound(f"{name} needs an answer before it can go on, and nobody can be asked here: {_asked(now)}", _MOST_TEXT_BYTES)
            )
        case _:
            return Park(poll=timedelta(seconds=poll_s(now.poll_interval_ms)), state=state)


async def _read(now: TaskNow, server: str, files: Files) -> str | Detailed:
    try:
        return await read_result(types.CallToolResult.model_validate(now.result or {}), files)
    except ValidationError as error:
        raise ToolError(f"{server} says that the call is done, and its result is no result") from error


def _why(now: TaskNow) -> str:
    said = (now.error or {}).get("message")
    return str(said) if said else now.status_message or ""


def _asked(now: TaskNow) -> str:
    asked = [request.get("params") for request in (now.input_requests or {}).values()]
    texts = [str(params.get("message") or "") for params in asked if params]
    return "; ".join(text for text in texts if text) or "it does not say what"
