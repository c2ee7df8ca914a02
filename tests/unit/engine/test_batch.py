"""What is done about the calls of an answer, in which order, and after which crash."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.engine.logs import TABLE, TURN, asked, batch, row, said, user, view
from turnyard.engine.effects import NoEffect, Parked, RunBatch, RunTool, ToolResult, ToolTable
from turnyard.engine.texts import text_of
from turnyard.engine.turn import commit_after, next_effect
from turnyard.records.commit import PLACEHOLDER, Answer, Commit, Park, Row, TurnView
from turnyard.records.ids import idempotency_key
from turnyard.records.log import RESULT, LogRecord

THREE = ToolResult("3")


def due(shown: TurnView, table: ToolTable = TABLE) -> Commit:
    effect = next_effect(shown, table)
    assert isinstance(effect, NoEffect), effect
    return effect.commit


def runs(shown: TurnView, table: ToolTable = TABLE) -> RunTool:
    effect = next_effect(shown, table)
    assert isinstance(effect, RunTool), effect
    return effect


def ran(shown: TurnView, call: str, result: ToolResult | Parked = THREE, table: ToolTable = TABLE) -> Commit:
    of = next(r for r in shown.rows if r.call == call)
    return commit_after(shown, RunTool(of, "add", {}, "k"), result=result, facts=table)


def answers(commit: Commit) -> list[tuple[str, str]]:
    return [(a.call, a.outcome) for a in commit.append if isinstance(a, Answer)]


# -- one after the other


def test_a_marked_call_runs_with_its_arguments_and_its_key() -> None:
    shown = view(user(1), said(2), asked(3, "c1", args={"a": 2}), rows=(row("c1", state="started"),), mine=("c1",))
    shown = replace(shown, head={"tenant": "acme", "session": "s1"})
    assert runs(shown) == RunTool(row("c1", state="started"), "add", {"a": 2}, idempotency_key("acme", "s1", TURN, "c1"))


def test_an_unmarked_call_is_marked_first() -> None:
    assert due(batch(row("c1"), row("c2"))) == Commit(start=("c1",))


def test_a_result_marks_the_next_call_and_the_last_one_claims() -> None:
    two = batch(row("c1", state="started"), row("c2"), mine=("c1",))
    result = Answer("c1", "result", {"content": "3", "is_error": False})
    assert ran(two, "c1") == Commit(append=(result,), start=("c2",), usage={"tool_calls": 1})
    one = batch(row("c1", state="started"), mine=("c1",))
    assert ran(one, "c1") == Commit(append=(result,), claim=True, usage={"tool_calls": 1})


def test_an_error_is_the_outcome_error_and_a_closing_result_says_so() -> None:
    shown = batch(row("c1", state="started"), mine=("c1",))
    assert answers(ran(shown, "c1", ToolResult("no", is_error=True))) == [("c1", "error")]
    closing = ran(shown, "c1", ToolResult("bye", closes=True)).append[0]
    assert isinstance(closing, Answer)
    assert (closing.body or {})["closes"] is True


def test_a_call_of_an_unknown_tool_or_with_refused_arguments_is_answered_unrun() -> None:
    shown = batch(row("c1"), row("c2"), names={"c1": "nobody"})
    commit = due(shown)
    assert answers(commit) == [("c1", "error")]
    answer = commit.append[0]
    assert isinstance(answer, Answer)
    assert (answer.body or {})["content"].startswith("ERROR: there is no tool 'nobody'")
    assert commit.start == ("c2",)
    refused = view(user(1), said(2), asked(3, "c1", refused="cut off"), rows=(row("c1"),))
    assert due(refused) == Commit(append=(Answer("c1", "error", {"content": "ERROR: cut off", "is_error": True}),), claim=True)


def test_what_must_not_run_is_not_marked_either() -> None:
    shown = batch(row("c1", state="started"), row("c2"), names={"c2": "nobody"}, mine=("c1",))
    assert ran(shown, "c1").start == ()


# -- after a crash


def test_an_interrupted_call_is_unknown_and_not_run() -> None:
    assert due(batch(row("c1", state="started"), row("c2"))) == Commit(append=(Answer("c1", "unknown"),), start=("c2",))


def test_an_interrupted_call_that_is_idempotent_runs_again_with_the_same_key() -> None:
    interrupted = row("c1", state="started", idempotent=True)
    assert runs(batch(interrupted)).key == runs(batch(interrupted, mine=("c1",))).key


def test_an_interrupted_callback_is_parked_because_its_token_may_be_out() -> None:
    commit = due(batch(row("c1", "callback", "started"), names={"c1": "order"}))
    assert commit.park == (Park("c1", 1000),)
    assert answers(commit) == [("c1", PLACEHOLDER)]


# -- what waits outside


def test_a_detached_lift_is_parked_answered_by_its_placeholder_and_relayed() -> None:
    commit = due(batch(row("c1", "lift"), row("c2"), names={"c1": "render"}))
    assert commit.park == (Park("c1", 60_000),)
    assert answers(commit) == [("c1", PLACEHOLDER)]
    assert (commit.start, commit.lanes, commit.ending) == (("c2",), ("arq",), "none")


def test_the_placeholder_names_the_call_and_its_tool() -> None:
    answer = due(batch(row("c1", "lift"), names={"c1": "render"})).append[0]
    assert isinstance(answer, Answer)
    assert "call c1 of render" in text_of(LogRecord(1, RESULT, call="c1", outcome=answer.outcome, body=answer.body or {}), "render")


def test_a_detached_call_alone_lets_the_model_go_on() -> None:
    assert due(batch(row("c1", "lift"), names={"c1": "render"})).claim is True


def test_an_awaited_call_parks_the_turn() -> None:
    commit = due(batch(row("c1", "lift", awaited=True), names={"c1": "wait"}))
    assert (commit.park, commit.append, commit.ending) == ((Park("c1", 60_000),), (), "park")


def test_neighbours_that_only_wait_are_parked_in_one_commit() -> None:
    rows = (row("c1", "approval", awaited=True), row("c2", "lift"), row("c3", "approval", awaited=True))
    commit = due(batch(*rows, names={"c1": "refund", "c2": "render", "c3": "refund"}))
    assert [p.call for p in commit.park] == ["c1", "c2", "c3"]
    assert answers(commit) == [("c2", PLACEHOLDER)]
    assert commit.ending == "park"


def test_nothing_runs_behind_a_call_that_is_waited_for() -> None:
    names = {"c1": "refund"}
    commit = due(batch(row("c1", "approval", awaited=True), row("c2"), names=names))
    assert ([p.call for p in commit.park], commit.start, commit.ending) == (["c1"], (), "park")
    assert due(batch(row("c1", "approval", "parked", awaited=True), row("c2"), names=names)) == Commit(ending="park")
    settled = row("c1", "approval", "parked", awaited=True, outcome="denied")
    assert due(batch(settled, row("c2"), names=names)) == Commit(ending="park")


def test_an_allowed_call_is_marked_and_runs() -> None:
    names = {"c1": "refund"}
    assert due(batch(row("c1", "approval", "allowed", decision="allow"), names=names)) == Commit(start=("c1",))
    assert runs(batch(row("c1", "approval", "started", decision="allow"), names=names, mine=("c1",))).row.call == "c1"


def test_an_allowed_call_waits_for_what_is_waited_for_before_it() -> None:
    names = {"c1": "wait", "c2": "refund"}
    waiting = batch(row("c1", "lift", "parked", awaited=True), row("c2", "approval", "allowed", decision="allow"), names=names)
    assert due(waiting) == Commit(ending="park")


def test_a_demoted_call_that_nobody_launched_is_launched_as_detached() -> None:
    commit = due(batch(row("c1", "lift", awaited=True, demoted=True), names={"c1": "wait"}))
    assert (len(commit.park), answers(commit), commit.claim) == (1, [("c1", PLACEHOLDER)], True)


def test_a_detached_call_that_was_answered_first_gets_its_placeholder_and_no_park() -> None:
    commit = due(batch(row("c1", "callback", outcome="result"), names={"c1": "order"}))
    assert (commit.park, answers(commit)) == ((), [("c1", PLACEHOLDER)])


# -- what parks after it ran


def test_a_callback_runs_and_is_parked_when_its_body_says_so() -> None:
    table = replace(TABLE, secret_hash=lambda call: f"hash of {call}")
    shown = batch(row("c1", "callback", "started"), row("c2"), names={"c1": "order"}, mine=("c1",))
    assert runs(shown).name == "order"
    commit = ran(shown, "c1", Parked("ordered", 5000), table)
    assert commit.park == (Park("c1", 5000, "hash of c1"),)
    assert (answers(commit), commit.start, commit.usage) == ([("c1", PLACEHOLDER)], ("c2",), {"tool_calls": 1})
    answer = commit.append[0]
    assert isinstance(answer, Answer)
    read = text_of(LogRecord(1, RESULT, call="c1", outcome=answer.outcome, body=answer.body or {}), "order")
    assert read.startswith("ordered\n")
    assert "given up after 5 s" in read
    assert answers(ran(shown, "c1", ToolResult("at once"), table)) == [("c1", "result")]


def test_a_result_that_promises_another_parks_its_call_under_that_id() -> None:
    shown = batch(row("c1", state="started"), mine=("c1",))
    commit = ran(shown, "c1", ToolResult('{"pending": true, "correlation_id": "job-9", "ttl_s": 60}'))
    assert commit.park == (Park("c1", 60_000),)
    answer = commit.append[0]
    assert isinstance(answer, Answer)
    assert (answer.outcome, (answer.body or {})["correlation"]) == (PLACEHOLDER, "job-9")
    read = text_of(LogRecord(1, RESULT, call="c1", outcome=answer.outcome, body=answer.body or {}))
    assert "c1" in read
    assert "job-9" in read


# -- a parallel batch

WIDE = replace(TABLE, parallel=2)


def par(call: str, state: str = "open", **fields: object) -> Row:
    return row(call, "parallel", state, **fields)


def test_as_many_calls_are_marked_as_may_run_at_once() -> None:
    assert due(batch(par("c1"), par("c2"), par("c3")), WIDE) == Commit(start=("c1", "c2"))


def test_marked_calls_run_together() -> None:
    effect = next_effect(batch(par("c1", "started"), par("c2", "started"), par("c3"), mine=("c1", "c2")), WIDE)
    assert isinstance(effect, RunBatch)
    assert [c.row.call for c in effect.calls] == ["c1", "c2"]


def test_a_result_goes_into_its_row_and_makes_room_for_the_next_call() -> None:
    shown = batch(par("c1", "started"), par("c2", "started"), par("c3"), mine=("c1", "c2"))
    commit = ran(shown, "c2", table=WIDE)
    assert [(s.call, s.outcome) for s in commit.settle] == [("c2", "result")]
    assert (commit.append, commit.start, commit.claim) == ((), ("c3",), False)


@pytest.mark.spec("runner-33")
def test_the_last_result_writes_all_of_them_in_source_order() -> None:
    rows = (par("c1", "started"), par("c2", "started", outcome="error"), par("c3", "started", outcome="result"))
    commit = ran(batch(*rows, mine=("c1",)), "c1", table=WIDE)
    assert answers(commit) == [("c1", "result"), ("c2", "error"), ("c3", "result")]
    assert [a.body is None for a in commit.append if isinstance(a, Answer)] == [False, True, True]
    assert commit.claim is True


def test_a_call_of_a_batch_whose_result_comes_later_is_parked_and_the_others_go_on() -> None:
    pending = ToolResult('{"pending": true, "correlation_id": "j-1"}')
    commit = ran(batch(par("c1", "started"), par("c2", "started"), par("c3"), mine=("c1", "c2")), "c2", pending, table=WIDE)
    assert (answers(commit), [p.call for p in commit.park]) == ([("c2", "placeholder")], ["c2"])
    assert (commit.settle, commit.start, commit.claim, commit.ending) == ((), ("c3",), False, "none")
    rows = (par("c1", "started", outcome="result"), par("c3", "started"))
    last = ran(batch(*rows, mine=("c3",)), "c3", pending, table=WIDE)
    assert (answers(last), [p.call for p in last.park], last.claim) == ([("c1", "result"), ("c3", "placeholder")], ["c3"], True)


def test_an_error_promises_nothing_whatever_its_text_is() -> None:
    failed = ToolResult('{"pending": true, "correlation_id": "j-1"}', is_error=True)
    commit = ran(batch(row("c1", state="started"), mine=("c1",)), "c1", failed)
    assert (answers(commit), commit.park) == ([("c1", "error")], ())


@pytest.mark.spec("runner-33")
def test_an_interrupted_call_of_a_batch_is_unknown_and_the_others_keep_their_outcome() -> None:
    rows = (par("c1", "started", outcome="result"), par("c2", "started"), par("c3", "started", idempotent=True))
    assert due(batch(*rows), WIDE).settle == (Answer("c2", "unknown"),)
    rows = (par("c1", "started", outcome="result"), par("c3", "started", idempotent=True))
    effect = next_effect(batch(*rows), WIDE)
    assert isinstance(effect, RunBatch)
    assert [c.row.call for c in effect.calls] == ["c3"]


def test_a_batch_that_is_half_done_is_not_given_away() -> None:
    started = batch(par("c1", "started", outcome="result"), par("c2", "started"), mine=("c2",), drain=True)
    assert isinstance(next_effect(started, WIDE), RunBatch)
    fresh = batch(par("c1", "started"), par("c2", "started"), mine=("c1", "c2"), drain=True)
    assert due(fresh, WIDE) == Commit(ending="yield", unstart=("c1", "c2"))


def test_a_batch_waits_for_an_awaited_call_before_it() -> None:
    shown = batch(row("c1", "approval", "parked", awaited=True), par("c2"), par("c3"), names={"c1": "refund"})
    assert due(shown, WIDE) == Commit(ending="park")


def test_what_follows_a_batch_comes_after_it() -> None:
    shown = batch(par("c1", "started"), par("c2", "started", outcome="result"), row("c3", "lift"), names={"c3": "render"}, mine=("c1",))
    commit = ran(shown, "c1", table=WIDE)
    assert (answers(commit), commit.claim, commit.ending) == ([("c1", "result"), ("c2", "result")], False, "none")


@pytest.mark.parametrize("first", ["c1", "c2"])
def test_an_unknown_tool_in_a_batch_is_settled_unrun(first: str) -> None:
    shown = batch(par("c1"), par("c2"), names={first: "nobody"})
    assert [(s.call, s.outcome) for s in due(shown, WIDE).settle] == [(first, "error")]
