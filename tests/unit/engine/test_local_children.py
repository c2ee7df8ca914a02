"""Agents that ask agents in this process: several at once, results in declared order, and no deeper than they may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from turnyard import App, Park, tool
from turnyard.engine.bus import ToolExecutionEnd, ToolExecutionStart
from turnyard.ports import AskedCall, Delta, Done, ModelRequest
from turnyard.records.children import MOST_DEEP
from turnyard.testing import ScriptedModel, call, wait_until


class Kid:
    """A model that answers each task when it is told to, in any order."""

    def __init__(self) -> None:
        self.working: dict[str, asyncio.Future[str]] = {}
        self.most = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        task = str(request.messages[-1]["content"])
        self.working[task] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.working))
        try:
            yield Done(await self.working[task], usage={"input_tokens": 1, "output_tokens": 2})
        finally:
            del self.working[task]

    async def aclose(self) -> None:
        pass

    async def answer(self, *tasks: str) -> None:
        for task in tasks:
            await self.works_on(task)
            self.working[task].set_result(f"done {task}")
            await wait_until(lambda done=task: done not in self.working, description=f"{task} to be answered")

    async def works_on(self, task: str) -> None:
        await wait_until(lambda: task in self.working, description=f"{task} to be asked")


def asking(*tasks: str) -> list[Any]:
    return [call("kid", input=task) for task in tasks]


async def test_children_work_at_the_same_time_and_their_results_stand_in_the_order_of_their_calls() -> None:
    app, kid = App(), Kid()
    child = app.agent("kid", model=kid)
    boss = app.agent("boss", model=ScriptedModel([asking("a", "b", "c"), "all done"]), tools=[child.as_tool()])
    session = boss.local()
    told: list[str] = []
    session.bus.subscribe(
        lambda e: (
            told.append(f"{type(e).__name__} {getattr(e, 'call', '')}") if isinstance(e, ToolExecutionStart | ToolExecutionEnd) else None
        )
    )
    run = asyncio.create_task(session.prompt("go"))
    await kid.answer("c", "a", "b")
    result = await run
    assert (result.state, result.text, kid.most) == ("succeeded", "all done", 3)
    assert [(c.name, c.content) for c in result.calls] == [("kid", f"done {t}") for t in "abc"]
    results = [e.body for e in session.entries if e.type == "tool/result"]
    assert [r["content"] for r in results] == ["done a", "done b", "done c"]
    assert len({r["session"] for r in results}) == 3
    # Two asks of its own, and one of each child, each counted once.
    assert (result.usage["model_calls"], result.usage["output_tokens"]) == (5, 8)
    assert [word.split()[0] for word in told] == ["ToolExecutionStart"] * 3 + ["ToolExecutionEnd"] * 3


async def test_a_turn_that_does_not_wait_for_its_child_hears_of_it_later() -> None:
    app, kid = App(), Kid()
    child = app.agent("kid", model=kid)
    boss = app.agent("boss", model=ScriptedModel([asking("a"), "meanwhile", "heard"]), tools=[child.as_tool(wait=False)])
    run = asyncio.create_task(boss.run("go"))
    await kid.answer("a")
    result = await run
    assert (result.text, result.calls[0].content) == ("heard", "done a")


async def test_a_child_that_fails_is_told_with_its_code() -> None:
    @tool(park=60)
    async def order() -> Any:
        """Order."""
        return Park("ordered", wait=True)

    app = App()
    quiet = app.agent("quiet", model=ScriptedModel([]))
    waits = app.agent("waits", model=ScriptedModel([[call("order")], "ordered"]), tools=[order])
    asked = [[call("quiet", input="x"), call("waits", input="y"), call("quiet", input=" ")], "sorry"]
    boss = app.agent("boss", model=ScriptedModel(asked), tools=[quiet.as_tool(), waits.as_tool()])
    result = await boss.run("go")
    assert result.state == "succeeded"
    failed, waiting, empty = [str(c.content) for c in result.calls]
    assert failed.startswith("ERROR: quiet failed (")
    assert "waits for order" in waiting or "ordered" in waiting
    assert "some text" in empty
    assert all(c.is_error for c in (result.calls[0], result.calls[2]))


class Deeper:
    """A model that asks its own agent again and again, and hands on what comes back."""

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        self.asked += 1
        if request.messages[-1]["role"] == "tool":
            yield Done(str(request.messages[-1]["content"]))
        else:
            yield Done("", (AskedCall("c", "kid", json.dumps({"input": "deeper"})),), finish="tool_calls")

    async def aclose(self) -> None:
        pass


async def test_agents_ask_each_other_only_so_deep() -> None:
    app, model = App(), Deeper()
    kid = app.agent("kid", model=model)
    kid.add(kid.as_tool())
    result = await kid.run("go")
    assert f"{MOST_DEEP} deep" in result.text
    assert model.asked == 2 * (MOST_DEEP + 1)


async def test_an_abort_stops_the_children_too() -> None:
    app, kid = App(), Kid()
    child = app.agent("kid", model=kid)
    boss = app.agent("boss", model=ScriptedModel([asking("a", "b"), "no"]), tools=[child.as_tool()])
    session = boss.local()
    run = asyncio.create_task(session.prompt("go"))
    await kid.answer("a")
    await kid.works_on("b")
    session.abort()
    result = await run
    assert (result.state, kid.working) == ("cancelled", {})
    assert [c.outcome for c in result.calls] == ["result", "cancelled"]


async def test_a_child_works_with_what_it_was_overridden_with() -> None:
    app = App()
    kid = app.agent("kid", model="nobody:has-it")
    boss = app.agent("boss", model=ScriptedModel([asking("a"), "fine"]), tools=[kid.as_tool()])
    with kid.override(model=ScriptedModel(["from the test"])):
        result = await boss.run("go")
    assert result.calls[0].content == "from the test"
