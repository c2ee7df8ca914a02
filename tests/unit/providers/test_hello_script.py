"""What the script of the first example answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnyard.ports import Delta, Done, ModelRequest, ToolSpec
from turnyard.providers import open_provider
from turnyard.testing import ManualClock

ADD = ToolSpec("add", "", {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})
USER, SAID = "user", "assistant"


async def ask(root: Path, *messages: tuple[str, str]) -> Done:
    provider, name = open_provider("scripted:hello.yaml", base_dir=root / "examples", clock=ManualClock())
    shaped: list[dict[str, Any]] = [{"role": role, "content": content} for role, content in messages]
    items = [item async for item in provider.stream(ModelRequest(name, shaped, [ADD]))]
    assert isinstance(items[-1], Done)
    return items[-1]


async def test_adding_calls_the_tool_and_tells_its_result(root: Path) -> None:
    first = await ask(root, (USER, "add 2 and 3"))
    assert [(c.name, c.arguments) for c in first.calls] == [("add", '{"a":2,"b":3}')]
    assert "5" in (await ask(root, (USER, "add 2 and 3"), (SAID, ""), ("tool", "5"))).text


async def test_an_order_is_acknowledged_and_its_arrival_told(root: Path) -> None:
    order = [(USER, "order a part"), (SAID, ""), ("tool", "Pending: ...")]
    assert [(c.name, c.arguments) for c in (await ask(root, *order[:1])).calls] == [("order", '{"part":"part"}')]
    assert "ordered a part" in (await ask(root, *order)).text
    late = (USER, "[order call_1] result for the earlier pending call: the part has arrived")
    assert (await ask(root, *order, (SAID, "ordered"), late)).text == "The part has arrived."


@pytest.mark.parametrize("earlier", [0, 1, 2, 5])
async def test_anything_else_is_answered_with_what_can_be_asked(root: Path, earlier: int) -> None:
    answer = await ask(root, *[(USER, "hi"), (SAID, "hello")] * earlier, (USER, "hi"))
    assert "add 2 and 3" in answer.text
    assert answer.calls == ()


async def test_counting_streams_slowly_enough_to_kill_a_worker_meanwhile(root: Path) -> None:
    clock = ManualClock()
    provider, name = open_provider("scripted:hello.yaml", base_dir=root / "examples", clock=clock)
    asked = ModelRequest(name, [{"role": USER, "content": "count slowly"}])
    pieces: list[float] = []

    async def listen() -> None:
        async for item in provider.stream(asked):
            pieces.extend([clock.monotonic()] if isinstance(item, Delta) else [])

    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        await clock.advance(60)
    assert len(pieces) >= 10
    assert pieces[-1] - pieces[0] >= 5
