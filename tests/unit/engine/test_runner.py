"""How effects are performed: which model is asked with what, and which calls run when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.engine.logs import TURN, batch, folded, noticed, row, user, view
from turnyard.engine.effects import AskModel, Failure, Fold, ModelAnswer, NoEffect, Parked, RunBatch, RunTool, Summary, ToolResult
from turnyard.engine.frame import Built
from turnyard.engine.runner import Means, Model, Performer
from turnyard.errors import ModelError
from turnyard.ports import Delta, Done, ModelRequest, ToolSpec
from turnyard.records.commit import Commit, TurnView
from turnyard.records.log import LogRecord
from turnyard.testing import ScriptedModel, wait_until

ASK = AskModel("turn_1:1")


async def never(_view: TurnView, _effect: RunTool) -> ToolResult | Parked:
    raise AssertionError("no tool should run")


def means(*models: Any, **more: Any) -> Means:
    calls: list[str] = []

    async def instruct(shown: TurnView) -> str:
        calls.append(shown.turn)
        return f"instructions {len(calls)}"

    opened = [Model(model, f"m{i}") for i, model in enumerate(models)]
    return Means(opened, more.pop("run", never), instruct, **more)


async def test_the_model_is_asked_with_everything_it_needs() -> None:
    model = ScriptedModel(["hello"])
    tools = (ToolSpec("add", "Add.", {}),)
    performer = Performer(means(model, tools=tools, settings={"temperature": 0}))
    effect, result = await performer.perform(view(user(1)), ASK)
    assert (effect, result) == (
        ASK,
        ModelAnswer(Done("hello", (), {"input_tokens": 1, "output_tokens": 1}, "stop", "m0"), active_tokens=19),
    )
    messages = [{"role": "system", "content": "instructions 1"}, {"role": "user", "content": "hi"}]
    assert model.requests == [ModelRequest("m0", messages, tools, {"temperature": 0}, "turn_1:1")]


async def test_instructions_are_asked_for_once_per_turn() -> None:
    model = ScriptedModel(["a"])
    performer = Performer(means(model))
    for shown in (view(user(1)), view(user(1)), replace(view(user(1)), turn="turn_2")):
        await performer.perform(shown, ASK)
    assert [r.messages[0]["content"] for r in model.requests] == ["instructions 1", "instructions 1", "instructions 2"]


async def test_a_notice_that_is_over_is_not_shown_to_the_model_and_the_answer_names_it() -> None:
    async def over(_shown: TurnView) -> list[str]:
        return ["g\nresolved"]

    model = ScriptedModel(["a"])
    performer = Performer(means(model, prepare=over))
    notices = [replace(noticed(seq, text), group_key=f"g\n{text}") for seq, text in ((2, "resolved"), (3, "open"))]
    _, result = await performer.perform(view(user(1), *notices), ASK)
    assert [m["content"] for m in model.requests[0].messages[1:]] == ["hi", "[notification] open"]
    assert isinstance(result, ModelAnswer)
    assert result.cleared == ("g\nresolved",)


async def test_the_model_is_shown_what_its_agent_makes_of_the_log() -> None:
    model = ScriptedModel(["a"])
    await Performer(means(model, show=lambda entries: entries[-1:])).perform(view(user(1), noticed(2, "open")), ASK)
    assert [m["content"] for m in model.requests[0].messages[1:]] == ["[notification] open"]


async def test_the_next_model_is_asked_when_one_fails_and_the_last_failure_is_the_result() -> None:
    bad, worse = ScriptedModel([ModelError("down", retryable=True)]), ScriptedModel([ModelError("gone")])
    done, result = await Performer(means(bad, ScriptedModel(["there"]))).perform(view(user(1)), ASK)
    assert isinstance(result, ModelAnswer)
    assert (done, result.done.text, result.done.model) == (ASK, "there", "m1")
    assert (await Performer(means(bad, worse)).perform(view(user(1)), ASK))[1] == Failure("model_error", "gone")
    assert (await Performer(means(worse, bad)).perform(view(user(1)), ASK))[1] == Failure("model_error", "down", retryable=True)


async def test_a_stream_that_ends_without_its_last_word_is_a_failure() -> None:
    class Cut(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            yield Delta("text", 0, "hel")

    heard: list[str] = []
    performer = Performer(means(Cut([]), on_delta=lambda _view, delta: heard.append(delta.text)))
    result = (await performer.perform(view(user(1)), ASK))[1]
    assert isinstance(result, Failure)
    assert result.retryable
    assert heard == ["hel"]


async def test_a_call_is_run_with_the_view_it_belongs_to() -> None:
    async def run(shown: TurnView, effect: RunTool) -> ToolResult:
        return ToolResult(f"{shown.turn} {effect.name} {effect.key}")

    effect = RunTool(row("c1"), "add", {}, "key")
    assert await Performer(means(run=run)).perform(view(user(1)), effect) == (effect, ToolResult(f"{TURN} add key"))


async def test_a_commit_without_an_effect_is_passed_on() -> None:
    effect = NoEffect(Commit(ending="park"))
    assert await Performer(means()).perform(view(), effect) == (effect, None)


# -- a batch


class Calls:
    """Calls that end when a test says so."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    async def run(self, _view: TurnView, effect: RunTool) -> ToolResult:
        call = effect.row.call
        self.started.append(call)
        try:
            await self.gates.setdefault(call, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.stopped.append(call)
            raise
        return ToolResult(call)

    def end(self, call: str) -> None:
        self.gates.setdefault(call, asyncio.Event()).set()


def of(*calls: str) -> RunBatch:
    return RunBatch(tuple(RunTool(row(c, "parallel", "started"), "add", {}, c) for c in calls))


async def test_a_batch_gives_what_finishes_first_and_keeps_the_others_running() -> None:
    calls = Calls()
    performer = Performer(means(run=calls.run))
    shown = batch(row("c1", "parallel", "started"), row("c2", "parallel", "started"))
    calls.end("c2")
    assert await performer.perform(shown, of("c1", "c2")) == (of("c2").calls[0], ToolResult("c2"))
    calls.end("c1")
    calls.end("c3")
    assert (await performer.perform(shown, of("c1", "c3")))[1] == ToolResult("c1")
    assert (await performer.perform(shown, of("c3")))[1] == ToolResult("c3")
    assert calls.started == ["c1", "c2", "c3"]


async def test_closing_stops_the_calls_that_still_run() -> None:
    calls = Calls()
    performer = Performer(means(run=calls.run))
    calls.end("c2")
    await performer.perform(batch(), of("c1", "c2"))
    await performer.aclose()
    assert calls.stopped == ["c1"]


async def test_cancelling_a_batch_stops_all_its_calls() -> None:
    calls = Calls()
    performing = asyncio.ensure_future(Performer(means(run=calls.run)).perform(batch(), of("c1", "c2")))
    await wait_until(lambda: len(calls.started) == 2, description="both calls to start")
    performing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await performing
    assert calls.stopped == ["c1", "c2"]


async def test_the_reader_is_offered_from_the_first_summary_on_that_the_log_has_or_the_turn_makes() -> None:
    reader = ToolSpec("read_entry", "Read.", {})
    marker = folded(3)

    class Builder:
        """Folds once, then builds."""

        folds = 1

        def build(self, entries: Sequence[LogRecord], *, system: str, tools: Sequence[ToolSpec], fold: str = "auto") -> Built | Fold:
            if fold == "force" and self.folds:
                self.folds = 0
                return Fold("", ({"role": "user", "content": "sum up"},), ((1, 1),), 1, 2, 1, 9, 3)
            return Built([{"role": "user", "content": "hi"}], 1)

        def summary_of(self, fold: Fold, text: str, *, usage: dict[str, int] | None = None) -> Summary:
            return Summary(text, 4, usage)

    model = ScriptedModel(["a"])
    performer = Performer(means(model, reader=reader, builder=Builder))
    await performer.perform(view(user(1)), ASK)
    done, result = await performer.perform(view(user(1)), replace(ASK, fold="force"))
    assert (isinstance(done, Fold), isinstance(result, Summary)) == (True, True)
    await performer.perform(view(marker, user(4)), ASK)
    await Performer(means(model, reader=reader, builder=Builder)).perform(view(marker, user(4)), ASK)
    assert [reader in r.tools for r in model.requests] == [False, False, True, True]
