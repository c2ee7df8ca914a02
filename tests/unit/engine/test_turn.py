"""What a turn does next between two answers, and what becomes of an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import TABLE, TURN, asked, batch, folded, got, noticed, row, said, user, view
from turnyard import App, tool
from turnyard.engine.bounds import Bounds
from turnyard.engine.effects import AskModel, Failure, ModelAnswer, NoEffect, RunTool, ToolResult, ToolTable
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import AskedCall, Delta, Done, ModelRequest
from turnyard.records.commit import Answer, CallKind, Clear, Commit, NewCall, Note, Say, TurnView
from turnyard.records.ids import call_id
from turnyard.records.log import LogRecord
from turnyard.testing import ScriptedModel
from turnyard.testing import call as model_call


def due(shown: TurnView, table: ToolTable = TABLE) -> Commit:
    """The commit that is due without an effect."""
    effect = next_effect(shown, table)
    assert isinstance(effect, NoEffect)
    assert commit_after(shown, effect, result=None, facts=table) is effect.commit
    return effect.commit


def after(shown: TurnView, *calls: AskedCall, text: str = "", table: ToolTable = TABLE) -> Commit:
    """The commit after the model answered."""
    done = Done(text, calls, {"input_tokens": 20, "output_tokens": 4}, "stop", "m")
    return commit_after(shown, AskModel("k"), result=ModelAnswer(done), facts=table)


def call(name: str, arguments: str = "{}", ident: str = "c") -> AskedCall:
    return AskedCall(ident, name, arguments)


def new_calls(commit: Commit) -> tuple[NewCall, ...]:
    assert isinstance(commit.append[0], Say)
    return commit.append[0].calls


# -- between two answers


@pytest.mark.parametrize("news", [user(3), noticed(3), got(3, "c1", aside=True)])
def test_the_model_is_asked_when_something_is_new(news: LogRecord) -> None:
    assert next_effect(view(user(1), said(2, "x"), news), TABLE) == AskModel(f"{TURN}:4")


@pytest.mark.parametrize(
    "entries", [(), (user(1), said(2, "x")), (user(1), said(2, "x"), folded(3)), (user(1), said(2, "x"), replace(user(3), turn="turn_0"))]
)
def test_a_turn_with_nothing_new_ends_without_a_model_call(entries: tuple[LogRecord, ...]) -> None:
    assert due(view(*entries)) == Commit(ending="finish")


def test_the_results_of_a_batch_are_new() -> None:
    assert isinstance(next_effect(view(user(1), said(2), asked(3, "c1"), got(4, "c1")), TABLE), AskModel)


def test_a_result_that_closes_ends_the_turn() -> None:
    closing = got(4, "c1", body={"content": "bye", "is_error": False, "closes": True})
    assert due(view(user(1), said(2), asked(3, "c1"), closing)) == Commit(ending="finish")


def test_a_cancelled_turn_is_closed_whatever_it_was_doing() -> None:
    assert due(batch(row("c1", state="started"), mine=("c1",), cancel="user")) == Commit(ending="finish", closing=True)
    assert due(view(user(1), cancel="user", drain=True)) == Commit(ending="finish", closing=True)


@pytest.mark.parametrize("why", ["drain", "yield_"])
def test_a_turn_that_is_to_move_takes_back_the_marks_of_what_it_did_not_run(why: str) -> None:
    flag: Any = {why: True}
    assert due(batch(row("c1", state="started"), row("c2"), mine=("c1",), **flag)) == Commit(ending="yield", unstart=("c1",))
    assert due(view(user(1), **flag)) == Commit(ending="yield")


def test_a_finish_that_was_refused_because_calls_wait_becomes_a_park() -> None:
    assert due(replace(view(user(1), said(2, "x")), code="AWAITS")) == Commit(ending="park")


# -- limits


@pytest.mark.spec("turn-47")
def test_a_turn_is_stopped_at_its_model_calls_and_says_so() -> None:
    entries = [user(1)]
    for i in range(6):
        entries += [said(len(entries) + 1), asked(len(entries) + 2, f"c{i}"), got(len(entries) + 3, f"c{i}", str(i))]
    table = replace(TABLE, bounds=Bounds(model_calls=6))
    failed = due(view(*entries), table)
    assert failed.ending == "finish"
    assert failed.failure is not None
    assert (failed.failure["code"], failed.failure["retryable"]) == ("step_limit", False)
    assert "6 times" in failed.failure["message"]
    assert isinstance(next_effect(view(*entries), replace(TABLE, bounds=Bounds(model_calls=7))), AskModel)


def test_only_the_open_turn_counts_towards_its_limits() -> None:
    before = [replace(e, turn="turn_0") for e in (user(1), said(2, "a"), user(3), said(4, "b"))]
    assert isinstance(next_effect(view(*before, user(5)), replace(TABLE, bounds=Bounds(model_calls=1))), AskModel)


def test_a_turn_is_stopped_beyond_its_tool_calls_and_tokens() -> None:
    two = view(user(1), said(2), asked(3, "c1"), asked(4, "c2"), got(5, "c1"), got(6, "c2"))
    assert isinstance(next_effect(two, replace(TABLE, bounds=Bounds(tool_calls=2))), AskModel)
    assert (due(two, replace(TABLE, bounds=Bounds(tool_calls=1))).failure or {})["code"] == "step_limit"
    spent = view(
        user(1), replace(said(2), body={"text": "", "usage": {"input_tokens": 90, "output_tokens": 11}}), asked(3, "c1"), got(4, "c1")
    )
    assert isinstance(next_effect(spent, replace(TABLE, bounds=Bounds(tokens=102))), AskModel)
    assert (due(spent, replace(TABLE, bounds=Bounds(tokens=101))).failure or {})["code"] == "budget_exceeded"


# -- an answer in words


def test_an_answer_in_words_ends_the_turn_and_counts_its_tokens() -> None:
    commit = after(view(user(1)), text="hello")
    said_so = Say({"text": "hello", "usage": {"input_tokens": 20, "output_tokens": 4}, "model": "m", "finish": "stop"})
    assert commit == Commit(append=(said_so,), ending="finish", usage={"model_calls": 1, "input_tokens": 20, "output_tokens": 4})


def test_a_reply_wakes_the_lane_of_its_platform_and_of_no_other() -> None:
    assert after(view(user(1), head={"platform": "slack"}), text="x").lanes == ("slack",)
    assert after(view(user(1), head={"platform": "slack"}), call("add")).lanes == ()
    assert after(view(user(1), head={"platform": "http"}), text="x").lanes == ()


def test_a_model_that_could_not_be_asked_fails_the_turn_with_its_reason() -> None:
    failure = Failure("model_error", "gone")
    commit = commit_after(view(user(1)), AskModel("k"), result=failure, facts=TABLE)
    assert commit == Commit(ending="finish", failure={"code": "model_error", "message": "gone", "retryable": False, "ref": None})


def _number(text: str) -> int:
    return int(text)


def test_typed_output_is_stored_beside_the_text() -> None:
    commit = after(view(user(1)), text="7", table=replace(TABLE, read_output=_number))
    assert isinstance(commit.append[0], Say)
    assert (commit.append[0].body["text"], commit.append[0].body["output"]) == ("7", 7)


def test_a_reply_that_does_not_fit_the_output_is_sent_back_twice_and_then_fails() -> None:
    table = replace(TABLE, read_output=_number)
    entries: list[LogRecord] = [user(1)]
    for _ in range(2):
        commit = after(view(*entries), text="seven", table=table)
        assert (commit.ending, commit.claim) == ("none", True)
        note = commit.append[1]
        assert isinstance(note, Note)
        assert "does not fit" in note.body["text"]
        entries += [said(len(entries) + 1, "seven"), LogRecord(len(entries) + 2, note.type, turn=TURN, body=note.body)]
        assert isinstance(next_effect(view(*entries), table), AskModel)
    last = after(view(*entries), text="seven", table=table)
    assert last.ending == "finish"
    assert (last.failure or {})["code"] == "output_invalid"
    assert isinstance(last.append[0], Say)


def test_notices_that_somebody_left_under_the_names_of_a_correction_are_none() -> None:
    left = [replace(noticed(n, group="turn", key="output"), group_key="turn\noutput") for n in (2, 3, 4)]
    assert after(view(user(1), *left), text="seven", table=replace(TABLE, read_output=_number)).ending == "none"


# -- a result that says that news is over


CLEARED_SDA = '{"clear": true, "group_by": "disk", "key": "sda"}'


@pytest.mark.parametrize("state", ["plain", "parallel"])
def test_a_result_in_the_clear_shape_takes_the_notices_of_its_pair_out_and_is_kept_as_it_is(state: CallKind) -> None:
    open_call = batch(row("c1", state, "started"), mine=("c1",))
    effect = RunTool(open_call.rows[0], "add", {}, "k")
    commit = commit_after(open_call, effect, result=ToolResult(CLEARED_SDA), facts=TABLE)
    clear, answer = commit.append
    assert clear == Clear("disk\nsda", unshown=True)
    assert isinstance(answer, Answer)
    assert (answer.body or {})["content"] == CLEARED_SDA
    failed = commit_after(open_call, effect, result=ToolResult(CLEARED_SDA, is_error=True), facts=TABLE)
    assert [type(part) for part in failed.append] == [Answer]


# -- a terminal tool


@pytest.mark.spec("turn-13")
def test_a_turn_that_must_end_with_a_tool_goes_on_until_then_and_names_it_when_it_never_came() -> None:
    table = replace(TABLE, forced_terminal="add", bounds=Bounds(model_calls=1))
    commit = after(view(user(1)), text="I am done", table=table)
    assert (commit.ending, commit.claim) == ("none", True)
    assert isinstance(commit.append[1], Note)
    stuck = view(user(1), said(2, "I am done"), noticed(3))
    assert "never called add" in (due(stuck, table).failure or {})["message"]
    called = view(user(1), said(2), asked(3, "c1", "add"), got(4, "c1"))
    assert "never called" not in (due(called, table).failure or {})["message"]
    assert after(called, text="done", table=table).ending == "finish"


# -- an answer with calls


def test_calls_get_ids_of_ours_and_the_first_plain_one_is_marked() -> None:
    shown = view(user(1), rev=7)
    commit = after(shown, call("add", '{"a":1}', "x"), call("add", '{"a":2}', "y"), text="let me see")
    first, second = new_calls(commit)
    assert first == NewCall(call_id("s.0", TURN, 8, 0), "plain", {"name": "add", "args": {"a": 1}, "provider_id": "x"})
    assert second.id == call_id("s.0", TURN, 8, 1)
    assert (commit.start, commit.ending, commit.claim) == ((first.id,), "none", False)


@pytest.mark.parametrize(("name", "kind", "awaited"), [("render", "lift", False), ("wait", "lift", True), ("refund", "approval", True)])
def test_a_call_that_waits_outside_is_declared_and_not_marked(name: str, kind: str, awaited: bool) -> None:
    commit = after(view(user(1)), call(name))
    (made,) = new_calls(commit)
    assert (made.kind, made.awaited, commit.start) == (kind, awaited, ())
    assert made.queue == ("gpu" if name == "render" else None)


def test_a_callback_is_marked_because_its_body_runs_here() -> None:
    commit = after(view(user(1)), call("order"))
    assert commit.start == (new_calls(commit)[0].id,)


def test_plain_calls_of_one_answer_run_together_only_where_the_agent_says_so() -> None:
    several = (call("add"), call("add"), call("add"), call("render"))
    assert [c.kind for c in new_calls(after(view(user(1)), *several))] == ["plain", "plain", "plain", "lift"]
    commit = after(view(user(1)), *several, table=replace(TABLE, parallel=2))
    made = new_calls(commit)
    assert [c.kind for c in made] == ["parallel", "parallel", "parallel", "lift"]
    assert commit.start == (made[0].id, made[1].id)
    assert new_calls(after(view(user(1)), call("add"), call("render"), table=replace(TABLE, parallel=2)))[0].kind == "plain"


@pytest.mark.parametrize("ids", [("", ""), ("a", "a"), ("a", "", "a")])
def test_blank_and_repeated_ids_of_a_provider_become_fresh_ones(ids: tuple[str, ...]) -> None:
    made = new_calls(after(view(user(1)), *(call("add", ident=i) for i in ids)))
    provider_ids = [c.body["provider_id"] for c in made]
    assert "" not in provider_ids
    assert len(set(provider_ids)) == len(ids)
    assert len({c.id for c in made}) == len(ids)


def test_refused_arguments_are_stored_as_an_object_and_the_call_is_not_marked() -> None:
    commit = after(view(user(1)), call("render", '{"scene": "a'))
    (made,) = new_calls(commit)
    assert made.kind == "plain"
    assert "cut off" in made.body["refused"]
    assert made.body["args"]["length"] == 12
    assert commit.start == ()


def test_a_tool_that_nobody_has_is_declared_under_a_name_that_every_api_takes() -> None:
    commit = after(view(user(1)), call("rm -rf /" * 20))
    (made,) = new_calls(commit)
    assert made.body["name"] == ("rm_-rf__" * 20)[:64]
    assert commit.start == ()


@given(raw=st.text(max_size=30), name=st.text(max_size=20), ident=st.text(max_size=5))
def test_whatever_a_model_calls_can_be_stored(raw: str, name: str, ident: str) -> None:
    made = new_calls(after(view(user(1)), AskedCall(ident, name, raw)))
    stored: dict[str, Any] = orjson.loads(orjson.dumps(made[0].body))
    assert isinstance(stored["args"], dict)
    assert stored["name"]


def test_a_result_for_what_was_not_asked_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="AskModel cannot end with ToolResult"):
        commit_after(view(user(1)), AskModel("k"), result=ToolResult("x"), facts=TABLE)
    started = RunTool(row("c1"), "add", {}, "k")
    with pytest.raises(TypeError, match="RunTool cannot end with NoneType"):
        commit_after(batch(row("c1")), started, result=None, facts=TABLE)


async def test_calls_of_an_answer_that_was_cut_at_its_length_are_not_run_and_the_model_is_told_to_make_them_again() -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError(amount)

    class Short(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
            async for item in super().stream(request):
                yield replace(item, finish="length") if isinstance(item, Done) and item.calls else item

    model = Short([[model_call("pay", amount=1), model_call("pay", amount=10)], "I try again"])
    result = await App().agent("a", model=model, tools=[pay]).run("go")
    assert [c.is_error for c in result.calls] == [True, True]
    assert all("make it again" in str(c.content) for c in result.calls)
    assert (result.text, result.usage.get("tool_calls", 0)) == ("I try again", 0)
