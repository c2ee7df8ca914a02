"""What watchers of a session in this process get beside the model: details of results, files of summaries; and who says what a model sees."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.engine.test_local_runs import session, shown
from turnyard import App, Detailed, Limits, tool
from turnyard.engine.bus import MessageEnd, ToolExecutionEnd
from turnyard.engine.compaction import FileOps
from turnyard.engine.effects import ToolResult
from turnyard.engine.messages import TOOL_RESULT, Message
from turnyard.engine.options import CallContext, Replace
from turnyard.engine.shaper import ShaperPolicy
from turnyard.ports import ModelRequest
from turnyard.testing import FunctionModel, ScriptedModel, call


@tool
async def look(path: str) -> Detailed:
    """Look at a file."""
    return Detailed(f"read {path}", {"lines": 3, "at": ["a"]})


@tool
async def read(path: str) -> str:
    """Read a file."""
    return f"{path}: " + "x" * 400


# -- details


async def test_details_of_a_result_are_told_and_kept_and_never_shown_to_the_model() -> None:
    model = ScriptedModel([call("look", path="f"), "seen"])
    talk = session(model, look)
    events: list[Any] = []
    talk.bus.subscribe(events.append)
    await talk.prompt("hi")
    [ended] = [e for e in events if isinstance(e, ToolExecutionEnd)]
    [message] = [e.message for e in events if isinstance(e, MessageEnd) and e.message.role == TOOL_RESULT]
    assert ended.details == message.details == {"lines": 3, "at": ["a"]}
    assert (ended.content, talk.messages[2].details) == ("read f", {"lines": 3, "at": ["a"]})
    assert "lines" not in str(model.requests[-1].messages)


async def test_details_are_changed_after_a_call_like_any_other_field() -> None:
    def after(_call: CallContext, _result: ToolResult) -> Replace:
        return Replace(details=[1])

    talk = session(ScriptedModel([call("look", path="f"), "seen"]), look, after_tool_call=after)
    await talk.prompt("hi")
    assert (talk.messages[2].text, talk.messages[2].details) == ("read f", [1])


async def test_details_of_a_lifted_call_come_with_its_result() -> None:
    @tool(lift=True, wait=True)
    async def far(path: str) -> Detailed:
        """Look from afar."""
        return Detailed(f"read {path}", "far")

    talk = session(ScriptedModel([call("far", path="f"), "seen"]), far)
    await talk.prompt("hi")
    assert (talk.messages[2].text, talk.messages[2].details) == ("read f", "far")


async def test_details_that_are_too_large_are_an_error_of_the_tool() -> None:
    @tool
    async def large() -> Detailed:
        """Tell too much."""
        return Detailed("fine", "x" * 17_000)

    talk = session(ScriptedModel([call("large"), "seen"]), large)
    result = await talk.prompt("hi")
    assert result.calls[0].is_error
    assert talk.messages[2].details is None


# -- who says what the model sees


@pytest.mark.spec("runner-53")
async def test_a_converter_of_the_sessions_own_takes_the_place_of_all_roles() -> None:
    def convert(message: Message) -> Message | None:
        if message.role == "memo":
            return Message("user", f"memo says {message.text}")
        return None if message.text == "drop me" else message

    model = ScriptedModel(["one", "two", "three"])

    def dropped(_message: Message) -> None:
        return None

    talk = session(model, convert=convert, roles={"memo": dropped})
    await talk.prompt(Message("memo", "m"))
    await talk.prompt("drop me")
    await talk.prompt("last")
    assert shown(model.requests[-1]) == ["user: memo says m", "assistant: one\ntwo", "user: last"]


# -- files


def counting(request: ModelRequest) -> Any:
    """Read a file first, then say much; summarise when told to."""
    if "You shorten the log" in str(request.messages[0]["content"]):
        return "they counted"
    return call("read", path="a.py") if len(request.messages) == 1 else "so many words " * 40


@pytest.mark.spec("runner-51")
async def test_files_are_kept_by_summaries_that_a_turn_makes_itself() -> None:
    policy = ShaperPolicy(
        budget_tokens=600, preserve_last_messages=2, preserve_last_tool_calls=1, lod_headroom_tokens=-1, lod_truncate_above_chars=0
    )
    talk = App().agent("a", model=FunctionModel(counting), tools=[read], shaper=policy).local()
    found = [done.files for n in range(8) for done in (await talk.prompt(str(n))).compactions]
    assert len(found) > 1
    assert set(found) == {FileOps(read=("a.py",))}
    assert talk.compact("sum", len(talk.messages)).files == FileOps(read=("a.py",))


# -- calls that work alone


async def test_a_tool_that_works_alone_runs_beside_no_other_though_calls_run_together() -> None:
    running: list[str] = []
    most: dict[str, int] = {}

    async def work(name: str) -> str:
        running.append(name)
        await asyncio.sleep(0.01)
        most[name] = max(most.get(name, 0), len(running))
        running.remove(name)
        return name

    @tool
    async def beside(n: int) -> str:
        """Work beside others."""
        return await work(f"beside {n}")

    @tool(alone=True)
    async def alone() -> str:
        """Work alone."""
        return await work("alone")

    calls = [call("beside", n=1), call("beside", n=2), call("alone"), call("beside", n=3), call("beside", n=4)]
    talk = session(ScriptedModel([calls, "done"]), beside, alone, limits=Limits(parallel_tools=-1))
    result = await talk.prompt("go")
    assert [c.content for c in result.calls] == ["beside 1", "beside 2", "alone", "beside 3", "beside 4"]
    assert (most["alone"], most["beside 1"], most["beside 3"]) == (1, 2, 2)
