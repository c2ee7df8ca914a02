"""Tasks of MCP servers: a call that the server answers with the name of a task, which is asked about until it is done.

This is the extension `io.modelcontextprotocol/tasks` of the protocol of 2026. A server may answer so because the client
says with each request that it knows the extension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired

import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

EXTENSION = "io.modelcontextprotocol/tasks"
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class _Task(types.Result):
    model_config = ConfigDict(populate_by_name=True)

    task_id: str = Field(alias="taskId", max_length=1024)
    status: Status
    ttl_ms: int | None = Field(default=None, alias="ttlMs")
    status_message: str | None = Field(default=None, alias="statusMessage")
    poll_interval_ms: int | None = Field(default=None, alias="pollIntervalMs")


class TaskMade(_Task):
    """What a call is answered with that the server runs as a task."""

    result_type: Literal["task"] = Field(alias="resultType")


class _Asked(TypedDict):
    params: NotRequired[dict[str, Any]]


class TaskNow(_Task):
    """How a task is by now: with its result, its error, or what it asks for."""

    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, _Asked] | None = Field(default=None, alias="inputRequests")


class TaskParams(types.RequestParams):
    """Which task is meant."""

    model_config = ConfigDict(populate_by_name=True)

    task_id: str = Field(serialization_alias="taskId")


class _GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class _CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


class Tasks(ClientExtension):
    """The client's half: it says that answers may be tasks, and takes them as they are."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the shape of an answer that is a task."""
        return (ResultClaim(result_type="task", model=TaskMade, resolve=_unresolved),)


async def _unresolved(_made: TaskMade, _ctx: ClaimContext) -> types.CallToolResult:
    raise NotImplementedError("a task is parked by whoever made the call")


async def get_task(session: ClientSession, task: str, *, timeout_s: float) -> TaskNow:
    """Ask how a task is.

    Raises:
        MCPError: the server refuses, or cannot be reached; with INVALID_PARAMS it knows no such task.
    """
    return await session.send_request(_GetTask(params=TaskParams(task_id=task)), TaskNow, request_read_timeout_seconds=timeout_s)


async def cancel_task(session: ClientSession, task: str, *, timeout_s: float) -> None:
    """Ask for a task to be stopped; the server may go on with it all the same.

    Raises:
        MCPError: the server refuses, or cannot be reached.
    """
    await session.send_request(_CancelTask(params=TaskParams(task_id=task)), types.Result, request_read_timeout_seconds=timeout_s)
