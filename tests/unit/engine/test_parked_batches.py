"""Calls that park from within their bodies: alone and beside others, awaited or not, in any mix and order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.driving import Drive
from tests.unit.engine.logs import batch, row
from turnyard.engine.effects import NoEffect, Parked, RunBatch, RunTool, ToolFact, ToolResult, ToolTable
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import Answer, Commit, Row, TurnView
from turnyard.records.log import ASSISTANT, CALL, RESULT

TABLE = ToolTable(tools={"add": ToolFact(), "refund": ToolFact(kind="lift")}, parallel=2)
AWAITED = Parked("soon", awaited=True, poll_ms=5000, request={"poll_ms": 5000, "state": 1})
DETACHED = Parked("soon", poll_ms=5000)


def ran(shown: TurnView, call: str, result: ToolResult | Parked) -> Commit:
    of = next(r for r in shown.rows if r.call == call)
    return commit_after(shown, RunTool(of, "add", {}, "k"), result=result, facts=TABLE)


def par(call: str, state: Any = "started", **more: Any) -> Row:
    return row(call, "parallel", state, **more)


def waits(call: str) -> Row:
    return row(call, "lift", "parked", awaited=True)


def beside(shown: TurnView, *calls: str) -> TurnView:
    """The view, these calls of it having been declared to run beside others."""
    entries = tuple(replace(e, kind="parallel") if e.type == CALL and e.call in calls else e for e in shown.entries)
    return replace(shown, entries=entries)


def test_an_awaited_call_is_parked_without_a_placeholder_and_the_turn_with_it() -> None:
    commit = ran(batch(row("c1", state="started"), mine=("c1",)), "c1", AWAITED)
    (park,) = commit.park
    assert (commit.append, commit.ending, commit.claim) == ((), "park", False)
    assert (park.awaited, park.kind, park.after_ms, park.request) == (True, "lift", 5000, {"poll_ms": 5000, "state": 1})


def test_a_body_that_goes_on_is_parked_for_its_task_and_stays_what_it_is() -> None:
    commit = ran(batch(row("c1", state="started"), mine=("c1",)), "c1", Parked("", 60_000, task="t1"))
    (park,) = commit.park
    assert (park.task, park.kind, park.awaited, park.deadline_ms) == ("t1", None, False, 60_000)
    assert [(a.call, a.outcome) for a in commit.append if isinstance(a, Answer)] == [("c1", "placeholder")]


def test_nothing_starts_behind_an_awaited_call() -> None:
    commit = ran(batch(row("c1", state="started"), row("c2"), mine=("c1",)), "c1", AWAITED)
    assert (commit.start, commit.ending) == ((), "park")


def test_the_others_of_a_group_go_on_beside_one_that_is_awaited() -> None:
    shown = batch(par("c1"), par("c2"), par("c3", "open"), mine=("c1", "c2"))
    commit = ran(shown, "c1", AWAITED)
    assert (commit.append, commit.start, commit.ending) == ((), ("c3",), "none")
    effect = next_effect(beside(batch(waits("c1"), par("c2"), par("c3"), mine=("c2", "c3")), "c1"), TABLE)
    assert isinstance(effect, RunBatch)
    assert [c.row.call for c in effect.calls] == ["c2", "c3"]


def test_the_last_of_a_group_writes_what_is_there_and_the_turn_waits_for_the_rest() -> None:
    shown = beside(batch(waits("c1"), par("c2", outcome="result"), par("c3"), mine=("c3",)), "c1")
    commit = ran(shown, "c3", ToolResult("3"))
    assert [(a.call, a.outcome) for a in commit.append if isinstance(a, Answer)] == [("c2", "result"), ("c3", "result")]
    assert commit.ending == "park"
    shown = batch(par("c1", outcome="result"), par("c2"), mine=("c2",))
    commit = ran(shown, "c2", AWAITED)
    assert [(a.call, a.outcome) for a in commit.append if isinstance(a, Answer)] == [("c1", "result")]
    assert ([p.call for p in commit.park], commit.ending) == (["c2"], "park")


def test_what_follows_a_group_waits_for_its_awaited_calls() -> None:
    shown = beside(batch(waits("c1"), row("c2", "plain")), "c1")
    effect = next_effect(shown, TABLE)
    assert isinstance(effect, NoEffect)
    assert effect.commit == Commit(ending="park")


@pytest.mark.parametrize("width", [1, 3])
@given(data=st.data())
def test_each_call_is_run_once_and_answered_once_whatever_parks(width: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 5), label="calls")
    hows: list[str] = data.draw(st.lists(st.sampled_from(["result", "error", "awaited", "detached"]), min_size=n, max_size=n), label="how")
    calls = tuple(AskedCall(f"p{i}", "add", f'{{"n": {i}}}') for i in range(n))

    def runs(effect: RunTool) -> Any:
        how: str = hows[int(effect.args["n"])]
        return {"awaited": AWAITED, "detached": DETACHED}.get(how) or ToolResult(how, is_error=how == "error")

    table = ToolTable(tools={"add": ToolFact()}, parallel=width)
    first = Done("", calls, finish="tool_calls")
    drive = Drive(table, lambda view: Done("done") if any(e.type == ASSISTANT for e in view.entries) else first, runs)
    drive.say()
    drive.wait()
    for row_ in list(drive.memory.parked()):
        drive.memory.outcome(row_.call, "result", {"content": "late", "is_error": False})
    drive.go()
    assert set(drive.ran.values()) == {1}
    assert len(drive.ran) == n
    order = [r.call for r in drive.entries(CALL)]
    results = drive.entries(RESULT)
    answers = [r for r in results if not r.aside]
    assert sorted(r.call or "" for r in answers) == sorted(c or "" for c in order)
    for call, how in zip(order, hows, strict=True):
        mine = [(r.outcome, r.aside) for r in results if r.call == call]
        wanted = {"awaited": [("result", False)], "detached": [("placeholder", False), ("result", True)]}
        assert mine == wanted.get(how, [(how, False)])
    # No model is asked, nor said anything to, before every call is answered.
    kinds = [r.type for r in drive.entries(ASSISTANT, RESULT) if not r.aside]
    assert kinds[: n + 1] == [ASSISTANT, *[RESULT] * n]
    assert drive.memory.state == "idle"
