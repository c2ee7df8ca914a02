"""Are calls that a server runs as tasks left parked, looked after, and ended, whatever becomes of the task?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.mcp.places import HERE, Place, http_server
from tests.peers import peer_python
from turnyard import MCP, Tool
from turnyard.testing import wait_until
from turnyard.tools.context import ToolContext
from turnyard.tools.later import NotYet, look
from turnyard.tools.park import Park
from turnyard.tools.runtime import ToolOutcome, run_tool

TASKS = str(HERE / "tasks_server.py")
FASTMCP = str(HERE / "fastmcp_server.py")
PEER = ("fastmcp-tasks==4.1.4",)


@pytest.fixture
def url(place: Place) -> Iterator[str]:
    """A server that answers with tasks."""
    with http_server(place, TASKS) as found:
        yield found


@asynccontextmanager
async def tools_of(url: str, **options: Any) -> AsyncIterator[dict[str, Tool[..., Any]]]:
    server = MCP(url, name="crm", **options)
    try:
        yield {tool.name: tool for tool in await server.list_tools()}
    finally:
        await server.aclose()


async def left(tool: Tool[..., Any], **arguments: Any) -> Park:
    """Call a tool that leaves its call parked."""
    outcome = await run_tool(tool, arguments, ToolContext.fake())
    assert outcome.park is not None, outcome
    return outcome.park


async def test_a_call_that_becomes_a_task_is_parked_until_the_task_is_forgotten_and_looked_after_as_the_server_likes(
    url: str, place: Place
) -> None:
    async with tools_of(url) as tools:
        park = await left(tools["render"])
        assert (park.expires_in, park.poll, park.wait) == (timedelta(seconds=600), timedelta(seconds=1), False)
        assert park.state == {"server": "crm", "task": "render-1", "tool": "render"}
        assert await run_tool(tools["quick"], {}, ToolContext.fake()) == ToolOutcome("done at once")
    async with tools_of(url, wait=True) as tools:
        assert (await left(tools["render"])).wait
    assert [line["knows"] for line in place.said() if "call" in line] == [True, True, True]


async def test_a_server_that_may_not_answer_with_tasks_is_not_told_that_it_could(url: str, place: Place) -> None:
    async with tools_of(url, tasks=False) as tools:
        assert await run_tool(tools["render"], {}, ToolContext.fake()) == ToolOutcome("done at once")
        assert tools["render"].queue is None
    assert [line["knows"] for line in place.said() if "call" in line] == [False]


TOLD: list[tuple[dict[str, Any], ToolOutcome]] = [
    ({"status": "completed", "result": {"content": [{"type": "text", "text": "rendered"}]}}, ToolOutcome("rendered")),
    ({"status": "completed", "result": {"content": [{"type": "text", "text": "no"}], "isError": True}}, ToolOutcome("no", is_error=True)),
    (
        {"status": "completed", "result": {"content": 5}},
        ToolOutcome("crm says that the call is done, and its result is no result", is_error=True),
    ),
    ({"status": "failed", "error": {"code": -1, "message": "out of ink"}}, ToolOutcome("out of ink", is_error=True)),
    ({"status": "failed"}, ToolOutcome("crm says that the call failed, and nothing more", is_error=True)),
    ({"status": "cancelled"}, ToolOutcome("crm stopped this call", is_error=True)),
    ({"status": "confused"}, ToolOutcome("crm says of this call what no task can be", is_error=True)),
    (
        {"status": "lost"},
        ToolOutcome("crm knows nothing of this call any more: it was restarted, or the call took too long", is_error=True),
    ),
    (
        {"status": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": {"message": "Which colour?"}}}},
        ToolOutcome("crm needs an answer before it can go on, and nobody can be asked here: Which colour?", is_error=True),
    ),
]


async def test_what_a_task_comes_to_is_what_the_model_is_told(url: str, place: Place) -> None:
    async with tools_of(url) as tools:
        state = (await left(tools["render"])).state
        for told, outcome in TOLD:
            (place.directory / "render.json").write_text(json.dumps(told))
            assert await look(tools["render"], state, ToolContext.fake()) == outcome
    assert place.said(cancel="render-1") == [{"cancel": "render-1"}], "what waits for an answer is stopped"


async def test_a_task_that_works_on_is_asked_about_again(url: str, place: Place) -> None:
    async with tools_of(url) as tools:
        state = (await left(tools["render"])).state
        (place.directory / "render.json").write_text(json.dumps({"status": "working", "pollIntervalMs": 7000}))
        found = await look(tools["render"], state, ToolContext.fake())
        assert isinstance(found, NotYet)
        assert found.request == {"poll_ms": 7000, "state": state}


async def test_a_server_that_is_away_is_asked_again_and_the_call_waits_on(place: Place) -> None:
    with http_server(place, TASKS) as url:
        server = MCP(url, name="crm")
        tool = next(tool for tool in await server.list_tools() if tool.name == "render")
        state = (await left(tool)).state
    try:
        found = [await look(tool, state, ToolContext.fake()) for _ in range(2)]
        assert [isinstance(each, NotYet) and each.failed is not None for each in found] == [True, True]
    finally:
        await server.aclose()


async def test_one_that_is_cancelled_while_it_is_looked_after_stops_the_task(url: str, place: Place) -> None:
    (place.directory / "slow").touch()
    async with tools_of(url) as tools:
        looking = asyncio.ensure_future(look(tools["render"], (await left(tools["render"])).state, ToolContext.fake()))
        await wait_until(lambda: place.said(asked="render-1") != [], description="the task to be asked about")
        looking.cancel()
        await asyncio.wait({looking})
        assert looking.cancelled()
    await wait_until(lambda: place.said(cancel="render-1") != [], description="the task to be stopped")


@pytest.mark.timeout(300)
async def test_tasks_of_fastmcp_are_left_and_looked_after_and_come_to_their_ends(place: Place) -> None:
    with http_server(place, FASTMCP, python=peer_python(*PEER)) as url:
        async with tools_of(url) as tools:
            assert await run_tool(tools["add"], {"a": 1, "b": 2}, ToolContext.fake()) == ToolOutcome("3", details={"result": 3})
            good, bad = [await left(tools["render"], text=text) for text in ("scene", "bad")]
            assert isinstance(await look(tools["render"], good.state, ToolContext.fake()), NotYet)
            (place.directory / "go").touch()
            found: dict[str, ToolOutcome] = {}

            async def ended() -> bool:
                for name, park in (("good", good), ("bad", bad)):
                    seen = await look(tools["render"], park.state, ToolContext.fake())
                    if isinstance(seen, ToolOutcome):
                        found[name] = seen
                return len(found) == 2

            await wait_until(ended, description="both tasks to end", timeout_s=30)
            assert (found["good"].content, found["good"].is_error) == ("rendered scene", False)
            assert found["bad"].is_error
            assert "no such scene" in found["bad"].content
