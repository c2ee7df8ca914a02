"""A server made with fastmcp and fastmcp-tasks, run by a Python that has them: `python fastmcp_server.py http PORT`.

It keeps its tasks in its own memory. A task waits for the file `OUTCOMES/go`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

HERE = Path(os.environ["JOURNAL"]).parent
mcp = FastMCP("peer")
mcp.add_extension(TasksExtension(url="memory://"))


@mcp.tool(task=True)
async def render(text: str) -> str:
    """Render a scene."""
    while not (HERE / "go").exists():  # noqa: ASYNC110 - the file is the test's
        await asyncio.sleep(0.02)
    if text == "bad":
        raise ValueError("no such scene")
    return f"rendered {text}"


@mcp.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
