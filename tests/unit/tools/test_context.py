"""What a tool may know and do while it runs, and that a unit test can see what it did."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, ConfigError, Park, ToolContext, tool
from turnyard.errors import NotFound
from turnyard.testing import ManualClock, ScriptedModel, call
from turnyard.tools.context import SENT_BYTES


@tool
async def publish(ctx: ToolContext[str], text: str) -> str:
    """Publish."""
    await ctx.progress(0.5, "half")
    await ctx.send(f"publishing for {ctx.deps}")
    await ctx.send("  ")
    ref = await ctx.files.put(text, name="text.txt", media_type="text/plain")
    await ctx.progress(7, "done")
    return f"{ref.id} {ref.size} {(await ctx.files.get(ref)).decode()} {ctx.secret('TOKEN')}"


async def test_a_test_sees_what_a_tool_said_reported_and_put() -> None:
    ctx = ToolContext.fake(deps="Ann", secrets={"TOKEN": "t"})
    assert await publish(ctx, "hello") == "file_1 5 hello t"
    assert ctx.sent == ["publishing for Ann"]
    assert ctx.reported == [(0.5, "half"), (1.0, "done")]
    assert ctx.kept == {"file_1": b"hello"}


async def test_a_fake_context_says_what_a_test_forgot_and_may_be_cancelled() -> None:
    ctx = ToolContext.fake(cancelled=True, user="u9")
    assert (ctx.cancelled, ctx.user, ctx.fence) == (True, "u9", 1)
    with pytest.raises(ConfigError, match="gave no secret TOKEN"):
        ctx.secret("TOKEN")
    with pytest.raises(NotFound, match="nothing was put"):
        await ctx.files.get("file_1")
    assert "hush" not in repr(ToolContext.fake(secrets={"TOKEN": "hush"}))


async def test_files_in_memory_can_be_listed_and_forgotten() -> None:
    ctx = ToolContext.fake()
    for text in ("one", "two", "three"):
        await ctx.files.put(text, name=text)
    blobs: Any = ctx.files.blobs
    assert [ref.name for ref in await blobs.page("default", limit=2)] == ["three", "two"]
    assert [ref.name for ref in await blobs.page("default", after="file_2")] == ["one"]
    assert await ctx.files.get("file_3", offset=1, length=2) == b"hr"
    await ctx.files.delete("file_3")
    with pytest.raises(NotFound):
        await ctx.files.stat("file_3")


async def test_a_message_is_short_and_told_with_an_id_that_is_the_same_when_the_call_is_repeated() -> None:
    said: list[tuple[str, str]] = []

    async def say(event: str, text: str) -> None:
        said.append((event, text))

    for _ in range(2):
        ctx = ToolContext.fake(idempotency_key="k", say=say)
        await ctx.send("one")
        await ctx.send("x" * SENT_BYTES * 2)
    assert [event for event, _ in said] == ["k:1", "k:2", "k:1", "k:2"]
    assert len(said[1][1].encode()) <= SENT_BYTES


async def test_a_call_knows_its_turn_and_a_parked_one_when_its_time_is_over() -> None:
    seen: list[ToolContext[Any]] = []

    @tool(park=timedelta(hours=1))
    async def order(ctx: ToolContext[Any]) -> Park:
        """Order."""
        seen.append(ctx)
        return Park("ordered")

    @tool
    async def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        seen.append(ctx)
        return "seen"

    clock = ManualClock()
    agent = App().agent("a", model=ScriptedModel([[call("look"), call("order")], "well"]), tools=[order, look])
    await agent.local(clock=clock, user="u1", deps=5).prompt("go")
    first, second = seen
    assert (first.deps, first.user, first.agent, first.attempt, first.expires_at) == (5, "u1", "a", 1, None)
    assert first.fence == second.fence > 0
    assert second.expires_at is not None
    assert second.expires_at.timestamp() * 1000 == clock.now_ms() + 3_600_000
    assert first.idempotency_key != second.idempotency_key
