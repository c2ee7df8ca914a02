"""A server that answers calls with tasks, as the extension `io.modelcontextprotocol/tasks` says: `python tasks_server.py http PORT`.

The SDK's own server cannot answer so. What a task comes to is in a file named after the task's tool (`OUTCOMES/TOOL.json`,
the fields of its state), read anew for each question; without the file it works on. While there is a file `slow`, questions are not answered. What it was asked goes to `JOURNAL`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

JOURNAL = Path(os.environ["JOURNAL"])
OUTCOMES = JOURNAL.parent
VERSION = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
TOOLS = ("render", "quick", "steady")


def note(**said: Any) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(json.dumps(said) + "\n")


def task(name: str, **more: Any) -> dict[str, Any]:
    return {
        "taskId": name,
        "status": "working",
        "createdAt": "2026-11-30T10:00:00Z",
        "lastUpdatedAt": "2026-11-30T10:00:00Z",
        "ttlMs": 600_000,
        "pollIntervalMs": int(os.environ.get("POLL_MS", "1000")),
        **more,
    }


def discover(_: dict[str, Any]) -> dict[str, Any]:
    return {
        "resultType": "complete",
        "supportedVersions": [VERSION],
        "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
        "ttlMs": 0,
        "cacheScope": "private",
    }


def list_tools(_: dict[str, Any]) -> dict[str, Any]:
    tools = [
        {"name": name, "description": name, "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}} for name in TOOLS
    ]
    return {"resultType": "complete", "tools": tools, "ttlMs": 3_600_000, "cacheScope": "private"}


def call_tool(params: dict[str, Any]) -> dict[str, Any]:
    extensions = params["_meta"].get("io.modelcontextprotocol/clientCapabilities", {}).get("extensions", {})
    note(call=params["name"], knows=TASKS in extensions, key=params["_meta"].get("turnyard/idempotency-key"))
    if params["name"] == "quick" or TASKS not in extensions:
        return {"resultType": "complete", "content": [{"type": "text", "text": "done at once"}]}
    return task(f"{params['name']}-1", resultType="task")


def get_task(params: dict[str, Any]) -> dict[str, Any]:
    name = params["taskId"]
    note(get=name)
    path = OUTCOMES / f"{name.partition('-')[0]}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if known.get("status") == "lost":
        raise KeyError(name)
    return task(name, resultType="complete", **known)


def cancel_task(params: dict[str, Any]) -> dict[str, Any]:
    note(cancel=params["taskId"])
    return {"resultType": "complete"}


METHODS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "server/discover": discover,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "tasks/get": get_task,
    "tasks/cancel": cancel_task,
}


async def serve(request: Request) -> JSONResponse:
    message = await request.json()
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    if message["method"] == "tasks/get":
        note(asked=message["params"]["taskId"])
        while (OUTCOMES / "slow").exists():  # noqa: ASYNC110 - the file is the test's
            await asyncio.sleep(0.02)
    try:
        answer["result"] = METHODS[message["method"]](message.get("params") or {})
    except KeyError as error:
        code = -32602 if message["method"] in METHODS else -32601
        answer["error"] = {"code": code, "message": f"nothing known of {error}"}
    return JSONResponse(answer)


if __name__ == "__main__":
    uvicorn.run(Starlette(routes=[Route("/mcp", serve, methods=["POST"])]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
