"""When messages that steer a run, or follow it, reach the model; and what the owner may decide between two turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, Limits, Park, SessionClosed, tool
from turnyard.engine.effects import ToolResult
from turnyard.engine.local import LocalSession
from turnyard.engine.messages import Message
from turnyard.engine.options import Block, CallContext, Replace, Settings, TurnDone
from turnyard.errors import ModelError
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.testing import ScriptedModel, call, say


class During(ScriptedModel):
    """Does something while its answer number `at` streams."""

    def __init__(self, items: list[Any], at: int, then: Callable[[], None]) -> None:
        super().__init__(items)
        self._at, self._then = at, then

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        if len(self.requests) == self._at:
            self._then()
        async for item in super().stream(request):
            yield item


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def leave(word: str) -> str:
    """End the session."""
    raise SessionClosed(word)


@tool(park=timedelta(minutes=1))
async def order(part: str) -> Park:
    """Order a part."""
    return Park(f"ordered {part}")


ADD = call("add", a=1, b=1)


def session(model: Any, *tools: Any, **options: Any) -> LocalSession:
    return App().agent("a", model=model, tools=tools, limits=options.pop("limits", None)).local(**options)


def lines(talk: LocalSession) -> list[str]:
    return [m.text for m in talk.messages]


def shown(request: ModelRequest) -> list[str]:
    return [str(m["content"]) for m in request.messages]


# -- when they are sent


@pytest.mark.spec("runner-50")
async def test_queues_give_one_at_a_time_steering_first_and_follow_ups_when_nothing_else_is_left() -> None:
    model = ScriptedModel([ADD, "a", "b", "c", "d"])
    talk = session(model, add)
    for text in ("f1", "f2"):
        talk.follow_up(text)
    for text in ("s1", "s2"):
        talk.steer(text)
    result = await talk.prompt("hi")
    assert lines(talk) == ["hi", "s1", "", "2", "s2", "a", "f1", "b", "f2", "c"]
    assert (result.state, result.text, talk.has_queued) == ("succeeded", "c", False)


@pytest.mark.spec("runner-50")
async def test_queues_give_all_at_once_where_the_session_says_so() -> None:
    model = ScriptedModel(["a", "b"])
    talk = session(model, steering="all", follow_ups="all")
    for n in (1, 2):
        talk.follow_up(f"f{n}")
        talk.steer(f"s{n}")
    await talk.prompt("hi")
    assert lines(talk) == ["hi", "s1", "s2", "a", "f1", "f2", "b"]


@pytest.mark.spec("runner-50")
async def test_a_message_that_steers_the_last_answer_is_answered_in_the_same_run_before_any_follow_up() -> None:
    ends: list[str] = []
    model = During(["a", "b", "c"], 0, lambda: talk.steer("wait"))
    talk = session(model)
    talk.bus.subscribe(lambda event: ends.append(event.type) if event.type == "agent_end" else None)
    talk.follow_up("and then?")
    await talk.prompt("hi")
    assert lines(talk) == ["hi", "a", "wait", "b", "and then?", "c"]
    assert ends == ["agent_end"]


async def test_a_message_that_steers_while_calls_run_reaches_the_model_with_their_results() -> None:
    @tool
    async def look() -> str:
        """Look."""
        talk.steer("quick")
        return "a window"

    model = ScriptedModel([[call("look"), ADD], "done"])
    talk = session(model, look, add)
    await talk.prompt("go")
    assert shown(model.requests[1])[-3:] == ["a window", "2", "quick"]


async def test_what_is_queued_while_nothing_runs_waits_for_the_next_run() -> None:
    model = ScriptedModel(["a", "b"])
    talk = session(model)
    talk.steer("s")
    talk.follow_up("f")
    assert (talk.messages, model.requests) == ([], [])
    await talk.run()
    assert lines(talk) == ["s", "a", "f", "b"]


@pytest.mark.parametrize("how", ["error", "terminate", "hook"])
async def test_a_run_that_ends_by_an_error_a_tool_or_the_owner_takes_nothing_more_from_the_queues(how: str) -> None:
    items: dict[str, list[Any]] = {"error": [ModelError("no")], "terminate": [call("leave", word="bye")], "hook": [ADD, "more"]}
    stop = {"should_stop_after_turn": lambda _: True} if how == "hook" else {}
    model = ScriptedModel(items[how])
    talk = session(model, add, leave, **stop)
    talk.follow_up("f")
    await talk.prompt("hi")
    assert (len(model.requests), talk.has_queued) == (1, True)
    assert "f" not in lines(talk)


async def test_a_published_message_waits_where_the_owner_stopped_the_run_and_is_answered_by_the_next() -> None:
    model = During([ADD, "both"], 0, lambda: talk.publish("by the way") and None)
    talk = session(model, add, should_stop_after_turn=lambda _: len(model.requests) == 1)
    await talk.prompt("hi")
    assert len(model.requests) == 1
    await talk.run()
    assert shown(model.requests[1]) == ["hi", "", "2", "by the way"]


async def test_calls_that_have_not_begun_are_skipped_once_a_message_steers_where_the_session_says_so() -> None:
    ran: list[int] = []

    @tool
    async def step(n: int) -> str:
        """Step."""
        ran.append(n)
        talk.steer("stop that")
        return str(n)

    calls = [call("step", n=n) for n in (1, 2, 3)]
    talk = session(ScriptedModel([calls, "stopped"]), step, skip_remaining_on_steer=True)
    result = await talk.prompt("go")
    assert ran == [1]
    assert [c.is_error for c in result.calls] == [False, True, True]
    assert "the user wrote something new" in str(result.calls[1].content)
    ran.clear()
    talk = session(ScriptedModel([calls, "done", "really", "yes"]), step)
    await talk.prompt("go")
    assert ran == [1, 2, 3]


# -- what the owner decides


async def test_a_blocked_call_does_not_run_and_says_why_and_a_check_that_fails_blocks_too() -> None:
    ran: list[str] = []

    @tool
    async def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return what

    async def check(context: CallContext) -> Block | None:
        assert talk.messages[-1].calls, "the answer that made the call stands in the transcript"
        if context.args["what"] == "bug":
            raise ZeroDivisionError
        return Block("not on a Sunday") if context.args["what"] == "bad" else None

    model = ScriptedModel([call("act", what="bad"), call("act", what="bug"), call("act", what="good"), "done"])
    talk = session(model, act, before_tool_call=check)
    result = await talk.prompt("go")
    assert ran == ["good"]
    assert [(c.content, c.is_error) for c in result.calls] == [
        ("ERROR: act was not executed: not on a Sunday", True),
        ("ERROR: act was not executed: the check before it failed", True),
        ("good", False),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (None, ("2", False, 2)),
        (Replace(), ("2", False, 2)),
        (Replace(content="two"), ("two", False, 2)),
        (Replace(is_error=True), ("2", True, 2)),
        (Replace(terminate=True), ("2", False, 1)),
    ],
)
async def test_a_result_is_changed_field_by_field_and_what_is_not_given_stays(
    change: Replace | None, expected: tuple[str, bool, int]
) -> None:
    seen: list[ToolResult] = []

    def after(context: CallContext, result: ToolResult) -> Replace | None:
        assert context.tool == "add"
        seen.append(result)
        return change

    model = ScriptedModel([ADD, "done"])
    result = await session(model, add, after_tool_call=after).prompt("go")
    assert (result.calls[0].content, result.calls[0].is_error, len(model.requests)) == expected
    assert seen == [ToolResult("2")]


async def test_a_result_stands_though_the_look_at_it_fails() -> None:
    def after(context: CallContext, result: ToolResult) -> Replace | None:
        raise ZeroDivisionError

    result = await session(ScriptedModel([ADD, "done"]), add, after_tool_call=after).prompt("go")
    assert (result.state, result.calls[0].content) == ("succeeded", "2")


async def test_a_run_goes_on_as_it_would_though_who_watches_or_decides_fails() -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    model = ScriptedModel([say("let me see", ADD), "done"])
    names = ("on_delta", "on_usage", "should_stop_after_turn", "prepare_next_turn")
    result = await session(model, add, **dict.fromkeys(names, broken)).prompt("go")
    assert (result.state, result.text) == ("succeeded", "done")


async def test_after_a_turn_with_calls_the_owner_is_asked_whether_to_stop_then_what_to_go_on_with_and_never_after_the_last_answer() -> None:
    asked: list[str] = []
    other = ScriptedModel(["?", "from the other"])

    def stop(done: TurnDone) -> bool:
        asked.append(f"stop after {done.message.text if done.message else None} {[r.text for r in done.results]}")
        return False

    async def prepare(done: TurnDone, settings: Settings) -> Settings:
        asked.append("prepare")
        return replace(settings, model=other, thinking_level="low", instructions="Be brief.")

    model = ScriptedModel([say("let me see", ADD), "never said"])
    talk = session(model, add, should_stop_after_turn=stop, prepare_next_turn=prepare)
    talk.bus.subscribe(lambda event: asked.append(event.type) if event.type.startswith("turn_") else None)
    result = await talk.prompt("go")
    assert result.text == "from the other"
    assert asked == ["turn_start", "turn_end", "stop after let me see ['2']", "prepare", "turn_start", "turn_end"]
    assert (other.requests[0].settings, other.requests[0].messages[0]["content"]) == ({"reasoning_effort": "low"}, "Be brief.")
    assert talk.state().settings.instructions == "", "what a run changed for itself is over with it"


async def test_a_message_with_a_role_of_ones_own_is_queued_kept_and_shown_as_its_converter_says() -> None:
    model = ScriptedModel(["a", "b"])
    talk = session(model, roles={"artifact": lambda m: replace(m, role="user", text=f"<{m.data['name']}>")})
    talk.steer(Message("artifact", data={"name": "plan"}))
    await talk.prompt("hi")
    assert [m.role for m in talk.messages] == ["user", "artifact", "assistant"]
    assert shown(model.requests[0]) == ["hi", "<plan>"]
    talk.registry.register("artifact", lambda _: None)
    await talk.prompt("again")
    assert shown(model.requests[1]) == ["hi", "a", "again"]


async def test_steering_waits_while_a_call_holds_the_turn_and_goes_on_with_its_result() -> None:
    model = ScriptedModel([call("order", part="x"), "ordered", "answered both"])
    talk = session(model, order, limits=Limits())
    parked = (await talk.prompt("buy x")).parked[0]
    talk.steer("faster")
    await talk.resolve(parked, "arrived")
    assert shown(model.requests[2])[-1] == "faster"
    assert len(model.requests) == 3
