"""Does a server of the protocol of 2025 over HTTP, which keeps sessions, work, and is a session that it forgot opened anew?"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.peers import peer_node
from tests.processes import free_port
from tests.servers import leash
from turnyard import MCP, ToolContext
from turnyard.testing import wait_until
from turnyard.tools.runtime import ToolOutcome, run_tool

DOUBLE = ("@copilotkit/aimock@1.43.0", "@copilotkit/aimock/dist/aimock-cli.js")
CONFIG = {
    "mcp": {
        "tools": [
            {
                "name": "search",
                "description": "Search.",
                "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
                "result": "nothing",
            }
        ]
    }
}


@contextmanager
def double(directory: Path, port: int) -> Generator[subprocess.Popen[bytes]]:
    """Run the double for the length of the block."""
    config = directory / "config.json"
    config.write_text(json.dumps(CONFIG))
    with (directory / "double.log").open("ab") as log:
        process = subprocess.Popen(
            [*leash(), *peer_node(*DOUBLE), "-c", str(config), "-p", str(port)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@pytest.mark.timeout(300)
async def test_a_server_of_the_older_protocol_works_and_its_forgotten_session_is_opened_anew(tmp_path: Path) -> None:
    port = free_port()
    server = MCP(f"http://127.0.0.1:{port}/mcp", name="older")
    try:
        with double(tmp_path, port):
            await wait_until(lambda: answers(port), description="the double to answer", timeout_s=30)
            (search,) = await server.list_tools()
            assert await run_tool(search, {"query": "x"}, ToolContext.fake()) == ToolOutcome("nothing")
        with double(tmp_path, port):
            await wait_until(lambda: answers(port), description="the double to answer again", timeout_s=30)
            outcomes: list[ToolOutcome] = []

            async def works_again() -> bool:
                outcomes.append(await run_tool(search, {"query": "x"}, ToolContext.fake()))
                return not outcomes[-1].is_error

            await wait_until(works_again, description="the session to be opened anew")
            assert [o.content for o in outcomes if o.is_error] == [
                "the connection to older was lost during the call; whether search took effect is not known"
            ]
    finally:
        await server.aclose()
