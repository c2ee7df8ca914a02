"""A conversation that grows beyond its model's budget is folded while it goes on, on either store alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.engine.test_two_stores import Played, bare, in_memory, in_redis
from turnyard import App, ModelError, ShaperPolicy, tool
from turnyard.clock import SystemClock
from turnyard.ports import ModelRequest
from turnyard.records.log import ASSISTANT, COMPACTION, USER
from turnyard.state.yard import Yard
from turnyard.testing import FunctionModel, ScriptedModel, call
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai

# four messages of 450 tokens and a question do not fit; a summary and the tool that reads what it stands for do
SMALL = ShaperPolicy(400, 1, 0, lod_truncate_above_chars=0, lod_headroom_tokens=-1, summary_budget_tokens=10_000)


def summarises(request: ModelRequest) -> bool:
    return not request.tools and "You shorten the log" in str(request.messages[0]["content"])


def answers(request: ModelRequest) -> str:
    return "they said a lot" if summarises(request) else "answer"


@pytest.fixture
async def yard(clean: str) -> AsyncIterator[Yard]:
    opened = await Yard.open(clean, clock=SystemClock())
    yield opened
    await opened.aclose()


async def long_talk(s: Played) -> None:
    for letter in "abcd":
        await s.publish(letter * 1800)
    await s.publish("and what do you say?")
    await s.run()


def agent_with(policy: ShaperPolicy, **options: Any) -> Any:
    return App().agent("a", model="scripted:none.yaml", shaper=policy, **options)


def played(base: Played, function: Any) -> Played:
    return replace(base, model=FunctionModel(function))


@pytest.mark.spec("turn-30", "turn-31")
async def test_what_does_not_fit_is_folded_in_the_turn_that_replies(yard: Yard) -> None:
    agent = agent_with(SMALL)
    here = played(in_memory(agent, []), answers)
    await long_talk(here)
    (marker,) = [e for e in await here.store.entries() if e.type == COMPACTION]
    assert (marker.body["text"], marker.body["count"], marker.body["more"]) == ("they said a lot", 4, False)
    assert marker.body["before"] > marker.body["after"]
    shown = [e.type for e in await here.store.entries()]
    assert shown == [COMPACTION, USER, ASSISTANT]
    async with in_redis(yard, agent, []) as base:
        there = played(base, answers)
        await long_talk(there)
        assert bare((await there.store.entries())[1:]) == bare((await here.store.entries())[1:])
        (same,) = [e for e in await there.store.entries() if e.type == COMPACTION]
        unplaced = ("text", "count", "before", "after", "more")
        assert [same.body[name] for name in unplaced] == [marker.body[name] for name in unplaced]
        assert await there.answers() == await here.answers() == [("succeeded", "answer", None)] * 5


@pytest.mark.spec("turn-33")
async def test_of_many_folds_one_summary_is_left_and_what_it_stands_for_can_still_be_read(yard: Yard) -> None:
    agent = agent_with(SMALL)
    async with in_redis(yard, agent, []) as base:
        talk = played(base, answers)
        for _ in range(3):
            await long_talk(talk)
        entries = await talk.store.entries()
        assert [e.type for e in entries].count(COMPACTION) == 1
        read = [await talk.store.entry(seq) for seq in range(1, 12)]
        assert ("a" * 1800) in [entry.body.get("text") for entry in read if entry is not None]
        assert len([r for r in talk.model.requests if summarises(r)]) >= 3


@pytest.mark.spec("turn-35")
@pytest.mark.parametrize("said", ["", "   ", ModelError("no summaries today")])
async def test_a_summary_that_fails_leaves_the_log_alone_and_the_turn_replies(said: str | Exception) -> None:
    def function(request: ModelRequest) -> str:
        if not summarises(request):
            return "answer"
        if isinstance(said, Exception):
            raise said
        return said

    talk = played(in_memory(agent_with(replace(SMALL, hard_budget_tokens=4000)), []), function)
    await long_talk(talk)
    assert not [e for e in await talk.store.entries() if e.type == COMPACTION]
    assert await talk.answers() == [("succeeded", "answer", None)] * 5
    assert len([r for r in talk.model.requests if summarises(r)]) == 1, "a broken summariser is not asked again in the same turn"


async def test_every_request_of_a_folding_conversation_is_one_that_strict_models_take() -> None:
    talk = played(in_memory(agent_with(SMALL), []), answers)
    for _ in range(4):
        await long_talk(talk)
    for request in talk.model.requests:
        assert not [*check_openai(request.messages), *check_anthropic(request.messages), *check_gemini(request.messages)]


@pytest.mark.spec("runner-23")
async def test_what_arrives_while_a_stretch_is_summarised_is_shown_afterwards(yard: Yard) -> None:
    agent = agent_with(SMALL)
    async with in_redis(yard, agent, []) as base:
        late: list[Any] = []

        def function(request: ModelRequest) -> str:
            return answers(request)

        talk = played(base, function)
        performer_model = Arriving(talk, late)
        talk = replace(talk, model=performer_model)
        await long_talk(talk)
        texts = [str(m["content"]) for m in talk.model.requests[-1].messages]
        assert any("meanwhile" in text for text in texts)
        assert [e.body["text"] for e in await talk.store.entries() if e.type == USER][-2:] == ["and what do you say?", "meanwhile"]


class Arriving(ScriptedModel):
    """A model during whose first summary somebody writes."""

    def __init__(self, talk: Played, sent: list[Any]) -> None:
        super().__init__([])
        self.talk, self.sent = talk, sent

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.requests.append(request)
        if summarises(request) and not self.sent:
            self.sent.append(await self.talk.store.publish({"text": "meanwhile"}))
        inner = FunctionModel(answers)
        async for item in inner.stream(request):
            yield item


@tool
async def dump() -> str:
    """Say very much."""
    return "x" * 20_000


async def test_a_model_that_finds_a_request_too_long_is_asked_with_less_when_its_summary_was_no_help() -> None:
    """The window is not known, what could be summarised is tiny, and what is large has not been read yet."""

    def function(request: ModelRequest) -> Any:
        if summarises(request):
            return "much longer than the little that it would stand for, so that it is of no use " * 9
        if sum(len(str(m["content"])) for m in request.messages) > 10_000:
            raise ModelError("the prompt is too long", code="context_overflow")
        return "done" if request.messages[-1]["role"] == "tool" or "x" * 50 in str(request.messages) else call("dump")

    agent = App().agent("a", model="scripted:none.yaml", tools=[dump], shaper=ShaperPolicy(preserve_last_messages=1))
    talk = played(in_memory(agent, []), function)
    for text in ("hi", "and now?", "go on"):
        await talk.publish(text)
    await talk.run()
    assert {state for state, _, _ in await talk.answers()} == {"succeeded"}
