"""What a session in this process tells of a run, in which order, and what its state shows meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, Limits, Park, ToolContext, ToolError, tool
from turnyard.engine.bus import AgentEnd, Compacted, Event, MessageEnd, MessageUpdate, ToolExecutionEnd, ToolExecutionUpdate, TurnEnd
from turnyard.engine.effects import ToolFact
from turnyard.engine.local import LocalSession, LocalState
from turnyard.errors import ConfigError, ModelError
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.testing import FunctionModel, ScriptedModel, call, say


@tool
async def add(ctx: ToolContext[None], a: int, b: int) -> int:
    """Add two numbers."""
    await ctx.progress(0.5, "half way")
    return a + b


@tool
async def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@tool(park=timedelta(minutes=1))
async def refund(amount: int) -> Park:
    """Refund, once somebody agrees."""
    return Park("asked")


@tool(park=timedelta(minutes=1))
async def order(part: str) -> Park:
    """Order a part."""
    return Park(f"ordered {part}")


class Heard:
    """A listener that writes down what it is told, shortly, and what the session shows at that moment."""

    def __init__(self, talk: LocalSession) -> None:
        self.talk = talk
        self.events: list[Event] = []
        self.states: list[LocalState] = []
        talk.bus.subscribe(self)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self.states.append(self.talk.state())

    @property
    def short(self) -> list[str]:
        return [_short(event) for event in self.events]


def _short(event: Event) -> str:
    message = getattr(event, "message", None)
    if isinstance(event, TurnEnd):
        return f"turn_end {event.message.text if event.message else None} {[r.text for r in event.results]}"
    if message is not None:
        return f"{event.type} {message.role} {message.text}".rstrip()
    return f"{event.type} {getattr(event, 'tool', '')}".rstrip()


def session(model: Any, *tools: Any, **options: Any) -> tuple[LocalSession, Heard]:
    talk = App().agent("a", model=model, tools=tools, limits=options.pop("limits", None)).local(**options)
    return talk, Heard(talk)


async def test_a_run_is_told_in_the_order_in_which_it_goes() -> None:
    talk, heard = session(FunctionModel(_add_then_answer), add)
    talk.steer("be quick")
    await talk.prompt("add 2 and 3")
    assert heard.short == [
        "agent_start",
        "turn_start",
        "message_start user add 2 and 3",
        "message_end user add 2 and 3",
        "message_start user be quick",
        "message_end user be quick",
        "message_start assistant",
        "message_update assistant let",
        "message_update assistant let me",
        "message_end assistant let me",
        "tool_execution_start add",
        "tool_execution_update add",
        "tool_execution_end add",
        "message_start tool_result 5",
        "message_end tool_result 5",
        "turn_end let me ['5']",
        "turn_start",
        "message_start assistant",
        "message_update assistant it",
        "message_update assistant it is",
        "message_update assistant it is 5",
        "message_end assistant it is 5",
        "turn_end it is 5 []",
        "agent_end",
    ]
    end = heard.events[-1]
    assert isinstance(end, AgentEnd)
    assert list(end.messages) == talk.messages
    assert talk.messages[2].tool == ""
    assert talk.messages[3].tool == "add"
    update = next(e for e in heard.events if isinstance(e, ToolExecutionUpdate))
    assert (update.fraction, update.note) == (0.5, "half way")


def _add_then_answer(request: ModelRequest) -> Any:
    return say("let me", call("add", a=2, b=3)) if request.messages[-1]["role"] == "user" else "it is 5"


async def test_what_a_listener_is_told_of_stands_in_the_state_already() -> None:
    talk, heard = session(FunctionModel(_add_then_answer), add)
    await talk.prompt("add 2 and 3")
    for event, state in zip(heard.events, heard.states, strict=True):
        assert state.is_streaming
        if isinstance(event, MessageEnd):
            assert event.message in state.messages
            assert state.streaming_message is None
        if isinstance(event, MessageUpdate):
            assert state.streaming_message == event.message
        running = event.type in ("tool_execution_start", "tool_execution_update")
        assert len(state.pending_tool_calls) == int(running), event.type
    after = talk.state()
    assert (after.is_streaming, after.streaming_message, after.pending_tool_calls, after.last_error) == (False, None, frozenset(), None)


async def test_what_is_done_to_a_copy_of_the_state_is_not_done_to_the_session() -> None:
    talk, _ = session(ScriptedModel(["a"]))
    await talk.prompt("hi")
    talk.messages.clear()
    assert len(talk.state().messages) == 2


async def test_calls_that_run_together_end_as_they_finish_and_their_results_keep_the_order_of_the_calls() -> None:
    gate = asyncio.Event()

    @tool
    async def meet(n: int) -> str:
        """Wait for the last one."""
        if n == 3:
            gate.set()
        await gate.wait()
        for _ in range(9 - 3 * n):
            await asyncio.sleep(0)
        return str(n)

    calls = [call("meet", n=n) for n in (1, 2, 3)]
    talk, heard = session(ScriptedModel([calls, "done"]), meet, limits=Limits(parallel_tools=3))
    await talk.prompt("go")
    ids = [c.id for c in talk.messages[1].calls]
    started = [e.call for e in heard.events if e.type == "tool_execution_start"]
    ended = [e.call for e in heard.events if isinstance(e, ToolExecutionEnd)]
    assert started == ids
    assert ended == ids[::-1]
    assert [m.call for m in talk.messages if m.role == "tool_result"] == ids
    results = heard.short.index("message_start tool_result 1")
    assert max(i for i, e in enumerate(heard.events) if isinstance(e, ToolExecutionEnd)) < results


async def test_a_call_that_never_ran_is_told_like_any_other() -> None:
    talk, heard = session(ScriptedModel([[call("nobody"), call("add", a=1), call("fail", why="no")], "sorry"]), add, fail)
    await talk.prompt("go")
    of_calls = [
        e.type for e in heard.events if "tool_execution" in e.type or (isinstance(e, MessageEnd) and e.message.role == "tool_result")
    ]
    assert of_calls == ["tool_execution_start", "tool_execution_end", "message_end"] * 3
    assert all(e.is_error for e in heard.events if isinstance(e, ToolExecutionEnd))


async def test_a_run_that_ends_with_a_call_open_ends_its_turn_and_the_result_is_told_by_the_next_run() -> None:
    talk, heard = session(ScriptedModel([call("refund", amount=5), "done"]), refund)
    facts = {"refund": ToolFact("callback", awaited=True)}
    talk._agent = replace(talk._agent, table=replace(talk._agent.table, tools=facts))  # pyright: ignore[reportPrivateUsage]
    result = await talk.prompt("refund me")
    assert result.state == "waiting"
    assert heard.short[-2:] == ["turn_end  []", "agent_end"]
    heard.events.clear()
    await talk.resolve(result.parked[0], "refunded by hand")
    assert heard.short[:7] == [
        "agent_start",
        "turn_start",
        "tool_execution_start refund",
        "tool_execution_end refund",
        "message_start tool_result refunded by hand",
        "message_end tool_result refunded by hand",
        "turn_end  ['refunded by hand']",
    ]
    assert heard.short[-1] == "agent_end"


async def test_the_placeholder_of_a_parked_call_is_its_result_and_the_real_one_comes_as_a_message_of_its_own() -> None:
    talk, heard = session(ScriptedModel([call("order", part="x"), "ordered", "it is here"]), order)
    parked = (await talk.prompt("buy x")).parked[0]
    assert [e.type for e in heard.events].count("tool_execution_start") == 1
    heard.events.clear()
    await talk.resolve(parked, "arrived")
    assert heard.short[2:4] == ["message_start tool_result arrived", "message_end tool_result arrived"]
    assert "tool_execution_start order" not in heard.short


class Breaking(ScriptedModel):
    """Breaks off in the middle of its first answers."""

    def __init__(self, items: list[Any], *, breaks: int = 1, retryable: bool = False) -> None:
        super().__init__(items)
        self._breaks, self._retryable = breaks, retryable

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        if len(self.requests) < self._breaks:
            self.requests.append(request)
            yield Delta("text", 0, "I was ab")
            raise ModelError("cut", retryable=self._retryable)
        async for item in super().stream(request):
            yield item


async def test_an_answer_that_breaks_off_is_ended_as_an_error_and_the_run_ends_with_it() -> None:
    talk, heard = session(Breaking([]))
    result = await talk.prompt("hi")
    assert (result.state, (talk.state().last_error or {})["code"]) == ("failed", "model_error")
    assert heard.short[-4:] == ["message_update assistant I was ab", "message_end assistant I was ab", "turn_end None []", "agent_end"]
    broken = heard.events[-3]
    assert isinstance(broken, MessageEnd)
    assert broken.message.stop == "error"
    assert [m.role for m in talk.messages] == ["user"]


async def test_however_a_run_ends_its_end_is_told_once_and_last() -> None:
    async def bug(request: ModelRequest) -> str:
        raise ZeroDivisionError

    for model in (FunctionModel(bug), ScriptedModel([ModelError("no")]), ScriptedModel(["a"]), ScriptedModel([call("fail", why="x"), "b"])):
        talk, heard = session(model, fail)
        try:
            await talk.prompt("hi")
        except ZeroDivisionError:
            assert (talk.state().last_error or {})["code"] == "internal"
        assert heard.short.count("agent_end") == 1
        assert heard.short[-1] == "agent_end"
        assert heard.short.count("turn_start") == sum(e.type == "turn_end" for e in heard.events)
        assert heard.short.count("agent_start") == 1
        await talk.wait_for_idle()


async def test_a_model_that_cannot_be_opened_is_refused_before_anything_happens() -> None:
    talk, heard = session("nobody:at-all")
    with pytest.raises(ConfigError):
        await talk.prompt("hi")
    assert (heard.events, talk.messages, talk.waiting, talk.state().is_streaming) == ([], [], 0, False)


@pytest.mark.spec("turn-15")
async def test_the_pieces_of_an_answer_come_in_order_and_together_are_what_is_stored() -> None:
    pieces: list[str] = []
    talk, heard = session(FunctionModel(lambda _: "the quick  brown\nfox "), on_delta=lambda d: pieces.append(d.text))
    result = await talk.prompt("hi")
    assert len(pieces) == 4
    assert "".join(pieces) == result.text == talk.messages[-1].text
    assert "".join(e.delta.text for e in heard.events if isinstance(e, MessageUpdate)) == result.text


class Counting(ScriptedModel):
    """Reports the usage it is told to, None for none."""

    def __init__(self, items: list[Any], usages: list[tuple[int, int] | None]) -> None:
        super().__init__(items)
        self._usages = usages

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        async for item in super().stream(request):
            if isinstance(item, Done):
                used = self._usages[len(self.requests) - 1]
                yield Done(item.text, item.calls, {"input_tokens": used[0], "output_tokens": used[1]} if used else None)
            else:
                yield item


@pytest.mark.spec("turn-16")
async def test_tokens_are_summed_over_the_rounds_told_once_a_round_and_the_size_is_that_of_the_last_request() -> None:
    told: list[dict[str, int]] = []
    model = Counting([call("add", a=2, b=3), "5", "x" * 400, "ok"], [(20, 4), (30, 6), None, (1, 1)])
    talk, _ = session(model, add, on_usage=told.append)
    result = await talk.prompt("add 2 and 3, please")
    assert [(u["total"], u["model_calls"]) for u in told] == [(24, 1), (60, 2)]
    assert result.usage["total"] == 60
    assert 0 < told[0]["active"] < told[1]["active"] == result.usage["active"]
    again = await talk.prompt("and again")
    assert (again.usage["total"], again.usage["model_calls"], len(told)) == (60, 3, 3), "told though nothing was reported"
    last = await talk.prompt("once more")
    assert last.usage["total"] == 62
    assert last.usage["active"] > again.usage["active"] + 90


@pytest.mark.spec("runner-51")
async def test_a_compaction_is_told_once_as_an_event_and_to_the_callback() -> None:
    told: list[Any] = []
    talk, heard = session(ScriptedModel(["a", "b"]), on_compaction=told.append)
    await talk.prompt("hi")
    heard.events.clear()
    done = talk.compact("they met", 2)
    assert heard.events == [Compacted(done)]
    assert told == [done]
