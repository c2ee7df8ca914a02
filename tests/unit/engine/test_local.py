"""Whole turns in this process, on the engine that the workers run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, Limits, Park, SessionClosed, ToolError, tool
from turnyard.app.calls import Hands
from turnyard.engine.local import LocalAgent, LocalSession
from turnyard.engine.memory import MemorySession
from turnyard.engine.runner import Means, Model
from turnyard.errors import AlreadyDecided, InvalidInput, JobFailed, ModelError, NotFound
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.records.commit import TurnView
from turnyard.records.log import ASSISTANT, CALL, NOTICE, RESULT, USER
from turnyard.testing import ManualClock, ScriptedModel, TestModel, call
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@tool
async def leave(word: str) -> str:
    """End the session."""
    raise SessionClosed(word)


@tool(park=timedelta(minutes=1))
async def order(ctx: Any, part: str) -> Park:
    """Order a part; the vendor answers later."""
    return Park(f"ordered {part}")


@tool(lift=True)
async def render(scene: str) -> str:
    """Render a scene elsewhere."""
    return f"s3://{scene}"


@tool(lift=True, wait=True)
async def slow_sum(a: int) -> int:
    """Add elsewhere, waited for."""
    return a + 1


@tool
async def submit(what: str) -> str:
    """Hand something to a system that answers later."""
    return f'{{"pending": true, "correlation_id": "{what}", "ttl_s": 60}}'


TOOLS = (add, fail, leave, order, render, slow_sum, submit)


def session(*script: Any, tools: Any = TOOLS, clock: ManualClock | None = None, **options: Any) -> tuple[LocalSession, ScriptedModel]:
    model = ScriptedModel(script)
    agent = App().agent("a", model=model, tools=tools, **options)
    return agent.local(clock=clock), model


def kinds(talk: LocalSession) -> list[str]:
    return [e.type for e in talk.entries]


def shown(request: ModelRequest) -> list[str]:
    return [f"{m['role']}: {m['content']}" for m in request.messages]


def accepted_everywhere(model: ScriptedModel) -> bool:
    return not any([*check_openai(r.messages), *check_anthropic(r.messages), *check_gemini(r.messages)] for r in model.requests)


# -- one turn


@pytest.mark.spec("turn-7")
async def test_a_plain_answer_takes_one_model_call_is_stored_and_ends_the_turn() -> None:
    talk, model = session("hello")
    result = await talk.prompt("hi")
    assert (result.state, result.text, result.error) == ("succeeded", "hello", None)
    assert len(model.requests) == 1
    assert kinds(talk) == [USER, ASSISTANT]


@pytest.mark.spec("turn-8")
async def test_a_call_and_its_answer_leave_five_entries_for_two_model_calls() -> None:
    talk, model = session(call("add", a=2, b=3), "it is 5")
    result = await talk.prompt("add 2 and 3")
    assert kinds(talk) == [USER, ASSISTANT, CALL, RESULT, ASSISTANT]
    assert len(model.requests) == 2
    assert [(c.name, c.args, c.content) for c in result.calls] == [("add", {"a": 2, "b": 3}, "5")]
    assert result.text == "it is 5"
    assert (result.usage["model_calls"], result.usage["tool_calls"]) == (2, 1)


@pytest.mark.spec("turn-9")
async def test_calls_of_one_answer_run_one_after_the_other_and_a_message_waits_for_the_next_round() -> None:
    seen: list[str] = []
    held: list[LocalSession] = []

    @tool
    async def note(n: int) -> str:
        """Note."""
        seen.append(f"begin {n}")
        if n == 1:
            held[0].publish("and then?")
        await asyncio.sleep(0)
        seen.append(f"end {n}")
        return str(n)

    talk, model = session([call("note", n=1), call("note", n=2), call("note", n=3)], "done", tools=[note])
    held.append(talk)
    await talk.prompt("go")
    assert seen == ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"]
    assert kinds(talk) == [USER, ASSISTANT, CALL, CALL, CALL, RESULT, RESULT, RESULT, USER, ASSISTANT]
    assert shown(model.requests[1])[-4:] == ["tool: 1", "tool: 2", "tool: 3", "user: and then?"]
    assert len(model.requests) == 2


@pytest.mark.spec("turn-10")
async def test_a_tool_that_raises_gives_an_error_result_and_the_turn_goes_on() -> None:
    talk, model = session([call("fail", why="it is locked"), call("nobody", x=1), call("add", a=1)], "sorry")
    result = await talk.prompt("go")
    assert result.state == "succeeded"
    errors = [m["content"] for m in model.requests[1].messages if m["role"] == "tool"]
    assert errors[0] == "ERROR: it is locked"
    assert errors[1].startswith("ERROR: there is no tool 'nobody'")
    assert errors[2].startswith("ERROR: add was not run")
    assert [c.is_error for c in result.calls] == [True, True, True]


@pytest.mark.spec("turn-11")
async def test_a_tool_that_closes_the_session_lets_its_neighbours_finish_and_the_model_is_not_asked_again() -> None:
    talk, model = session([call("leave", word="bye"), call("add", a=1, b=1)], "never said")
    result = await talk.prompt("go")
    assert (result.state, [c.content for c in result.calls]) == ("succeeded", ["bye", "2"])
    assert len(model.requests) == 1


@pytest.mark.spec("turn-12")
async def test_a_model_that_never_stops_calling_ends_at_its_limit_and_keeps_what_it_had() -> None:
    class Endless(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            async for item in super().stream(request):
                yield Done(f"step {len(self.requests)}", item.calls, item.usage) if isinstance(item, Done) else item

    model = Endless([call("add", a=1, b=1)] * 9)
    talk = App().agent("a", model=model, tools=[add], limits=Limits(model_calls=3)).local()
    result = await talk.prompt("go")
    assert len(model.requests) == 3
    assert (result.state, result.text, len(result.calls)) == ("failed", "step 3", 3)
    with pytest.raises(JobFailed, match="3 times"):
        result.check()


@pytest.mark.spec("turn-13")
async def test_a_turn_that_had_to_end_with_a_tool_says_which_one_was_missing() -> None:
    talk, model = session("one", "two", "three", terminal_tool="leave", limits=Limits(model_calls=2))
    result = await talk.prompt("go")
    assert result.error is not None
    assert "never called leave" in result.error["message"]
    assert "only a call of leave" in shown(model.requests[1])[-1]
    talk, _ = session("one", call("leave", word="bye"), terminal_tool="leave")
    assert (await talk.prompt("go")).state == "succeeded"


@pytest.mark.spec("turn-14")
async def test_a_message_that_lands_while_the_model_answers_gets_its_own_answer() -> None:
    class Interrupted(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            if not self.requests:
                talk.publish("one more thing")
            async for item in super().stream(request):
                yield item

    model = Interrupted(["first", "second"])
    talk = App().agent("a", model=model).local()
    await talk.prompt("hi")
    assert len(model.requests) == 2
    assert shown(model.requests[1]) == ["user: hi", "assistant: first", "user: one more thing"]
    assert kinds(talk) == [USER, ASSISTANT, USER, ASSISTANT]


class Streaming(ScriptedModel):
    """Says its texts word by word."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        async for item in super().stream(request):
            if isinstance(item, Done):
                yield item
                continue
            for piece in item.text.split(" "):
                yield Delta("text", 0, piece + " ")
                await asyncio.sleep(0)


