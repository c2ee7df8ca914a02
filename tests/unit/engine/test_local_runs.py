"""When a session in this process runs, when it refuses to, how it is stopped and how it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, Limits, Park, ToolContext, tool
from turnyard.engine.local import LocalSession
from turnyard.engine.messages import Image, Message
from turnyard.errors import Conflict, InvalidInput, JobCancelled, ModelError, SessionBusy
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.testing import ManualClock, ScriptedModel, call, wait_until
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai


class Held(ScriptedModel):
    """Says half of each answer and waits for the gate before the rest."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__(items)
        self.gate = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        async for item in super().stream(request):
            if isinstance(item, Done):
                await self.gate.wait()
            yield item


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(park=timedelta(minutes=1))
async def order(part: str) -> Park:
    """Order a part."""
    return Park(f"ordered {part}")


def session(model: Any, *tools: Any, **options: Any) -> LocalSession:
    return App().agent("a", model=model, tools=tools, limits=options.pop("limits", None)).local(**options)


def texts(talk: LocalSession) -> list[str]:
    return [f"{m.role}: {m.text}" for m in talk.messages]


def shown(request: ModelRequest) -> list[str]:
    return [f"{m['role']}: {m['content']}" for m in request.messages]


async def prompted(talk: LocalSession, text: str = "hi") -> asyncio.Task[Any]:
    """Prompt, and wait until the model is in the middle of its answer."""
    running = asyncio.ensure_future(talk.prompt(text))
    await wait_until(lambda: talk.state().streaming_message is not None, description="the answer to begin")
    return running


# -- one at a time


@pytest.mark.spec("runner-48")
async def test_a_session_that_runs_refuses_a_prompt_at_once_and_nothing_is_queued_or_changed() -> None:
    model = Held(["one", "two"])
    talk = session(model)
    running = await prompted(talk)
    before = talk.state()
    for refused in (talk.prompt("again"), talk.resume(), talk.run()):
        with pytest.raises(SessionBusy):
            await refused
    with pytest.raises(SessionBusy):
        talk.reset()
    assert (talk.state(), talk.waiting, talk.has_queued) == (before, 0, False)
    model.gate.set()
    assert (await running).text == "one"
    assert (await talk.prompt("again")).text == "two"
    assert texts(talk) == ["user: hi", "assistant: one", "user: again", "assistant: two"]


async def test_a_message_that_cannot_be_taken_is_refused_before_anything_happens() -> None:
    talk = session(ScriptedModel(["x"]))
    for wrong in (talk.prompt(" "), talk.prompt(Message("assistant", "x"))):
        with pytest.raises(InvalidInput):
            await wrong
    assert (talk.messages, talk.state().is_streaming) == ([], False)


async def test_images_follow_the_text_and_reach_the_model() -> None:
    model = ScriptedModel(["a cat"])
    await session(model).prompt("what is this?", Image("https://a.example/cat.png"))
    image = {"type": "image_url", "image_url": {"url": "https://a.example/cat.png"}}
    assert model.requests[0].messages[0]["content"] == [{"type": "text", "text": "what is this?"}, image]


async def test_to_wait_for_idle_returns_at_once_when_nothing_runs_and_else_when_all_is_told() -> None:
    model = Held(["one"])
    talk = session(model)
    await talk.wait_for_idle()
    running = await prompted(talk)
    heard: list[str] = []
    talk.bus.subscribe(lambda event: heard.append(event.type))
    idle = asyncio.ensure_future(talk.wait_for_idle())
    model.gate.set()
    await idle
    assert heard[-1] == "agent_end"
    assert talk.state().is_streaming is False
    await running


async def test_a_result_that_comes_while_a_run_is_under_way_is_taken_up_by_it() -> None:
    model = Held([call("order", part="x"), "ordered", "waiting", "it is here"])
    model.gate.set()
    talk = session(model, order)
    parked = (await talk.prompt("buy x")).parked[0]
    model.gate.clear()
    running = await prompted(talk, "well?")
    resolved = asyncio.ensure_future(talk.resolve(parked, "arrived"))
    await asyncio.sleep(0)
    model.gate.set()
    assert (await resolved).state == "succeeded"
    await running
    assert [line for line in texts(talk) if line.startswith("assistant")][-2:] == ["assistant: waiting", "assistant: it is here"]


# -- going on


@pytest.mark.spec("runner-48")
async def test_there_is_nothing_to_continue_without_a_message_or_after_an_answer_with_empty_queues() -> None:
    talk = session(ScriptedModel(["a"]))
    with pytest.raises(Conflict, match="no message yet"):
        await talk.resume()
    await talk.prompt("hi")
    with pytest.raises(Conflict, match="last message is an answer"):
        await talk.resume()
    assert (len(talk.messages), talk.state().is_streaming) == (2, False)


