"""What a session in this process does at its edges: aborts at any moment, code of strangers that fails, queues beside the inbox."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.engine.strategies import Sleeps
from tests.unit.engine.test_local_runs import Held, add, prompted, session, shown, texts
from turnyard import App, Limits, ToolContext, tool
from turnyard.engine.bus import Event
from turnyard.engine.local import LocalSession
from turnyard.engine.options import Settings
from turnyard.errors import ConfigError, ModelError
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.testing import ManualClock, ScriptedModel, call, wait_until


def heard(talk: LocalSession) -> list[Event]:
    events: list[Event] = []
    talk.bus.subscribe(events.append)
    return events


def ends(events: list[Event]) -> tuple[int, int, bool]:
    kinds = [e.type for e in events]
    return kinds.count("agent_start"), kinds.count("agent_end"), kinds[-1] == "agent_end"


# -- an abort


async def test_what_a_call_still_gives_when_it_is_stopped_is_its_result() -> None:
    began = asyncio.Event()

    @tool
    async def careful(n: int) -> str:
        """Stop in good order."""
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return f"half of {n}"
        return "never"

    model = ScriptedModel([[call("careful", n=1), call("add", a=1, b=1)], "hello"])
    talk = session(model, careful, add)
    events = heard(talk)
    running = asyncio.ensure_future(talk.prompt("go"))
    await began.wait()
    talk.abort()
    result = await running
    assert [(c.name, c.content, c.outcome) for c in result.calls] == [("careful", "half of 1", "result"), ("add", None, "cancelled")]
    assert (result.state, len(model.requests), ends(events)) == ("cancelled", 1, (1, 1, True))


async def test_what_calls_that_run_together_still_give_when_they_are_stopped_are_their_results() -> None:
    began: list[int] = []

    @tool
    async def careful(n: int) -> str:
        """Stop in good order, if at all."""
        began.append(n)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if n == 2:
                raise
            return f"half of {n}"
        return "never"

    model = ScriptedModel([[call("careful", n=n) for n in (1, 2, 3)], "hello"])
    talk = session(model, careful, limits=Limits(parallel_tools=-1))
    events = heard(talk)
    running = asyncio.ensure_future(talk.prompt("go"))
    await wait_until(lambda: len(began) == 3, description="all to begin")
    talk.abort()
    result = await running
    assert [(c.content, c.outcome) for c in result.calls] == [("half of 1", "result"), (None, "cancelled"), ("half of 3", "result")]
    assert (result.usage["tool_calls"], ends(events)) == (2, (1, 1, True))
    assert [e.type for e in events].count("tool_execution_end") == 3


async def test_a_plain_function_that_looks_whether_it_is_to_stop_gives_its_result() -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def polls(ctx: ToolContext[None]) -> str:
        """Stop when told."""
        loop.call_soon_threadsafe(began.set)
        while not ctx.cancelled:
            pass
        return "so far"

    talk = session(ScriptedModel([[call("polls")], "hello"]), polls)
    running = asyncio.ensure_future(talk.prompt("go"))
    await began.wait()
    talk.abort()
    assert [c.content for c in (await running).calls] == ["so far"]


@pytest.mark.parametrize("raised", [ModelError("the line broke", retryable=True), ModelError("no"), RuntimeError("a bug")])
async def test_an_abort_ends_the_run_whatever_the_model_makes_of_it(raised: Exception) -> None:
    class Rude(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            yield Delta("text", 0, "half")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise raised from None

    talk = session(Rude(["x"]))
    events = heard(talk)
    running = await prompted(talk)
    talk.abort()
    result = await running
    assert (result.state, result.text, talk.memory.state, talk.memory.turn) == ("cancelled", "half", "idle", "")
    assert ends(events) == (1, 1, True)


async def test_an_abort_by_a_listener_at_any_moment_leaves_no_turn_open() -> None:
    for at in range(40):
        model = ScriptedModel([[call("add", a=1, b=1)], ModelError("busy", retryable=True), "done"])
        talk = session(model, add, limits=Limits(retry_base=0.001))
        count = 0

        def abort(_event: Event, talk: LocalSession = talk, at: int = at) -> None:
            nonlocal count
            count += 1
            if count == at:
                talk.abort()

        unsubscribe = talk.bus.subscribe(abort)
        events = heard(talk)
        await asyncio.wait_for(talk.prompt("hi"), 10)
        assert ends(events) == (1, 1, True), at
        assert (talk.memory.state, talk.memory.turn) == ("idle", ""), at
        unsubscribe()
        talk.set_model(ScriptedModel(["again"] * 4))
        assert (await talk.prompt("hi")).text == "again", at


async def test_an_abort_that_comes_as_the_turn_goes_to_sleep_closes_it() -> None:
    clock = ManualClock()
    talk = App().agent("a", model=ScriptedModel(["x"]), strategy=Sleeps()).local(clock=clock)
    memory = talk.memory
    running = asyncio.ensure_future(talk.prompt("5000"))
    await wait_until(lambda: memory.state == "parked", description="the turn to sleep")
    talk.abort()
    assert (await running).state == "cancelled"
    assert (memory.state, memory.turn, memory.rows) == ("idle", "", {})


async def test_a_turn_that_is_to_end_ends_its_delay() -> None:
    talk = App().agent("a", model=ScriptedModel(["x"]), strategy=Sleeps()).local(clock=ManualClock())
    running = asyncio.ensure_future(talk.prompt("5000"))
    await wait_until(lambda: talk.memory.state == "parked", description="the turn to sleep")
    assert talk.cancel()
    assert (await asyncio.wait_for(running, 5)).state == "cancelled"


async def test_a_summary_that_is_aborted_before_it_began_is_not_made() -> None:
    opened = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_app: App) -> AsyncGenerator[None]:
        await opened.wait()
        yield

    model = ScriptedModel(["short"])
    talk = App(lifespan=lifespan).agent("a", model=model).local()
    for n in range(20):
        talk.memory.append(
            __import__("turnyard.records.log", fromlist=["LogRecord"]).LogRecord(0, "user/message", body={"text": f"{n} " * 400})
        )
    running = asyncio.ensure_future(talk.compact_now())
    await asyncio.sleep(0)
    talk.abort()
    opened.set()
    assert await running is None
    assert model.requests == []


async def test_an_abort_ends_what_the_owner_is_asked() -> None:
    asked = asyncio.Event()

    async def should_stop(_done: Any) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    talk = session(ScriptedModel([[call("add", a=1, b=1)], "x"]), add, should_stop_after_turn=should_stop)
    running = asyncio.ensure_future(talk.prompt("hi"))
    await asked.wait()
    talk.abort()
    assert (await asyncio.wait_for(running, 5)).state == "cancelled"


@pytest.mark.parametrize("together", [1, -1])
async def test_a_call_that_a_check_before_it_aborts_does_not_begin(together: int) -> None:
    begun: list[int] = []

    @tool
    def act(ctx: ToolContext[None], n: int) -> str:
        """Do something that cannot be undone."""
        begun.append(n)
        return str(ctx.call_id)

    async def before(_context: Any) -> None:
        talk.abort()

    model = ScriptedModel([[call("act", n=1), call("act", n=2)], "x"])
    talk = session(model, act, before_tool_call=before, limits=Limits(parallel_tools=together))
    events = heard(talk)
    result = await talk.prompt("hi")
    assert (begun, result.state, ends(events)) == ([], "cancelled", (1, 1, True))
    assert [c.outcome for c in result.calls] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("together", [1, -1])
async def test_a_call_that_aborts_its_own_run_has_its_result(together: int) -> None:
    @tool
    async def leave() -> str:
        """End it all."""
        talk.abort()
        return "left"

    talk = session(ScriptedModel([[call("leave"), call("add", a=1, b=1)], "x"]), leave, add, limits=Limits(parallel_tools=together))
    result = await talk.prompt("hi")
    assert (result.state, result.calls[0].content) == ("cancelled", "left")


# -- code of strangers


class Raises(ScriptedModel):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        yield Delta("text", 0, "half")
        raise RuntimeError("a bug of the provider")


async def test_an_error_that_is_nobodys_ends_the_run_told_and_the_session_goes_on() -> None:
    talk = session(Raises(["x"]))
    events = heard(talk)
    with pytest.raises(RuntimeError, match="a bug of the provider"):
        await talk.prompt("hi")
    assert ends(events) == (1, 1, True)
    assert (talk.state().last_error or {})["message"] == "a bug of the provider"
    assert not talk.state().is_streaming
    assert talk.state().streaming_message is None
    talk.set_model(ScriptedModel(["fine"] * 4))
    assert (await talk.prompt("again")).text == "fine"


async def test_a_run_given_up_twice_still_tells_its_end() -> None:
    began = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Take its time to stop."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
        return ""

    talk = session(ScriptedModel([[call("stubborn"), call("stubborn")], "x"]), stubborn, limits=Limits(parallel_tools=-1))
    events = heard(talk)
    running = asyncio.ensure_future(talk.prompt("hi"))
    await began.wait()
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ends(events) == (1, 1, True)
    await asyncio.wait_for(talk.wait_for_idle(), 1)
    talk.set_model(ScriptedModel(["fine"] * 4))
    assert (await talk.prompt("again")).text == "fine"


async def test_an_error_after_the_caller_gave_up_leaves_nothing_unheard(caplog: pytest.LogCaptureFixture) -> None:
    class Rude(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            yield Delta("text", 0, "half")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise RuntimeError("too late") from None

    talk = session(Rude(["x"]))
    running = await prompted(talk)
    running.cancel()
    with caplog.at_level(logging.ERROR, "asyncio"), pytest.raises(asyncio.CancelledError):
        await running
    del running
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_session_without_a_model_says_so_before_anything_happens() -> None:
    talk = session(ScriptedModel(["x"]))
    events = heard(talk)
    talk.set_model(())
    with pytest.raises(ConfigError, match="no model"):
        await talk.prompt("hi")
    assert (events, talk.messages) == ([], [])


async def test_what_the_owner_wants_next_and_cannot_be_had_ends_the_run_told() -> None:
    def prepare(_done: Any, settings: Settings) -> Settings:
        return replace(settings, model=())

    talk = session(ScriptedModel([call("add", a=1, b=1), "x"]), add, prepare_next_turn=prepare)
    events = heard(talk)
    with pytest.raises(ConfigError):
        await talk.prompt("hi")
    assert ends(events) == (1, 1, True)
    assert not talk.state().is_streaming


# -- queues


async def test_steering_is_taken_before_a_turn_that_the_inbox_begins() -> None:
    model = Held(["one", "two", "three"])
    talk = session(model)
    running = await prompted(talk)
    talk.publish("p")
    talk.steer("s")
    talk.follow_up("f")
    model.gate.set()
    await running
    assert [shown(r)[-1] for r in model.requests[1:2]] == ["user: s"]
    assert [line for line in texts(talk) if line.startswith("user")] == ["user: hi", "user: p", "user: s", "user: f"]


# -- what a session keeps


async def test_a_session_that_was_reset_reads_its_own_entries_and_no_older_ones() -> None:
    model = ScriptedModel(["one", [call("read_entry", id=1)], "done"])
    talk = session(model)
    await talk.prompt("old question")
    talk.reset()
    await talk.prompt("new question")
    talk.compact("sum", 1)
    result = await talk.prompt("read")
    assert "new question" in str(result.calls[0].content)
