"""What happens to a call whatever its tool does."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from turnyard.errors import ConfigError, SessionClosed, ToolError
from turnyard.testing import wait_until
from turnyard.tools import Park, ToolContext, ToolOutcome, run_tool, tool
from turnyard.tools.runtime import HELD_BYTES

CTX: ToolContext[Any] = ToolContext.fake()


class Model(BaseModel):
    a: int


class Loose(BaseModel):
    s: Any


@dataclass
class Record:
    b: str


@tool
async def give(kind: str) -> Any:
    """Return a value of some kind."""
    values: dict[str, Any] = {
        "text": "as it is",
        "model": Model(a=1),
        "record": Record("x"),
        "object": {"k": [1, None]},
        "none": None,
        "nan": {"v": float("nan")},
        "surrogate": "bad \udc97 end",
        "pair": "\ud83d\ude00",
        "inner surrogate": {"k\udc97": "v\udc97"},
        "model surrogate": Loose(s="v\udc97"),
        "record surrogate": Record("v\udc97"),
        "nul": "a\0b",
        "huge": "é" * 20_000_000,
        "huge object": {"v": "é" * 20_000_000},
        "unfit": object(),
        "bytes": b"\xff\xfe",
        "park": Park("later"),
    }
    return values[kind]


@tool
async def fail(kind: str) -> str:
    """Fail in some way."""
    match kind:
        case "tool error":
            raise ToolError("order is locked")
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "base":
            raise BaseException("of no class")  # noqa: TRY002 - just what a tool must not raise
        case "cancelled":
            raise asyncio.CancelledError
        case "timeout":
            raise TimeoutError
        case "stop":
            raise StopIteration
        case _:
            raise ValueError("secret-4711")


@tool
def fail_in_thread(kind: str) -> str:
    """Fail in a thread."""
    errors: dict[str, BaseException] = {
        "tool error": ToolError("no"),
        "stop": StopIteration(),
        "exit": SystemExit(1),
        "interrupt": KeyboardInterrupt(),
        "base": BaseException("x"),
    }
    raise errors.get(kind, ValueError("secret-4711"))


async def run(kind: str) -> ToolOutcome:
    return await run_tool(give, {"kind": kind}, CTX)


@pytest.mark.spec("L48")
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text", "as it is"),
        ("model", '{"a":1}'),
        ("record", '{"b":"x"}'),
        ("object", '{"k":[1,null]}'),
        ("none", "null"),
        ("nan", '{"v":null}'),
        ("surrogate", "bad \ufffd end"),
        ("pair", "😀"),
        ("inner surrogate", '{"k\ufffd":"v\ufffd"}'),
        ("model surrogate", '{"s":"v\ufffd"}'),
        ("record surrogate", '{"b":"v\ufffd"}'),
        ("nul", "a\ufffdb"),
    ],
)
async def test_a_result_is_text_or_json_that_can_be_stored(kind: str, content: str) -> None:
    assert await run(kind) == ToolOutcome(content)


@pytest.mark.parametrize("kind", ["huge", "huge object"])
async def test_a_huge_result_is_cut_between_characters_and_says_so(kind: str) -> None:
    content = (await run(kind)).content
    assert HELD_BYTES - 200 < len(content.encode()) <= HELD_BYTES
    assert "[cut after" in content
    assert "\ufffd" not in content


@pytest.mark.parametrize("kind", ["unfit", "park"])
async def test_a_result_that_is_no_json_is_a_failure_of_the_tool(kind: str) -> None:
    outcome = await run(kind)
    assert outcome.is_error
    assert "tool failed (ref " in outcome.content


async def test_the_text_of_a_tool_error_reaches_the_model() -> None:
    assert await run_tool(fail, {"kind": "tool error"}, CTX) == ToolOutcome("order is locked", is_error=True)
    assert await run_tool(fail_in_thread, {"kind": "tool error"}, CTX) == ToolOutcome("no", is_error=True)


@pytest.mark.parametrize("tool_", [fail, fail_in_thread])
@pytest.mark.parametrize("kind", ["value", "exit", "interrupt", "base", "stop", "timeout"])
async def test_any_other_failure_reaches_the_model_as_a_reference_only(tool_: Any, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="turnyard.tools"):
        outcome = await run_tool(tool_, {"kind": kind}, CTX)
    ref = outcome.content.partition("(ref ")[2].rstrip(")")
    assert outcome == ToolOutcome(f"{tool_.name}: tool failed (ref {ref})", is_error=True)
    (record,) = caplog.records
    assert ref in record.getMessage()
    assert record.exc_info
    assert record.__dict__["call"] == CTX.call_id


async def test_a_tool_may_end_the_turn_with_a_last_word() -> None:
    @tool
    async def finish(word: str) -> str:
        """End the turn."""
        raise SessionClosed(word)

    assert await run_tool(finish, {"word": "bye"}, CTX) == ToolOutcome("bye", closes=True)


async def test_a_body_that_cancels_itself_does_not_cancel_the_turn() -> None:
    outcome = await run_tool(fail, {"kind": "cancelled"}, CTX)
    assert outcome.is_error
    assert "ref " in outcome.content


@pytest.mark.spec("rival-66")
async def test_bad_arguments_are_an_error_result_that_names_them_and_the_body_is_not_run() -> None:
    ran: list[int] = []

    @tool
    async def note(a: int) -> None:
        """Note that it ran."""
        ran.append(a)

    outcome = await run_tool(note, {"a": "1", "b": 2}, CTX)
    assert outcome.is_error
    assert "note was not run: a: " in outcome.content
    assert "b is not an argument" in outcome.content
    assert ran == []


@tool(timeout=0.02)
async def stubborn(ctx: ToolContext[list[str]]) -> str:
    """Ignore that it is told to stop."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ctx.deps.append("told")
        await asyncio.Event().wait()
    return "never"