@pytest.mark.spec("runner-48")
async def test_to_continue_after_an_answer_sends_steering_one_at_a_time_and_then_follow_ups() -> None:
    model = ScriptedModel(["a", "b", "c", "d", "e"])
    talk = session(model)
    await talk.prompt("hi")
    talk.follow_up("f1")
    talk.steer("s1")
    talk.steer("s2")
    await talk.resume()
    assert texts(talk)[2:] == ["user: s1", "assistant: b", "user: s2", "assistant: c", "user: f1", "assistant: d"]
    talk.follow_up("f2")
    await talk.resume()
    assert texts(talk)[-2:] == ["user: f2", "assistant: e"]


@pytest.mark.spec("runner-48")
async def test_to_continue_after_a_failure_asks_again_with_no_new_message() -> None:
    class Flaky(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            if len(self.requests) < 1:
                self.requests.append(request)
                raise ModelError("no")
            async for item in super().stream(request):
                yield item

    model = Flaky([call("add", a=1, b=1), "two"])
    talk = session(model, add)
    assert (await talk.prompt("hi")).state == "failed"
    heard: list[str] = []
    talk.bus.subscribe(lambda event: heard.append(f"{event.type} {getattr(getattr(event, 'message', None), 'role', '')}".strip()))
    result = await talk.resume()
    assert (result.state, result.text, [c.content for c in result.calls]) == ("succeeded", "two", ["2"])
    assert "message_start user" not in heard
    assert heard.count("agent_end") == 1
    assert model.requests[0].messages == model.requests[1].messages
    assert talk.state().last_error is None


async def test_to_continue_waits_and_asks_once_more_when_the_failure_may_pass() -> None:
    class Flaky(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            if len(self.requests) < 2:
                self.requests.append(request)
                raise ModelError("no", retryable=len(self.requests) == 2)
            async for item in super().stream(request):
                yield item

    clock = ManualClock()
    talk = session(Flaky(["there"]), clock=clock)
    assert (await talk.prompt("hi")).state == "failed"
    running = asyncio.ensure_future(talk.resume())
    await clock.advance(30)
    assert (await running).text == "there"


async def test_to_continue_after_a_limit_gives_the_turn_its_bounds_anew() -> None:
    model = ScriptedModel([call("add", a=1, b=1), "two"])
    talk = session(model, add, limits=Limits(model_calls=1))
    assert ((await talk.prompt("go")).error or {})["code"] == "step_limit"
    assert (await talk.resume()).text == "two"


# -- stopping


async def test_an_aborted_answer_is_kept_as_far_as_it_came_and_not_shown_to_the_model_again() -> None:
    model = Held(["I was about to", "fine"])
    talk = session(model)
    running = await prompted(talk)
    talk.abort()
    assert talk.state().is_streaming, "abort does not wait"
    result = await running
    assert (result.state, result.text, (result.error or {})["code"]) == ("cancelled", "I was about to", "cancelled")
    with pytest.raises(JobCancelled):
        result.check()
    assert (talk.messages[-1].stop, (talk.state().last_error or {})["code"]) == ("aborted", "cancelled")
    model.gate.set()
    model._items = ("fine",)
    assert (await talk.prompt("go on")).text == "fine"
    assert shown(model.requests[-1]) == ["user: hi", "user: go on"]


async def test_to_abort_with_no_run_does_nothing() -> None:
    talk = session(ScriptedModel(["a"]))
    talk.abort()
    assert (await talk.prompt("hi")).state == "succeeded"
    talk.abort()
    assert talk.state().last_error is None


async def test_an_abort_while_calls_run_stops_them_answers_all_and_asks_the_model_no_more() -> None:
    stopped: list[str] = []
    contexts: list[ToolContext[None]] = []

    @tool
    async def hang(ctx: ToolContext[None]) -> str:
        """Hang."""
        contexts.append(ctx)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(ctx.call_id)
        return "never"

    model = ScriptedModel([[call("add", a=1, b=1), call("hang"), call("add", a=2, b=2)], "hello"])
    talk = session(model, add, hang)
    running = asyncio.ensure_future(talk.prompt("go"))
    await wait_until(lambda: bool(contexts), description="the call to hang")
    assert not contexts[0].cancelled
    talk.abort()
    result = await running
    assert [(c.name, c.outcome) for c in result.calls] == [("add", "result"), ("hang", "cancelled"), ("add", "cancelled")]
    assert (len(stopped), contexts[0].cancelled, len(model.requests)) == (1, True, 1)
    assert [m.role for m in talk.messages] == ["user", "assistant", "tool_result", "tool_result", "tool_result"]
    assert (await talk.prompt("hi")).text == "hello"
    assert not any([*check_openai(r.messages), *check_anthropic(r.messages), *check_gemini(r.messages)] for r in model.requests)


async def test_an_abort_leaves_the_queues_as_they_are_and_drains_no_follow_up() -> None:
    model = Held(["one"])
    talk = session(model)
    running = await prompted(talk)
    talk.steer("s")
    talk.follow_up("f")
    talk.abort()
    await running
    assert talk.has_queued
    assert [line for line in texts(talk) if line.startswith("user")] == ["user: hi"]
    talk.clear_steering()
    assert talk.has_queued
    talk.clear_follow_ups()
    assert not talk.has_queued


async def test_an_abort_before_the_turn_began_ends_it_before_the_model_is_asked() -> None:
    opened = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_app: App) -> AsyncIterator[None]:
        await opened.wait()
        yield

    model = ScriptedModel(["one"])
    talk = App(lifespan=lifespan).agent("a", model=model).local()
    running = asyncio.ensure_future(talk.prompt("hi"))
    await asyncio.sleep(0)
    talk.abort()
    opened.set()
    assert (await running).state == "cancelled"
    assert (texts(talk), model.requests) == (["user: hi"], [])


async def test_a_prompt_that_its_caller_gives_up_leaves_the_session_usable_and_its_end_told() -> None:
    model = Held(["one"])
    talk = session(model)
    heard: list[str] = []
    talk.bus.subscribe(lambda event: heard.append(event.type))
    running = await prompted(talk)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard.count("agent_end") == 1
    model.gate.set()
    await talk.run()
    assert texts(talk) == ["user: hi", "assistant: one"]


# -- starting over, and other settings


async def test_to_reset_forgets_all_but_settings_listeners_and_roles() -> None:
    model = ScriptedModel([call("order", part="x"), "ordered", "hello"])
    talk = session(model, order)
    heard: list[str] = []
    talk.bus.subscribe(lambda event: heard.append(event.type))
    await talk.prompt("buy x")
    talk.steer("s")
    talk.set_instructions("Be brief.")
    store = talk.memory.store
    talk.reset()
    state = talk.state()
    assert (state.messages, talk.parked, talk.has_queued, state.last_error) == ((), (), False, None)
    assert state.settings.instructions == "Be brief."
    heard.clear()
    model._items = ("hello",)
    await talk.prompt("hi")
    assert shown(model.requests[-1]) == ["system: Be brief.", "user: hi"]
    assert heard[0] == "agent_start"
    assert talk.memory.store != store


async def test_settings_count_from_the_next_run_on() -> None:
    first, second = Held(["one", "two"]), ScriptedModel(["?", "three"])
    talk = session(first, add)
    running = await prompted(talk)
    talk.set_model(second)
    talk.set_tools([])
    talk.set_instructions("Be brief.")
    talk.set_thinking_level("high")
    talk.follow_up("and?")
    first.gate.set()
    await running
    assert [len(r.tools) for r in first.requests] == [1, 1]
    assert first.requests[1].settings == {}
    await talk.prompt("more")
    (asked,) = second.requests
    assert (asked.tools, asked.settings, asked.messages[0]["content"]) == ((), {"reasoning_effort": "high"}, "Be brief.")


@pytest.mark.parametrize(
    ("level", "own", "asked"),
    [(None, "low", "low"), ("off", "low", None), ("high", "low", "high"), ("off", None, None), (None, None, None)],
)
async def test_a_level_of_thinking_is_the_given_one_else_the_models_and_off_is_off(
    level: str | None, own: str | None, asked: str | None
) -> None:
    model = ScriptedModel(["a", "b"])
    agent = App().agent("a", model=model, model_settings={"reasoning_effort": own} if own else {})
    talk = agent.local()
    talk.set_thinking_level("medium")
    await talk.prompt("hi")
    talk.set_thinking_level(level)
    await talk.prompt("hi")
    assert model.requests[1].settings.get("reasoning_effort") == asked


async def test_deps_are_entered_once_a_run() -> None:
    entered: list[str] = []

    @asynccontextmanager
    async def lifespan(_app: App) -> AsyncIterator[str]:
        entered.append("in")
        yield "deps"
        entered.append("out")

    agent = App(lifespan=lifespan).agent("a", model=ScriptedModel([call("add", a=1, b=1), "2"]), tools=[add])
    talk = agent.local(prepare_next_turn=lambda _, settings: replace(settings, instructions="Now be brief."))
    await talk.prompt("hi")
    assert entered == ["in", "out"]
