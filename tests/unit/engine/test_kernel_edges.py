"""Where the kernel's rules meet: limits of two kinds at once, series of retries that a turn outlives, ends that are not replies."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import orjson
import pytest

from tests.unit.engine.driving import Drive, answers_in_turn
from tests.unit.engine.logs import asked, got, said, user, view
from tests.unit.engine.test_strategy import HELLO, Made, driven, in_order, job_of
from turnyard.engine.bounds import Bounds
from turnyard.engine.budget import Notice, Stop
from turnyard.engine.decide import MAX_STATE_BYTES
from turnyard.engine.effects import AskHooks, AskModel, Failure, ModelAnswer, NoEffect, ToolTable
from turnyard.engine.progress import Progress
from turnyard.engine.strategy import Ask, Call, Continue, Fail, Finish, Question, Sleep
from turnyard.engine.turn import commit_after, next_effect
from turnyard.errors import AgentVersionGone
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import Commit, Note, encode_state
from turnyard.records.log import CALL, RESULT

TABLE = ToolTable()


def ends(change: Commit) -> list[tuple[str, bool, Any]]:
    return [(p.type, p.body["success"], p.body["final_error"]) for p in change.append if isinstance(p, Note) and p.type.endswith("/end")]


def finished(effect: Any) -> Commit:
    assert isinstance(effect, NoEffect)
    assert effect.commit.ending == "finish"
    return effect.commit


# -- limits


@pytest.mark.spec("turn-47")
def test_a_stop_of_the_strategy_counts_though_the_agents_limits_have_a_notice_to_give() -> None:
    strategy = Made(says=lambda _spent: Stop("limit_exceeded", "enough"))
    table = ToolTable(bounds=Bounds(model_calls=2, soft_ratio=0.5), strategy=strategy)
    shown = view(user(1), said(2, ""), asked(3, "c"), got(4, "c", "1"))
    assert (finished(next_effect(shown, table)).failure or {})["message"] == "enough"


@pytest.mark.spec("turn-48")
def test_notices_of_the_agent_and_of_its_strategy_are_both_told() -> None:
    table = ToolTable(bounds=Bounds(model_calls=2, soft_ratio=0.5), strategy=Made(says=lambda _spent: Notice("be brief")))
    shown = view(user(1), said(2, ""), asked(3, "c"), got(4, "c", "1"))
    effect = next_effect(shown, table)
    assert isinstance(effect, AskModel)
    assert "1 of 2 model calls" in effect.note
    assert "be brief" in effect.note


@pytest.mark.spec("runner-19")
def test_a_message_that_steers_the_last_step_of_a_segment_is_answered_and_not_cut_off() -> None:
    table = ToolTable(bounds=Bounds(segment_steps=1))
    shown = view(user(1), said(2, ""), asked(3, "c"), got(4, "c", "1"), user(5, "wait"))
    assert isinstance(next_effect(shown, table), AskModel)
    assert (finished(next_effect(view(*shown.entries[:4]), table)).failure or {})["code"] == "step_limit"


# -- series of retries that their turn outlives


@pytest.mark.spec("runner-22")
def test_a_turn_that_ends_while_a_series_of_retries_is_open_ends_the_series() -> None:
    shown = replace(view(user(1)), state=Progress(retries=1, fold_retries=2).into({}), active_ms=10)
    over = finished(next_effect(shown, ToolTable(bounds=Bounds(active_ms=5))))
    assert [name for name, *_ in ends(over)] == ["summarization/retry/end", "retry/end"]
    assert not any(ok for _, ok, _ in ends(over))
    for decision in (Finish("x"), Fail("why", "not")):
        decided = finished(next_effect(shown, ToolTable(strategy=in_order(decision))))
        assert [name for name, *_ in ends(decided)] == ["summarization/retry/end", "retry/end"]


@pytest.mark.spec("runner-22")
def test_a_summary_that_is_not_needed_any_more_ends_its_series_with_the_answer() -> None:
    shown = replace(view(user(1)), state=Progress(fold_retries=1).into({}))
    change = commit_after(shown, AskModel("k"), result=ModelAnswer(Done("", finish="repetition")), facts=TABLE)
    assert [name for name, *_ in ends(change)] == ["summarization/retry/end"]
    assert Progress.read(change.state or {}).fold_retries == 0
    failed = commit_after(shown, AskModel("k"), result=Failure("bad_request", "no"), facts=TABLE)
    assert [name for name, *_ in ends(failed)] == ["summarization/retry/end"]


def test_a_series_is_ended_once_though_turn_and_series_end_together() -> None:
    shown = replace(view(user(1)), state=Progress(retries=2, fold_retries=1).into({}))
    last = commit_after(shown, AskModel("k"), result=Failure("x", "no"), facts=TABLE)
    assert sorted(name for name, *_ in ends(last)) == ["retry/end", "summarization/retry/end"]
    good = commit_after(shown, AskModel("k"), result=ModelAnswer(HELLO), facts=TABLE)
    assert sorted((name, ok) for name, ok, _ in ends(good)) == [("retry/end", True), ("summarization/retry/end", False)]
    cancelled = finished(next_effect(replace(shown, cancel="user"), TABLE))
    assert len(ends(cancelled)) == 2


# -- an end that is no reply


@pytest.mark.spec("runner-19")
def test_hooks_are_asked_though_a_strategy_ends_the_turn_with_a_value_of_its_own() -> None:
    strategy = Made(lambda _view, state, answer: ("end", Continue()) if answer else (state, Finish({"n": 1}) if state else Ask()))
    drive = Drive(ToolTable(hooks=True, strategy=strategy, bounds=Bounds(continuations=1)), answers_in_turn([HELLO]))
    drive.say()
    assert [e.reason for e in drive.effects if isinstance(e, AskHooks)] == ["no_calls"]
    assert (job_of(drive).state, job_of(drive).output) == ("succeeded", {"n": 1})


@pytest.mark.parametrize("output", [{1, 2}, object(), {"deep": {1}}, "\ud800"])
def test_an_output_that_is_no_json_is_an_error_of_the_strategy(output: Any) -> None:
    drive = driven(Made(lambda _view, state, _answer: (state, Finish(output))))
    drive.wait()
    assert (job_of(drive).error or {})["code"] == "retry_exhausted"
    assert "output" in (job_of(drive).error or {})["message"]


def test_an_output_of_a_strategy_fits_what_the_agent_must_give() -> None:
    def read(text: str) -> Any:
        value = orjson.loads(text)
        if value != 7:
            raise ValueError("it is not seven")
        return value

    good = driven_by(ToolTable(strategy=Made(lambda _v, s, _a: (s, Finish(7))), read_output=read))
    assert job_of(good).output == 7
    bad = driven_by(ToolTable(strategy=Made(lambda _v, s, _a: (s, Finish("six"))), read_output=read))
    bad.wait()
    assert "not seven" in (job_of(bad).error or {})["message"]


def driven_by(table: ToolTable) -> Drive:
    drive = Drive(table, answers_in_turn([HELLO]))
    drive.say()
    return drive


@pytest.mark.parametrize("typed", [True, False])
def test_a_turn_that_ends_after_its_last_answer_gives_what_the_model_said(*, typed: bool) -> None:
    def decide(shown: Any, state: Any, answer: Any) -> Any:
        if answer is not None:
            return "asked", Continue()
        if state == "asked" and not typed:
            return "called", Call((Question("k"),))
        return state, Finish() if state else Ask()

    drive = Drive(ToolTable(strategy=Made(decide), read_output=orjson.loads if typed else None), answers_in_turn([Done('{"n": 1}')]))
    drive.say()
    drive.wait()
    assert job_of(drive).output == ({"n": 1} if typed else '{"n": 1}')


def test_a_turn_that_ends_after_an_answer_which_does_not_fit_fails_and_says_so() -> None:
    strategy = Made(lambda _view, state, answer: ("asked", Continue()) if answer else (state, Finish() if state else Ask()))
    drive = Drive(ToolTable(strategy=strategy, read_output=orjson.loads), answers_in_turn([Done("no json")]))
    drive.say()
    drive.wait()
    assert "does not fit" in (job_of(drive).error or {})["message"]


# -- what a strategy may get wrong


def test_a_strategy_that_goes_on_for_ever_without_an_effect_is_stopped() -> None:
    drive = driven(Made(lambda _view, state, _answer: (state + 1, Continue(("on",))), first=0))
    drive.wait()
    assert "without an effect" in (job_of(drive).error or {})["message"]
    steps = in_order(*[Continue()] * 90, Ask(), *[Continue()] * 90, Sleep(1), *[Continue()] * 90, Finish("end"))
    good = driven(steps)
    good.wait()
    assert job_of(good).output == "end"


def test_the_key_of_a_question_is_its_own_whatever_its_body_says() -> None:
    drive = driven(Made(lambda _view, state, _answer: (state, Call((Question("a", {"key": "b"}),)))))
    [row] = drive.memory.parked()
    assert row.args["key"] == "a"


def test_two_questions_of_one_key_are_two_questions() -> None:
    def decide(shown: Any, state: Any, _answer: Any) -> Any:
        done = any(e.type == RESULT for e in shown.entries)
        return state, Finish("end") if done else Call((Question("k"), Question("k")))

    drive = driven(Made(decide))
    assert len(drive.memory.parked()) == 2
    drive.wait()
    assert job_of(drive).output == "end"


@pytest.mark.parametrize("delay_ms", [0, -5])
def test_a_sleep_of_no_length_is_over_at_once(delay_ms: int) -> None:
    drive = driven(in_order(Sleep(delay_ms), Finish("awake")))
    drive.wait()
    assert job_of(drive).output == "awake"


def test_calls_of_unknown_tools_and_too_many_calls_are_answered_and_the_turn_goes_on() -> None:
    def decide(shown: Any, state: Any, _answer: Any) -> Any:
        done = any(e.type == RESULT for e in shown.entries)
        return state, Finish("end") if done else Call(tuple(AskedCall("", "nobody", "{}") for _ in range(70)))

    drive = driven(Made(decide))
    drive.wait()
    assert job_of(drive).output == "end"
    assert len(drive.entries(CALL)) == len(drive.entries(RESULT)) == 70


# -- the state over versions, and its size


def test_a_state_of_another_version_is_refused_unless_the_strategy_reads_it() -> None:
    class Newer(Made):
        version: ClassVar[int] = 2

    plain = super(Made, Newer()).decode
    assert plain(2, {"a": 1}) == {"a": 1}
    for other in (1, 3):
        with pytest.raises(AgentVersionGone):
            plain(other, {"a": 1})


def test_the_largest_state_a_strategy_may_have_fits_beside_the_kernels_counters() -> None:
    largest = "x" * (MAX_STATE_BYTES - 2)
    drive = driven(Made(lambda _view, _state, _answer: (largest, Sleep(1))))
    held = orjson.loads(drive.memory.turn_state)
    assert held["s"] == largest
    full = Progress(*([2**53] * (len(fields(Progress)) - 1)), too_long="\0" * 200)
    assert encode_state(full.into(held))