@pytest.mark.spec("turn-15")
async def test_streamed_pieces_arrive_in_order_and_together_are_the_reply() -> None:
    pieces: list[str] = []
    model = Streaming(["the quick brown fox "])
    result = await App().agent("a", model=model).run("hi", on_delta=lambda d: pieces.append(d.text))
    assert len(pieces) > 3
    assert "".join(pieces).rstrip() == result.text.rstrip()


async def test_tokens_are_summed_over_the_rounds() -> None:
    talk, _ = session(call("add", a=1, b=1), "2")
    result = await talk.prompt("go")
    assert (result.usage["input_tokens"], result.usage["output_tokens"]) == (2, 2)


@pytest.mark.spec("turn-17")
async def test_model_settings_reach_every_call_and_the_callers_object_stays_as_it_was() -> None:
    settings = {"tool_choice": "auto", "deep": {"a": [1]}}

    class Greedy(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            seen.append(str(request.settings))
            request.settings["deep"]["a"].append(2)
            request.settings.clear()
            async for item in super().stream(request):
                yield item

    seen: list[str] = []
    agent = App().agent("a", model=Greedy([call("add", a=1, b=1), "2"]), tools=[add], model_settings=settings)
    await agent.run("go")
    assert seen == [str({"tool_choice": "auto", "deep": {"a": [1]}})] * 2
    assert settings == {"tool_choice": "auto", "deep": {"a": [1]}}


async def test_a_reply_without_a_word_keeps_the_text_of_the_round_before_and_says_so() -> None:
    class Mute(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            first = not self.requests
            async for item in super().stream(request):
                if isinstance(item, Done):
                    yield Done("let me see" if first else "", item.calls, item.usage)

    result = await App().agent("a", model=Mute([call("add", a=1, b=1), "x"]), tools=[add]).run("go")
    assert (result.state, result.text, result.silent) == ("succeeded", "let me see", True)


class Watched:
    """A tracer that writes down which pieces of work there are, each under the one it is part of."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._open: list[str] = []

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, str]) -> Generator[None]:
        del attributes
        self._open.append(name)
        self.seen.append(">".join(self._open))
        yield
        self._open.pop()


def by_hand(model: Any, tools: Any = (), prepare: Any = None, **means: Any) -> LocalSession:
    """A session made of its parts, where the app has no word for one of them."""
    agent = App().agent("a", model=model, tools=tools)

    @asynccontextmanager
    async def scope() -> AsyncGenerator[Means]:
        yield replace(agent.means([Model(model, "m")], Hands("a", agent.toolbox(), None)), prepare=prepare, **means)

    local = LocalAgent(agent.table(), scope, lambda value: value)
    return LocalSession(local, MemorySession(ManualClock(), {"tenant": "t", "session": "s"}))


@pytest.mark.spec("turn-41", "turn-39")
async def test_two_calls_and_an_answer_are_four_steps_two_at_the_model_and_two_in_tools() -> None:
    tracer = Watched()
    talk = by_hand(ScriptedModel([[call("add", a=1, b=1), call("add", a=2, b=2)], "2 and 4"]), [add], tracer=tracer)
    await talk.prompt("go")
    asked = ["turn>build", "turn>stream_chat"]
    assert tracer.seen == ["turn", *asked, "turn>tool", "turn>tool", *asked]
    assert talk.memory.rev == 4


@pytest.mark.spec("turn-24")
async def test_each_round_claims_then_prepares_then_builds_and_what_was_resolved_is_not_shown() -> None:
    prepared: list[list[str]] = []

    async def prepare(view: TurnView) -> list[str]:
        prepared.append([e.body["text"] for e in view.entries if e.type in (USER, NOTICE)])
        return [e.group_key for e in view.entries if e.body.get("text") == "disk full"]

    @tool
    async def look() -> str:
        """Look."""
        talk.publish("what about the disk?")
        return "fine"

    model = ScriptedModel([call("look"), "done"])
    talk = by_hand(model, [look], prepare)
    talk.notice("disk full", group="disk", key="sda")
    await talk.prompt("hi")
    assert prepared == [["disk full", "hi"], ["hi", "what about the disk?"]]
    assert [shown(r)[0] for r in model.requests] == ["user: hi", "user: hi"]
    assert shown(model.requests[1])[-1] == "user: what about the disk?"


@pytest.mark.spec("turn-46")
async def test_a_model_call_that_failed_is_sent_again_with_the_same_results_and_runs_no_tool_again() -> None:
    clock = ManualClock()
    ran: list[int] = []

    @tool
    async def count(n: int) -> str:
        """Count."""
        ran.append(n)
        return f"{n} counted"

    class Hiccup(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            if len(self.requests) == 1:
                self.requests.append(request)
                raise ModelError("overloaded", retryable=True)
            async for item in super().stream(request):
                yield item

    model = Hiccup([call("count", n=1), "one"])
    talk = App().agent("a", model=model, tools=[count]).local(clock=clock)
    running = asyncio.ensure_future(talk.prompt("go"))
    await clock.advance(2.6)
    assert (await running).text == "one"
    assert ran == [1]
    assert model.requests[1].messages == model.requests[2].messages
    assert model.requests[1].key == model.requests[2].key


# -- what else arrives


@pytest.mark.spec("turn-18")
async def test_injected_context_is_seen_at_once_by_the_next_model_call_and_starts_nothing() -> None:
    talk, model = session("hello")
    talk.inject("the user is on a train")
    assert kinds(talk) == [NOTICE]
    assert talk.waiting == 0
    await talk.run()
    assert model.requests == []
    await talk.prompt("hi")
    assert shown(model.requests[0]) == ["user: [notification] the user is on a train", "user: hi"]


async def test_context_injected_while_a_turn_runs_joins_it_and_gives_it_no_further_round() -> None:
    held: list[LocalSession] = []

    @tool
    async def look() -> str:
        """Look."""
        held[0].inject("it rains")
        return "a window"

    talk, model = session(call("look"), "wet", tools=[look])
    held.append(talk)
    await talk.prompt("go")
    assert shown(model.requests[1])[-2:] == ["tool: a window", "user: [notification] it rains"]
    assert len(model.requests) == 2


@pytest.mark.spec("turn-19", "I7")
async def test_messages_that_wait_together_are_answered_by_one_call_that_holds_them_all_in_order() -> None:
    talk, model = session("all three")
    jobs = [talk.publish(text) for text in ("one", "two", "three")]
    await talk.run()
    assert len(model.requests) == 1
    assert shown(model.requests[0]) == ["user: one", "user: two", "user: three"]
    assert [e.jobs for e in talk.entries if e.type == USER] == [(job,) for job in jobs]


async def test_a_notice_replaces_an_unshown_one_of_its_group_and_starts_nothing() -> None:
    talk, model = session("a", "b")
    talk.notice("disk at 90 %", group="disk", key="sda")
    talk.notice("disk at 95 %", group="disk", key="sda")
    await talk.run()
    assert model.requests == []
    await talk.prompt("hi")
    assert shown(model.requests[0]) == ["user: [notification] disk at 95 %", "user: hi"]
    talk.clear(group="disk", key="sda")
    await talk.prompt("and now?")
    assert "disk" not in str(shown(model.requests[1]))


# -- results that come later


@pytest.mark.spec("turn-20")
async def test_a_call_that_parks_leaves_a_placeholder_that_names_it_and_blocks_nothing() -> None:
    talk, model = session(call("submit", what="job-7"), "it is on its way", "of course")
    result = await talk.prompt("submit it")
    (parked,) = result.parked
    assert (result.state, result.text) == ("waiting", "it is on its way")
    assert parked.correlation == "job-7"
    placeholder = model.requests[1].messages[-1]
    assert placeholder["role"] == "tool"
    assert "job-7" in placeholder["content"]
    assert parked.call in placeholder["content"]
    assert (await talk.prompt("can we talk meanwhile?")).text == "of course"


@pytest.mark.spec("turn-21")
async def test_a_late_result_stands_beside_its_placeholder_in_a_list_that_strict_apis_accept() -> None:
    talk, model = session(call("submit", what="job-7"), "on its way", "it is there")
    await talk.prompt("submit it")
    result = await talk.resolve("job-7", {"total": 2})
    assert (result.state, result.text) == ("succeeded", "it is there")
    assert accepted_everywhere(model)
    last = shown(model.requests[2])
    assert "Pending" in last[2]
    assert last[-1].endswith('result for the earlier pending call: {"total":2}')


async def test_calls_that_run_side_by_side_may_promise_their_results_too() -> None:
    both = [call("submit", what="job-1"), call("add", a=1, b=2), call("submit", what="job-2")]
    talk, model = session(both, "on its way", "half", "all", limits=Limits(parallel_tools=3))
    result = await talk.prompt("submit them")
    assert sorted(parked.correlation or "" for parked in result.parked) == ["job-1", "job-2"]
    assert [c.outcome for c in result.calls] == ["placeholder", "result", "placeholder"]
    await talk.resolve("job-2", "second")
    assert (await talk.resolve("job-1", "first")).text == "all"
    assert accepted_everywhere(model)


async def test_a_tool_may_say_that_news_is_over() -> None:
    @tool
    async def tidy() -> dict[str, Any]:
        """Make room."""
        return {"clear": True, "group_by": "disk", "key": "sda", "freed": "3 GB"}

    talk, model = session(call("tidy"), "tidied", tools=(tidy,))
    talk.notice("full", group="disk", key="sda")
    talk.notice("hot", group="cpu", key="0")
    await talk.prompt("how are you?")
    assert [("full" in str(r.messages), "hot" in str(r.messages), "3 GB" in str(r.messages)) for r in model.requests] == [
        (True, True, False),
        (False, True, True),
    ]


@pytest.mark.spec("turn-22")
async def test_a_late_result_a_message_and_a_notice_make_one_model_call_in_order_of_arrival() -> None:
    talk, model = session(call("order", part="x"), "ordered", "all in one")
    parked = (await talk.prompt("buy x")).parked[0]
    talk.notice("the shop closes", group="shop", key="hours")
    talk.publish("is it here yet?")
    await talk.resolve(parked, "it is here")
    assert len(model.requests) == 3
    news = shown(model.requests[2])[-3:]
    assert news[0] == "user: [notification] the shop closes"
    assert news[1] == "user: is it here yet?"
    assert news[2].endswith("it is here")
    assert accepted_everywhere(model)


@pytest.mark.spec("turn-23")
async def test_the_first_outcome_stands_an_unknown_call_is_an_error_and_past_its_deadline_it_is_a_timeout() -> None:
    clock = ManualClock()
    talk, model = session(
        call("order", part="x"), "ordered", "arrived", call("order", part="y"), "ordered", "too late", "at last", clock=clock
    )
    parked = (await talk.prompt("buy x")).parked[0]
    await talk.resolve(parked, "here")
    again = await talk.resolve(parked, "here")
    assert (again.state, len(model.requests)) == ("succeeded", 3)
    with pytest.raises(AlreadyDecided, match="first one stands"):
        await talk.resolve(parked, "elsewhere")
    with pytest.raises(NotFound):
        await talk.resolve("call_nobody", "x")
    second = (await talk.prompt("buy y")).parked[0]
    await clock.advance(59)
    assert await talk.expire() == []
    await clock.advance(2)
    assert await talk.expire() == [second.call]
    assert "did not finish in time" in shown(model.requests[5])[-1]
    await talk.resolve(second, "it came after all")
    assert "late result for the call that was given up: it came after all" in shown(model.requests[6])[-1]
    assert accepted_everywhere(model)


async def test_a_lifted_call_runs_here_after_the_turn_and_its_result_wakes_the_session() -> None:
    talk, model = session(call("render", scene="x"), "rendering", "rendered")
    result = await talk.prompt("render x")
    assert (result.state, result.text) == ("succeeded", "rendered")
    assert shown(model.requests[2])[-1].endswith("result for the earlier pending call: s3://x")


async def test_an_awaited_lifted_call_holds_the_turn_until_it_is_done() -> None:
    talk, model = session([call("slow_sum", a=1), call("add", a=1, b=1)], "done")
    result = await talk.prompt("go")
    assert (result.state, len(model.requests)) == ("succeeded", 2)
    assert [c.content for c in result.calls] == ["2", "2"]


# -- failures


async def test_a_model_that_fails_for_good_fails_the_turn_and_the_session_goes_on() -> None:
    talk, _ = session(ModelError("no such model"), "hello again")
    result = await talk.prompt("hi")
    assert (result.state, (result.error or {})["code"]) == ("failed", "model_error")
    assert (await talk.prompt("hi")).state == "failed", "the script stands still, for nothing was said"


async def test_a_failure_that_may_pass_is_tried_again_after_a_while() -> None:
    clock = ManualClock()

    class Flaky(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            self.requests.append(request)
            if len(self.requests) < 3:
                raise ModelError("busy", retryable=True)
            yield Done("there")

    model = Flaky([])
    running = asyncio.ensure_future(App().agent("a", model=model).local(clock=clock).prompt("hi"))
    await clock.advance(2.6)
    assert len(model.requests) == 2
    await clock.advance(5.1)
    assert (await running).text == "there"
    assert len({r.key for r in model.requests}) == 1


async def test_a_bug_in_the_model_reaches_the_caller_and_leaves_the_session_usable() -> None:
    class Broken(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            if not self.requests:
                self.requests.append(request)
                raise ZeroDivisionError
            async for item in super().stream(request):
                yield item

    talk = App().agent("a", model=Broken(["fine"])).local()
    with pytest.raises(ZeroDivisionError):
        await talk.prompt("hi")
    await talk.run()
    assert kinds(talk) == [USER, ASSISTANT]


async def test_an_empty_message_is_refused() -> None:
    talk, _ = session("x")
    with pytest.raises(InvalidInput):
        await talk.prompt("  ")


async def test_a_cancelled_turn_pairs_its_calls_and_the_session_goes_on() -> None:
    held: list[LocalSession] = []

    @tool
    async def stop() -> str:
        """Ask for the end."""
        assert held[0].cancel()
        return "asked"

    talk, model = session([call("stop"), call("stop"), call("stop")], "hello", tools=[stop])
    held.append(talk)
    result = await talk.prompt("go")
    assert (result.state, result.cause) == ("cancelled", "user")
    assert [c.outcome for c in result.calls] == ["result", "cancelled", "cancelled"]
    assert (await talk.prompt("hi")).text == "hello"
    assert accepted_everywhere(model)
    assert talk.cancel() is False


# -- several at once


async def test_calls_run_together_where_the_agent_says_so_and_their_results_keep_their_order() -> None:
    running = 0
    most = 0
    gate = asyncio.Event()

    @tool
    async def meet(n: int) -> str:
        """Wait for another one."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            gate.set()
        await gate.wait()
        running -= 1
        return str(n)

    talk, model = session([call("meet", n=n) for n in (1, 2, 3)], "done", tools=[meet], limits=Limits(parallel_tools=2))
    result = await talk.prompt("go")
    assert most == 2
    assert [c.content for c in result.calls] == ["1", "2", "3"]
    assert [m["content"] for m in model.requests[1].messages if m["role"] == "tool"] == ["1", "2", "3"]
    assert len(model.requests) == 2


async def test_the_model_for_tests_runs_every_tool_it_is_told_to() -> None:
    agent = App().agent("a", model="scripted:none.yaml", tools=[add])
    with agent.override(model=TestModel(call_tools=["add"])):
        result = await agent.run("hello")
    assert result.calls[0].name == "add"
