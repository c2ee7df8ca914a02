"""A server of the SDK's own, as a process: `python sdk_server.py stdio` or `python sdk_server.py http PORT`.

Its tools are those named in a file (`TOOLS_FILE`, one name a line), looked at anew for each listing, so that a test may
add and remove some while it runs. What it is called with goes to `JOURNAL`, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

Context = ServerRequestContext[Any, Any]
NAMES = Path(os.environ.get("TOOLS_FILE", os.devnull))
JOURNAL = Path(os.environ.get("JOURNAL", os.devnull))
PNG = "iVBORw0KGgo="


def described(name: str) -> Tool:
    properties = {"text": {"type": "string", "description": "what to say"}, "n": {"type": "integer"}}
    hints = ToolAnnotations(read_only_hint=True) if name.startswith("get") else None
    return Tool(name=name, description=f"Do {name}.", input_schema={"type": "object", "properties": properties}, annotations=hints)


def names() -> list[str]:
    return NAMES.read_text().split() if NAMES.is_file() else ["get_echo", "set_note"]


def note(**said: Any) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(json.dumps(said) + "\n")


async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    note(listed=True, pid=os.getpid())
    found = names()
    start = int(params.cursor) if params is not None and params.cursor else 0
    page = found[start : start + 2]
    more = str(start + 2) if start + 2 < len(found) else None
    return ListToolsResult(tools=[described(name) for name in page], next_cursor=more, ttl_ms=0, cache_scope="private")


def text_of(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    arguments = params.arguments or {}
    meta = {k: v for k, v in (ctx.meta or {}).items() if not k.startswith("io.modelcontextprotocol/") and k != "progress_token"}
    sent = ctx.request.headers.items() if ctx.request is not None else ()
    headers = {k: v for k, v in sent if k.startswith(("x-", "authorization"))}
    note(tool=params.name, arguments=arguments, meta=meta, headers=headers, pid=os.getpid())
    if params.name not in names():
        return text_of(f"Unknown tool: {params.name}", is_error=True)
    special = SPECIAL.get(params.name)
    return await special(ctx) if special is not None else text_of(f"{params.name}: {arguments.get('text', '')}")


async def get_image(ctx: Context) -> CallToolResult:
    return CallToolResult(content=[ImageContent(type="image", data=PNG, mime_type="image/png"), TextContent(type="text", text="a picture")])


async def get_json(ctx: Context) -> CallToolResult:
    return CallToolResult(content=[], structured_content={"rows": [1, 2]})


async def get_progress(ctx: Context) -> CallToolResult:
    await ctx.session.report_progress(1, 4, "a quarter")
    return text_of("done")


async def fail(ctx: Context) -> CallToolResult:
    return text_of("the order is locked", is_error=True)


async def change(ctx: Context) -> CallToolResult:
    await BUS.publish(ToolsListChanged())
    return text_of("changed")


async def touch(ctx: Context) -> CallToolResult:
    await BUS.publish(ResourceUpdated(uri="note://one"))
    return text_of("touched")


SPECIAL = {one.__name__: one for one in (get_image, get_json, get_progress, fail, change, touch)}
BUS = InMemorySubscriptionBus()
SERVER: Server[Any] = Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=ListenHandler(BUS))


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await SERVER.run(read, write, SERVER.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asyncio.run(over_stdio())
    else:
        uvicorn.run(SERVER.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
