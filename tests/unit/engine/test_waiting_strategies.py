"""Strategies that wait, in this process: for children of their own, for an answer, for a while."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.engine.strategies import Asks, Breaks, Fan, Sleeps
from turnyard import App, Limits
from turnyard.errors import AlreadyDecided
from turnyard.testing import ManualClock, ScriptedModel, wait_until


async def test_children_that_a_strategy_asks_itself_answer_in_the_order_it_declared_them_and_cost_what_they_cost() -> None:
    app = App()
    kid = app.agent("kid", model=ScriptedModel(["a"]))
    fan = app.agent("fan", model=ScriptedModel([]), strategy=Fan(), tools=[kid.as_tool()])
    result = await fan.run("3")
    assert (result.state, result.text) == ("succeeded", "a a a")
    assert [c.name for c in result.calls] == ["kid"] * 3
    assert result.usage["model_calls"] == 3


async def test_a_strategy_that_breaks_after_it_asked_for_children_leaves_none_behind() -> None:
    app = App()
    model = ScriptedModel(["never"])
    kid = app.agent("kid", model=model)
    breaks = app.agent("breaks", model=ScriptedModel([]), strategy=Breaks(), tools=[kid.as_tool()], limits=Limits(paid_attempts=1))
    session = breaks.local()
    result = await session.prompt("3")
    assert (result.state, result.calls, model.requests) == ("failed", (), [])
    assert [row.kind for row in session.memory.rows.values() if row.kind == "child"] == []


@pytest.mark.spec("turn-54")
async def test_a_question_waits_for_its_answer_takes_one_and_expires_without() -> None:
    clock = ManualClock()
    app = App()
    agent = app.agent("asks", model=ScriptedModel([]), strategy=Asks())
    session = agent.local(clock=clock)
    result = await session.prompt("5000")
    assert (result.state, [c.kind for c in result.parked]) == ("waiting", ["question"])
    assert result.parked[0].args == {"key": "ship", "text": "Ship it?"}
    result = await session.resolve(result.parked[0], "yes")
    assert (result.state, result.text) == ("succeeded", "told yes")
    with pytest.raises(AlreadyDecided):
        await session.resolve(session.memory.rows[next(iter(session.memory.rows))].call, "no")
    late = agent.local(clock=clock)
    await late.prompt("5000")
    await clock.advance(4.999)
    assert await late.expire() == []
    await clock.advance(0.001)
    assert len(await late.expire()) == 1
    assert late.messages[-1].text == "told timeout"


@pytest.mark.spec("turn-55")
async def test_a_timer_wakes_its_turn_after_its_time_and_never_before() -> None:
    clock = ManualClock()
    agent = App().agent("sleeps", model=ScriptedModel([]), strategy=Sleeps())
    run = asyncio.create_task(agent.local(clock=clock).prompt("2000"))
    await wait_until(lambda: clock.sleepers == 1, description="the run to sleep")
    for _ in range(2):
        await clock.advance(1.999)
        assert not run.done()
        await clock.advance(0.001)
    result = await run
    assert (result.state, result.text) == ("succeeded", "awake")
