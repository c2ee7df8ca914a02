"""A conversation in this process whose model, or summariser, fails: what it is asked next, and what the log tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from turnyard import App, Limits, LocalSession, RunResult
from turnyard.engine.shaper import ShaperPolicy
from turnyard.errors import ModelError
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.records.log import COMPACTION
from turnyard.testing import ManualClock

BUSY = ModelError("busy", retryable=True)
LONG = ModelError("maximum context length is 8 tokens", code="context_overflow")


class Troubled:
    """A model that answers what it is asked, once it has failed as often as it is told to."""

    def __init__(self, *failures: ModelError, summaries: tuple[ModelError, ...] = ()) -> None:
        self.failures = list(failures)
        self.summaries = list(summaries)
        self.asked: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        folding = request.key.endswith(":fold")
        self.asked.append(request)
        if failures := self.summaries if folding else self.failures:
            raise failures.pop(0)
        yield Done("it was about many words" if folding else "here you are", usage={"input_tokens": 10, "output_tokens": 2})

    async def aclose(self) -> None:
        pass


def session(model: Troubled, clock: ManualClock, budget_tokens: int = 0) -> LocalSession:
    policy = ShaperPolicy(budget_tokens, preserve_last_messages=1, preserve_last_tool_calls=0, lod_headroom_tokens=-1)
    return App().agent("a", model=model, shaper=policy, limits=Limits(retry_base=1)).local(clock=clock)


async def through(clock: ManualClock, doing: Awaitable[RunResult], seconds: float = 10) -> RunResult:
    """Let time pass until something is done."""
    running = asyncio.ensure_future(doing)
    await clock.advance(seconds)
    assert running.done()
    return await running


def told(talk: LocalSession) -> list[tuple[str, Any]]:
    """What the log says of retries and folds."""
    known: dict[str, Callable[[dict[str, Any]], Any]] = {
        "summarization/retry/start": lambda b: b["attempt"],
        "summarization/retry/end": lambda b: b["success"],
        "retry/start": lambda b: b["attempt"],
        "retry/end": lambda b: b["success"],
        "overflow/recovery": lambda b: b["applied"],
        COMPACTION: lambda b: b["text"],
    }
    return [(r.type, known[r.type](r.body)) for r in talk.memory.log if r.type in known]


async def grown(model: Troubled, clock: ManualClock, budget_tokens: int = 0) -> LocalSession:
    """A conversation of some length."""
    talk = session(model, clock, budget_tokens)
    failures, model.failures = model.failures, []
    for n in range(3):
        await talk.prompt(f"{n} " + "many words " * 20)
    model.failures = failures
    assert told(talk) == []
    return talk


@pytest.mark.spec("runner-22")
async def test_a_summary_that_failed_for_a_while_is_asked_for_again_and_its_events_pair() -> None:
    clock, model = ManualClock(), Troubled(summaries=(BUSY, BUSY))
    talk = await grown(model, clock, budget_tokens=260)
    result = await through(clock, talk.prompt("more " * 100))
    assert (result.state, result.text) == ("succeeded", "here you are")
    assert told(talk)[:4] == [
        ("summarization/retry/start", 1), ("summarization/retry/start", 2), (COMPACTION, "it was about many words"),
        ("summarization/retry/end", True),
    ]  # fmt: skip


@pytest.mark.spec("runner-22")
async def test_an_abort_during_the_wait_ends_it_at_once_and_in_the_log() -> None:
    clock, model = ManualClock(), Troubled(BUSY)
    talk = session(model, clock)
    running = asyncio.ensure_future(talk.prompt("hi"))
    await clock.advance(0.5)
    assert (talk.memory.state, len(model.asked)) == ("parked", 1)
    talk.abort()
    await clock.advance(0)
    assert running.done()
    assert (await running).state == "cancelled"
    assert told(talk) == [("retry/start", 1), ("retry/end", False)]


async def test_a_request_the_model_finds_too_long_is_folded_and_sent_again_once() -> None:
    clock, model = ManualClock(), Troubled(LONG)
    talk = await grown(model, clock)
    result = await through(clock, talk.prompt("and now?"))
    assert (result.state, result.text) == ("succeeded", "here you are")
    assert told(talk) == [(COMPACTION, "it was about many words"), ("overflow/recovery", True)]
    failed, folded, again = model.asked[-3:]
    assert folded.key.endswith(":fold")
    assert len(again.messages) < len(failed.messages)


async def test_a_second_overflow_in_a_row_fails_the_turn() -> None:
    clock, model = ManualClock(), Troubled(LONG, LONG)
    talk = await grown(model, clock)
    result = await through(clock, talk.prompt("and now?"))
    assert ((result.error or {})["code"], [kind for kind, _ in told(talk)]) == ("context_overflow", [COMPACTION, "overflow/recovery"])


async def test_an_overflow_of_a_conversation_that_cannot_be_folded_fails_at_once() -> None:
    clock, model = ManualClock(), Troubled(LONG, LONG)
    talk = session(model, clock)
    result = await through(clock, talk.prompt("hi"))
    assert ((result.error or {})["code"], told(talk)) == ("context_overflow", [("overflow/recovery", False)])
    assert len(model.asked) == 1


async def test_an_answer_that_only_repeats_itself_is_cut_kept_once_and_the_model_asked_again() -> None:
    class Stuck(Troubled):
        read = 0

        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            self.asked.append(request)
            if len(self.asked) > 1:
                yield Done("I am sorry")
                return
            for _ in range(100_000):
                self.read += 1
                yield Delta("text", 0, "On and on it went. ")

    clock, model = ManualClock(), Stuck()
    talk = session(model, clock)
    result = await through(clock, talk.prompt("tell me"))
    assert (result.state, result.text) == ("succeeded", "I am sorry")
    assert model.read < 300
    said = [m["content"] for m in model.asked[1].messages]
    assert said[:2] == ["tell me", "On and on it went. "]
    assert "repeated itself" in said[2]
