"""The doubles that users test their agents with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from turnyard.errors import ConfigError, ModelError
from turnyard.ports import Done, ModelRequest, Provider
from turnyard.testing import ManualClock, ScriptedModel, TestModel, call, sample, wait_until
from turnyard.tools import ToolContext, run_tool, tool

USER = {"role": "user", "content": "x"}
SAID = {"role": "assistant", "content": "x"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}


class Inner(BaseModel):
    n: int = Field(gt=3)
    next: Inner | None = None


@tool
async def everything(
    ctx: ToolContext[Any],
    a: int,
    b: list[Inner],
    c: Literal["x", "y"],
    d: dict[str, int],
    e: bool,
    f: float,
    g: str,
    h: Inner,
    i: tuple[int, str],
    j: int = 1,
) -> str:
    """Take everything."""
    return f"{a} {b} {c} {d} {e} {f} {g} {h} {i} {j}"


async def ask(model: Provider, *messages: dict[str, Any], tools: Sequence[Any] = ()) -> Done:
    items = [item async for item in model.stream(ModelRequest("m", messages, [t.spec() for t in tools]))]
    assert isinstance(items[-1], Done)
    return items[-1]


async def test_a_scripted_model_gives_the_answer_with_the_number_of_assistant_messages() -> None:
    model = ScriptedModel([call("order", part="x"), "ordered", [call("a"), call("b", name="n")], ModelError("down")])
    first = await ask(model, USER)
    assert [(c.name, json.loads(c.arguments)) for c in first.calls] == [("order", {"part": "x"})]
    assert (await ask(model, USER, SAID)).text == "ordered"
    assert (await ask(model, USER)).calls == first.calls
    assert [c.arguments for c in (await ask(model, USER, SAID, USER, SAID)).calls] == ["{}", '{"name":"n"}']
    with pytest.raises(ModelError, match="down"):
        await ask(model, SAID, SAID, SAID)
    with pytest.raises(ModelError, match="4 answers and was asked for number 5"):
        await ask(model, SAID, SAID, SAID, SAID)
    assert len(model.requests) == 6


async def test_a_test_model_calls_the_tools_once_and_tells_their_results() -> None:
    model = TestModel(call_tools=["everything"])
    first = await ask(model, USER, tools=[everything])
    (asked,) = first.calls
    outcome = await run_tool(everything, json.loads(asked.arguments), ToolContext.fake())
    assert not outcome.is_error
    assert (await ask(model, USER, CALLED, {"role": "tool", "content": outcome.content}, tools=[everything])).text == outcome.content
    assert (await ask(model, USER, CALLED, USER, tools=[everything])).calls


async def test_a_test_model_that_is_to_call_a_missing_tool_says_what_there_is() -> None:
    with pytest.raises(ConfigError, match="call ad, but the agent has everything"):
        await ask(TestModel(call_tools=["ad"]), USER, tools=[everything])
    assert (await ask(TestModel(call_tools=[]), USER)).text == "done"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer", "maximum": -2}, -3),
        ({"type": "number", "exclusiveMinimum": 2}, 3),
        ({"type": "string", "minLength": 3}, "aaa"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"const": 7}, 7),
        ({"anyOf": [{"type": "null"}]}, None),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [False, False]),
        ({}, None),
    ],
)
def test_a_sample_fits_its_schema(schema: dict[str, Any], value: Any) -> None:
    assert sample(schema) == value


async def test_sleepers_wake_in_order_each_at_its_own_time() -> None:
    clock = ManualClock(now_ms=1000)
    woke: list[tuple[str, float]] = []

    async def sleep(name: str, *naps: float) -> None:
        for nap in naps:
            await clock.sleep(nap)
            woke.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep("a", 3))
        group.create_task(sleep("b", 1, 1, 1.5))
        await wait_until(lambda: clock.sleepers == 2, description="both to sleep")
        await clock.advance(3)
        assert woke == [("b", 1), ("b", 2), ("a", 3)]
        assert (clock.now_ms(), clock.sleepers) == (4000, 1)
        await clock.advance(1)
    assert woke[-1] == ("b", 3.5)


async def test_a_sleep_that_was_cancelled_is_forgotten() -> None:
    clock = ManualClock()
    sleeping = asyncio.ensure_future(clock.sleep(1))
    await wait_until(lambda: clock.sleepers == 1, description="the sleep to begin")
    sleeping.cancel()
    await wait_until(lambda: clock.sleepers == 0, description="the sleep to end")
    await clock.advance(2)
    assert clock.monotonic() == 2


async def test_waiting_in_vain_says_for_what() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(TimeoutError, match="for the end of time"):
        await wait_until(never, description="the end of time", timeout_s=0.01)
