"""Calls that outlast their turn in a session of this process: long bodies, looks by the session's clock, what vendors post."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, Limits, Park, Tool, ToolContext, ToolError, tool
from turnyard.engine.local import LocalSession
from turnyard.errors import AlreadyDecided
from turnyard.records.log import RESULT
from turnyard.testing import ManualClock, ScriptedModel, call, wait_until


def results(session: LocalSession) -> list[tuple[str | None, bool, str | None]]:
    return [(r.outcome, r.aside, r.body.get("content")) for r in session.entries if r.type == RESULT]


class Warehouse:
    """Makes exports, and counts what it is asked. A look finds what is in `ready`."""

    def __init__(self, **park: Any) -> None:
        self.started = 0
        self.looks: list[Any] = []
        self.ready = ""
        self.fails = 0

        @tool
        async def export(ctx: ToolContext[Any], name: str) -> str | Park:
            """Export something."""
            self.started += 1
            return Park("it is made", poll=5, state={"job": name}, **park)

        @export.poll
        async def exported(ctx: ToolContext[Any], state: dict[str, Any]) -> str | Park | None:
            """Look whether it is there."""
            self.looks.append(state)
            if self.fails:
                self.fails -= 1
                raise RuntimeError("secret detail")
            if self.ready == "lost":
                raise ToolError("it is lost")
            return self.ready or (Park(poll=60, state={"job": "slower"}) if len(self.looks) == 2 else None)

        self.tool: Tool[..., Any] = export
        self.poller = exported


def session(*tools: Tool[..., Any], answers: list[Any], clock: ManualClock | None = None, parallel: int = 1) -> LocalSession:
    agent = App().agent("a", model=ScriptedModel(answers), tools=list(tools), limits=Limits(parallel_tools=parallel))
    return agent.local(clock=clock) if clock else agent.local()


# -- looks


async def test_a_call_is_looked_at_by_the_sessions_clock_until_its_result_is_there() -> None:
    house, clock = Warehouse(), ManualClock()
    talk = session(house.tool, answers=[[call("export", name="x")], "it is under way", "there it is"], clock=clock)
    running = asyncio.ensure_future(talk.prompt("export x"))
    await clock.advance(4.9)
    assert house.looks == []
    await clock.advance(0.1)
    assert house.looks == [{"job": "x"}]
    house.fails = 1
    await clock.advance(5)
    assert len(house.looks) == 2
    await clock.advance(5)
    await clock.advance(5)
    house.ready = "the file"
    await clock.advance(60)
    result = await running
    assert (result.state, result.text, house.started) == ("succeeded", "there it is", 1)
    assert [(o, a) for o, a, _ in results(talk)] == [("placeholder", False), ("result", True)]
    assert results(talk)[1][2] == "the file"


async def test_a_look_may_change_when_and_how_the_next_one_is_made() -> None:
    house, clock = Warehouse(wait=True), ManualClock()
    talk = session(house.tool, answers=[[call("export", name="x")], "there it is"], clock=clock)
    running = asyncio.ensure_future(talk.prompt("export x"))
    await clock.advance(5)
    await clock.advance(5)
    await clock.advance(59)
    assert house.looks == [{"job": "x"}] * 2
    house.ready = "the file"
    await clock.advance(1)
    assert (await running).text == "there it is"
    assert house.looks[-1] == {"job": "slower"}
    assert results(talk) == [("result", False, "the file")]


async def test_a_call_that_is_looked_at_in_vain_times_out() -> None:
    house, clock = Warehouse(wait=True, expires_in=timedelta(seconds=12)), ManualClock()
    talk = session(house.tool, answers=[[call("export", name="x")], "sorry"], clock=clock)
    running = asyncio.ensure_future(talk.prompt("export x"))
    for _ in range(3):
        await clock.advance(5)
    assert (await running).text == "sorry"
    assert [o for o, _, _ in results(talk)] == ["timeout"]


async def test_a_tool_error_of_a_look_is_the_result() -> None:
    house, clock = Warehouse(wait=True), ManualClock()
    house.ready = "lost"
    talk = session(house.tool, answers=[[call("export", name="x")], "sorry"], clock=clock)
    running = asyncio.ensure_future(talk.prompt("export x"))
    await clock.advance(5)
    await running
    assert results(talk) == [("error", False, "it is lost")]


# -- long bodies


class Slow:
    """A tool whose body ends when it is told to."""

    def __init__(self, **options: Any) -> None:
        self.ran = 0
        self.stopped: list[bool] = []
        self.gate = asyncio.Event()

        @tool(lift_after=0.01, **options)
        async def slow(ctx: ToolContext[Any], name: str) -> str:
            """Take long."""
            self.ran += 1
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.stopped.append(ctx.cancelled)
                raise
            return f"{name} took long"

        self.tool: Tool[..., Any] = slow


async def test_a_body_that_takes_long_goes_on_beside_the_turn_and_runs_once() -> None:
    slow = Slow()
    talk = session(slow.tool, answers=[[call("slow", name="x")], "meanwhile", "there it is"])
    running = asyncio.ensure_future(talk.prompt("go"))
    await wait_until(lambda: any(m.text == "meanwhile" for m in talk.messages), description="the model to go on")
    assert (slow.ran, [p.tool for p in talk.parked]) == (1, ["slow"])
    slow.gate.set()
    result = await running
    assert (result.state, result.text, slow.ran) == ("succeeded", "there it is", 1)
    assert [(o, a) for o, a, _ in results(talk)] == [("placeholder", False), ("result", True)]


async def test_a_turn_may_wait_for_its_long_bodies_which_go_on_side_by_side() -> None:
    slow = Slow(wait=True)
    both = [call("slow", name="x"), call("slow", name="y")]
    talk = session(slow.tool, answers=[both, "there they are"], parallel=2)
    running = asyncio.ensure_future(talk.prompt("go"))
    await wait_until(lambda: len(talk.parked) == 2, description="both to be let go")
    slow.gate.set()
    assert (await running).text == "there they are"
    assert results(talk) == [("result", False, "x took long"), ("result", False, "y took long")]


async def test_an_abort_stops_a_body_beside_its_turn() -> None:
    slow = Slow()
    talk = session(slow.tool, answers=[[call("slow", name="x")], "meanwhile"])
    running = asyncio.ensure_future(talk.prompt("go"))
    await wait_until(lambda: any(m.text == "meanwhile" for m in talk.messages), description="the model to go on")
    talk.abort()
    await running
    assert slow.stopped == [True]
    assert (talk.parked, talk.memory.state) == ((), "ready")


async def test_a_long_body_over_its_time_says_so() -> None:
    slow = Slow(timeout=0.1, wait=True)
    talk = session(slow.tool, answers=[[call("slow", name="x")], "sorry"])
    assert (await talk.prompt("go")).text == "sorry"
    assert results(talk) == [("error", False, "slow timed out after 0.1 s; its effect is unknown")]


async def test_a_quick_body_of_such_a_tool_is_an_ordinary_call() -> None:
    slow = Slow()
    slow.gate.set()
    talk = session(slow.tool, answers=[[call("slow", name="x")], "done"])
    assert (await talk.prompt("go")).text == "done"
    assert results(talk) == [("result", False, "x took long")]


# -- what vendors post


def ordering() -> tuple[Tool[..., Any], list[Any]]:
    read: list[Any] = []

    @tool(park=timedelta(hours=1))
    async def order(part: str) -> str | Park:
        """Order a part."""
        return Park("ordered", wait=True)

    @order.resolve
    async def ordered(ctx: ToolContext[Any], body: Any) -> str | None:
        """Read what the vendor posts."""
        read.append(body)
        if body == "oops":
            raise RuntimeError("secret detail")
        return None if body == "paid" else str(body["part"])

    assert order.resolver is ordered
    return order, read


async def test_a_resolver_reads_what_comes_until_that_is_the_result() -> None:
    order, read = ordering()
    talk = session(order, answers=[[call("order", part="x")], "it came"])
    waiting = await talk.prompt("order x")
    assert waiting.state == "waiting"
    assert (await talk.resolve(waiting.parked[0], raw="paid")).state == "waiting"
    assert (await talk.resolve(waiting.parked[0], raw="oops")).state == "waiting"
    assert (await talk.resolve(waiting.parked[0], raw={"part": "part 7"})).text == "it came"
    assert read == ["paid", "oops", {"part": "part 7"}]
    assert results(talk) == [("result", False, "part 7")]
    with pytest.raises(AlreadyDecided):
        await talk.resolve(waiting.parked[0], raw={"part": "part 8"})


async def test_without_a_resolver_what_comes_is_the_result() -> None:
    @tool(park=timedelta(hours=1))
    async def order(part: str) -> Park:
        """Order a part."""
        return Park("ordered", wait=True)

    talk = session(order, answers=[[call("order", part="x")], "it came"])
    waiting = await talk.prompt("order x")
    await talk.resolve(waiting.parked[0], raw={"part": 7})
    assert results(talk) == [("result", False, '{"part":7}')]