@tool(timeout=0.02)
def blocking(ctx: ToolContext[threading.Event]) -> str:
    """Block its thread."""
    ctx.deps.wait(10)
    return "late"


async def test_a_tool_over_its_time_is_told_to_stop_and_not_waited_for() -> None:
    told: list[str] = []
    outcome = await run_tool(stubborn, {}, ToolContext.fake(deps=told))
    assert outcome == ToolOutcome("stubborn timed out after 0.02 s; its effect is unknown", is_error=True)
    assert told == ["told"]


async def test_a_blocking_function_over_its_time_is_left_behind() -> None:
    release = threading.Event()
    outcome = await run_tool(blocking, {}, ToolContext.fake(deps=release))
    release.set()
    assert outcome.is_error
    assert "timed out" in outcome.content


async def test_cancelling_the_turn_cancels_the_body() -> None:
    seen: list[str] = []

    @tool
    async def wait(ctx: ToolContext[Any]) -> None:
        """Wait for ever."""
        seen.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("stopped")

    running = asyncio.ensure_future(run_tool(wait, {}, CTX))
    await wait_until(lambda: seen == ["started"], description="the body to start")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == ["started", "stopped"]


async def test_a_plain_function_runs_outside_the_event_loop() -> None:
    here = threading.get_ident()

    @tool
    def where() -> bool:
        """Tell whether this is another thread."""
        return threading.get_ident() != here

    assert await run_tool(where, {}, CTX) == ToolOutcome("true")


@tool(park=60)
async def order(ctx: ToolContext[Any], part: str) -> str | Park:
    """Order a part."""
    return Park(f"ordered {part} via {ctx.callback_url}") if part != "stock" else "here it is"


async def test_a_parkable_tool_may_park_or_answer_at_once() -> None:
    parked = await run_tool(order, {"part": "x"}, CTX)
    assert parked.park == Park("ordered x via http://callback.invalid/")
    assert parked.content == parked.park.note
    assert await run_tool(order, {"part": "stock"}, CTX) == ToolOutcome("here it is")


async def test_the_context_says_whose_call_it_is_and_carries_progress() -> None:
    heard: list[tuple[float, str]] = []

    async def report(fraction: float, note: str) -> None:
        heard.append((fraction, note))

    ctx: ToolContext[str] = ToolContext.fake(deps="d", tenant="acme", report=report, cancel_requested=lambda: True)
    await ctx.progress(1.7, "done")
    assert (ctx.deps, ctx.tenant, ctx.cancelled, heard) == ("d", "acme", True, [(1.0, "done")])
    assert json.dumps(dict(ctx.log.extra or {}))


async def test_a_callback_url_exists_only_where_something_waits_for_it() -> None:
    ctx: ToolContext[Any] = ToolContext.fake(urls=None)
    with pytest.raises(ConfigError, match="park="):
        _ = ctx.callback_url


_SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8)
_VALUE = st.recursive(_SCALAR, lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=4), s, max_size=3), max_leaves=8)


@tool
async def nested(model: Loose, many: list[Loose], one: int | str, flag: bool = False, ratio: float = 1.0) -> str:
    """Take a bit of everything."""
    return f"{model.s} {len(many)} {one} {flag} {ratio}"


@pytest.mark.spec("S19")
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("model", "many", "one", "flag", "ratio", "more"), _VALUE)) | _VALUE)
async def test_no_arguments_make_the_runtime_raise(arguments: Any) -> None:
    outcome = await run_tool(nested, arguments, CTX)
    outcome.content.encode()
    assert "tool failed" not in outcome.content
