"""What becomes of a transcript in this process whose older messages give way to a summary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard import App, tool
from turnyard.engine.bus import Compacted
from turnyard.engine.compaction import Compaction, FileOps, estimate_tokens
from turnyard.engine.effects import Parked, ToolFact
from turnyard.engine.local import LocalSession
from turnyard.engine.shaper import Shaper, ShaperPolicy
from turnyard.errors import InvalidInput, ModelError, SessionBusy
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.testing import FunctionModel, ScriptedModel, call
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai


@tool
async def read(path: str) -> str:
    """Read a file."""
    return f"content of {path}"


@tool
async def write(path: str) -> str:
    """Write a file."""
    return "written"


def session(model: Any) -> LocalSession:
    return App().agent("a", model=model, tools=[read, write]).local()


def shown(request: ModelRequest) -> list[str]:
    return [f"{m['role']}: {m['content']}" for m in request.messages]


async def talked() -> tuple[LocalSession, FunctionModel]:
    """A session with two rounds of calls: 8 messages."""

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if last["role"] == "user" and str(last["content"]).startswith("read"):
            return call("read", path=str(last["content"]).removeprefix("read "))
        return "done"

    model = FunctionModel(answer)
    talk = session(model)
    await talk.prompt("read a")
    await talk.prompt("read b")
    assert [m.role for m in talk.messages] == ["user", "assistant", "tool_result", "assistant"] * 2
    return talk, model


@pytest.mark.spec("runner-51")
async def test_a_summary_takes_the_place_of_the_older_messages_for_owner_and_model() -> None:
    talk, model = await talked()
    kept, before = talk.messages[4:], estimate_tokens(talk.messages)
    done = talk.compact("they read a", 4)
    assert [m.role for m in talk.messages] == ["compact_summary", "user", "assistant", "tool_result", "assistant"]
    assert talk.messages[1:] == kept
    assert (done.summary, done.first_kept, done.before, done.count) == ("they read a", 4, before, 4)
    assert done.after == estimate_tokens(kept) + len("they read a") // 4
    assert done.files == FileOps(read=("a",))
    await talk.prompt("and?")
    assert shown(model.requests[-1])[:2] == ["user: [compacted]\nthey read a", "user: read b"]
    assert not any([*check_openai(r.messages), *check_anthropic(r.messages), *check_gemini(r.messages)] for r in model.requests)


@pytest.mark.spec("runner-51")
@pytest.mark.parametrize("first_kept", [-1, 2, 6, 9])
async def test_an_index_that_does_not_exist_or_parts_a_call_from_its_result_is_refused_and_changes_nothing(first_kept: int) -> None:
    talk, _ = await talked()
    heard: list[str] = []
    talk.bus.subscribe(lambda event: heard.append(event.type))
    before, log = talk.messages, list(talk.memory.log)
    with pytest.raises(InvalidInput, match="first_kept"):
        talk.compact("s", first_kept)
    assert (talk.messages, talk.memory.log, heard) == (before, log, [])


async def test_index_0_keeps_all_and_the_number_of_messages_none() -> None:
    talk, _ = await talked()
    everything = talk.messages
    talk.compact("nothing", 0, before=7, after=3)
    assert talk.messages[1:] == everything
    assert (talk.messages[0].data["before"], talk.messages[0].data["after"]) == (7, 3)
    talk.compact("all", 9)
    assert [m.text for m in talk.messages] == ["all"]
    await talk.prompt("hi")
    assert [m.role for m in talk.messages] == ["compact_summary", "user", "assistant"]


@pytest.mark.spec("runner-51")
async def test_files_add_up_over_compactions_and_given_ones_are_kept_as_they_are() -> None:
    talk, _ = await talked()
    talk.compact("first", 4)
    assert talk.compact("second", 5).files == FileOps(read=("a", "b"))
    assert [m.text for m in talk.messages] == ["second"]
    mine = FileOps(read=("z",), written=("y",))
    assert talk.compact("third", 1, file_ops=mine).files == mine
    assert FileOps.from_json(talk.messages[0].data["files"]) == mine


@pytest.mark.spec("runner-51")
async def test_a_session_that_runs_is_not_compacted() -> None:
    gate = asyncio.Event()

    class Held(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            await gate.wait()
            async for item in super().stream(request):
                yield item

    model = Held(["a"])
    talk = session(model)
    running = asyncio.ensure_future(talk.prompt("hi"))
    await asyncio.sleep(0)
    with pytest.raises(SessionBusy):
        talk.compact("s", 0)
    gate.set()
    await running
    assert [m.role for m in talk.messages] == ["user", "assistant"]


ROUNDS = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(ROUNDS, st.lists(st.integers(-1, 20), min_size=1, max_size=3))
def test_wherever_a_transcript_is_cut_it_is_refused_whole_or_the_model_can_read_what_is_left(rounds: list[int], cuts: list[int]) -> None:
    """A round is one prompt and an answer with so many calls."""

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        n = int(str(last["content"])) if last["role"] == "user" and str(last["content"]).isdigit() else 0
        return [call("read", path=f"f{i}") for i in range(n)] if n else "done"

    async def scene() -> None:
        model = FunctionModel(answer)
        talk = session(model)
        for n in rounds:
            await talk.prompt(str(n))
        for at in cuts:
            before = talk.messages
            try:
                talk.compact("summed up", at)
            except InvalidInput:
                assert talk.messages == before
                continue
            assert [m.text for m in talk.messages] == ["summed up", *(m.text for m in before[at:])]
            assert talk.messages[1:] == before[at:]
            assert (await talk.prompt("0")).text == "done"
        for request in model.requests:
            assert not [*check_openai(request.messages), *check_anthropic(request.messages), *check_gemini(request.messages)]
            assert not any("result for" in str(m["content"]) for m in request.messages)

    asyncio.run(scene())


# -- summaries that a model makes


def summing(request: ModelRequest) -> Any:
    """Summarise when told to, else repeat what is said in many words."""
    return "they counted" if "You shorten the log" in str(request.messages[0]["content"]) else "so many words " * 40


def shaped(model: Any, **options: Any) -> LocalSession:
    """A session whose requests must stay small."""
    policy = ShaperPolicy(
        budget_tokens=600, preserve_last_messages=2, preserve_last_tool_calls=1, lod_headroom_tokens=-1, lod_truncate_above_chars=0
    )
    talk = App().agent("a", model=model, tools=[read, write]).local(**options)
    talk._agent = replace(talk._agent, scope=_with(talk._agent.scope, builder=lambda: Shaper(policy)))
    return talk


@pytest.mark.spec("turn-31")
async def test_what_the_callback_is_told_of_a_compaction_is_what_the_result_and_the_events_say() -> None:
    told: list[Compaction] = []
    heard: list[Compaction] = []
    talk = shaped(FunctionModel(summing), on_compaction=told.append)
    talk.bus.subscribe(lambda event: heard.append(event.compaction) if isinstance(event, Compacted) else None)
    reported: list[Compaction] = []
    for n in range(8):
        reported += (await talk.prompt(str(n))).compactions
    assert reported
    assert told == reported == heard
    assert all(done.before > done.after > 0 and done.count > 0 and done.summary == "they counted" for done in told)
    assert [m.role for m in talk.messages].count("compact_summary") == 1


async def test_a_summary_is_made_now_and_messages_are_held_meanwhile() -> None:
    talk = session(FunctionModel(summing))
    for n in range(8):
        await talk.prompt(str(n))
    heard: list[str] = []
    talk.bus.subscribe(lambda event: heard.append(event.type))
    compacting = asyncio.ensure_future(talk.compact_now())
    await asyncio.sleep(0)
    with pytest.raises(SessionBusy):
        await talk.prompt("now")
    talk.steer("later")
    done = await compacting
    assert done is not None
    assert (done.summary, heard) == ("they counted", ["compacted"])
    assert talk.messages[0].text == "they counted"
    assert len(talk.messages) < 16
    assert talk.has_queued
    assert (await talk.prompt("next")).usage["summary_calls"] == 1
    assert [m.text for m in talk.messages if m.role == "user"][-2:] == ["next", "later"]


async def test_there_is_no_summary_of_what_is_short_and_one_that_fails_changes_nothing() -> None:
    def failing(request: ModelRequest) -> Any:
        return ModelError("no") if "You shorten the log" in str(request.messages[0]["content"]) else "words " * 50

    talk = session(FunctionModel(failing))
    await talk.prompt("hi")
    assert await talk.compact_now() is None
    for n in range(8):
        await talk.prompt(str(n))
    before = talk.messages
    with pytest.raises(ModelError, match="nothing was summarised: no"):
        await talk.compact_now()
    assert talk.messages == before
    assert (await talk.prompt("go on")).state == "succeeded"


# -- what waits


async def test_a_call_that_still_waits_for_its_result_is_not_cut_off() -> None:
    talk = session(ScriptedModel([call("read", path="a"), "x"]))
    facts = {"read": ToolFact("callback", awaited=True)}
    talk._agent = replace(talk._agent, table=replace(talk._agent.table, tools=facts))

    async def parking(*_: Any) -> Any:
        return Parked("later")

    talk._agent = replace(talk._agent, scope=_with(talk._agent.scope, run=parking))
    assert (await talk.prompt("read a")).state == "waiting"
    with pytest.raises(InvalidInput, match="still waits"):
        talk.compact("s", 2)
    talk.compact("s", 1)
    assert [m.role for m in talk.messages] == ["compact_summary", "assistant"]
    result = await talk.resolve(talk.parked[0], "here")
    assert result.text == "x"


def _with(scope: Any, **changes: Any) -> Any:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with scope() as means:
            yield replace(means, **changes)

    return opened
