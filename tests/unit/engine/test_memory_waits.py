"""What a turn in memory waits for and remembers is as it is on a server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.test_memory import begun, call, clock_of, fresh, parked, say, text
from turnyard.engine import transitions
from turnyard.engine.memory import MemorySession
from turnyard.errors import Diverged, StateTooLarge
from turnyard.records.commit import MOST_CALLS, MOST_STATE_BYTES, PLACEHOLDER, Answer, Commit, Note, Park, TurnView, Wait
from turnyard.records.log import CALL, NOTICE, RESULT, USER

KINDS = ("retry", "timer")


def waiting(kind: Any = "timer", ms: int = 5000) -> tuple[MemorySession, TurnView]:
    """A session whose turn waits for a while."""
    s = fresh()
    view = begun(s, "hi")
    return s, transitions.commit(s, view, Commit(wait=(Wait("w1", kind, ms),), ending="park"))


# -- delays


@pytest.mark.spec("turn-55")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_delay_wakes_its_turn_after_its_time_and_never_before_and_leaves_nothing_behind(kind: str) -> None:
    s, view = waiting(kind)
    assert (view.ended, s.state, s.next_due_ms) == (True, "parked", s.clock.now_ms() + 5000)
    assert list(s.parked()) == [], "a delay is no call that somebody could answer"
    await clock_of(s).advance(4.999)
    assert (s.expire(), s.state, transitions.begin(s)) == ([], "parked", None)
    await clock_of(s).advance(0.001)
    assert (s.expire(), s.state, s.next_due_ms) == ([], "ready", None)
    again = begun(s)
    assert (again.turn, [e.type for e in again.entries], again.rows) == (view.turn, [USER], ())
    assert s.rows == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_meanwhile_waits_with_the_turn_and_is_seen_when_the_delay_is_over(kind: str) -> None:
    s, _ = waiting(kind)
    s.accept(text("more"))
    assert (s.state, transitions.begin(s)) == ("parked", None)
    await clock_of(s).advance(5)
    s.expire()
    assert [e.body["text"] for e in begun(s).entries] == ["hi", "more"]


def test_a_message_that_was_there_before_the_delay_does_not_end_it() -> None:
    s = fresh()
    view = begun(s, "hi")
    s.accept(text("more"))
    assert transitions.commit(s, view, Commit(wait=(Wait("w1", "retry", 5000),), ending="park")).ended
    assert s.state == "parked"


def test_a_cancel_ends_a_delay_at_once_and_tells_no_model_of_it() -> None:
    s, _ = waiting(ms=10**9)
    assert s.request_cancel()
    assert (s.state, s.next_due_ms, s.rows, s.inbox) == ("ready", None, {}, [])
    view = begun(s)
    assert view.cancel == "user"
    assert transitions.commit(s, view, Commit(ending="finish", closing=True)).ended
    assert [r.type for r in s.log] == [USER]


def test_a_delay_asked_for_under_a_cancel_is_not_waited_for() -> None:
    s = fresh()
    view = begun(s, "hi")
    s.request_cancel()
    view = transitions.commit(s, view, Commit(wait=(Wait("w1", "retry", 5000),), ending="park"))
    assert (view.ended, view.cancel, s.rows) == (False, "user", {})


def test_nobody_outside_can_answer_a_delay() -> None:
    s, _ = waiting()
    assert s.outcome("w1", "result", text("now")) == "gone"
    assert s.state == "parked"


async def test_a_delay_of_the_same_name_may_come_again_when_the_first_is_over() -> None:
    s, _ = waiting()
    await clock_of(s).advance(5)
    s.expire()
    assert transitions.commit(s, begun(s), Commit(wait=(Wait("w1", "retry", 700),), ending="park")).ended
    assert s.next_due_ms == s.clock.now_ms() + 700


async def test_a_delay_beside_an_awaited_call_wakes_the_turn_when_both_are_over() -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1", "callback", awaited=True)),)))
    transitions.commit(s, view, Commit(park=(Park("c1", 10**6),), wait=(Wait("w1", "timer", 5000),), ending="park"))
    s.outcome("c1", "result", text("7"))
    assert s.state == "parked"
    await clock_of(s).advance(5)
    s.expire()
    assert begun(s).entries[-1].outcome == "result"


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_ripe_call_has_its_result_when_its_time_is_over(*, awaited: bool) -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1", "callback", awaited=awaited)),)))
    answers = () if awaited else (Answer("c1", PLACEHOLDER),)
    change = Commit(append=answers, park=(Park("c1", 5000, ripe=text("slept")),), ending="park" if awaited else "finish")
    assert transitions.commit(s, view, change).ended
    assert s.next_due_ms == (s.clock.now_ms() + 5000 if awaited else None)
    await clock_of(s).advance(5)
    assert s.expire() == ["c1"]
    last = begun(s).entries[-1]
    assert (last.call, last.outcome, last.body, last.aside) == ("c1", "result", text("slept"), not awaited)


# -- questions


@pytest.mark.spec("turn-54")
def test_the_first_answer_to_a_question_wakes_the_turn_and_stands() -> None:
    s, view = parked(call("c1", "question", awaited=True))
    assert (view.ended, s.state) == (True, "parked")
    told = [s.outcome("c1", "result", text(word)) for word in ("blue", "blue", "red")]
    assert told == ["accepted", "duplicate", "conflict"]
    last = begun(s).entries[-1]
    assert (last.type, last.call, last.outcome, last.body) == (RESULT, "c1", "result", text("blue"))
    assert s.outcome("c1", "result", text("red")) == "conflict"


@pytest.mark.spec("turn-54")
async def test_a_question_that_nobody_answers_expires() -> None:
    s, _ = parked(call("c1", "question", awaited=True))
    await clock_of(s).advance(0.999)
    assert s.expire() == []
    await clock_of(s).advance(0.001)
    assert s.expire() == ["c1"]
    assert begun(s).entries[-1].outcome == "timeout"


def test_a_question_gives_way_to_its_askers_next_message() -> None:
    s, _ = parked(call("c1", "question", awaited=True))
    view = begun(s, "never mind")
    assert [(e.type, e.outcome) for e in view.entries[-2:]] == [(RESULT, "superseded"), (USER, None)]


# -- what a turn remembers


def test_the_state_of_a_turn_is_what_its_last_commit_left_and_ends_with_the_turn() -> None:
    s = fresh()
    mine = {"s": {"n": [1]}}
    view = transitions.commit(s, begun(s, "hi"), Commit(state=mine))
    mine["s"]["n"].append(2)
    assert view.state == {"s": {"n": [1]}}
    transitions.commit(s, view, Commit(ending="yield"))
    view = begun(s)
    assert view.state == {"s": {"n": [1]}}
    view.state["s"] = "changed by who has it"
    view = transitions.commit(s, view, Commit(claim=True))
    assert view.state == {"s": {"n": [1]}}
    assert transitions.commit(s, view, Commit(state={})).state == {}
    s.accept(text("more"))
    view = transitions.commit(
        s, transitions.commit(s, replaced(s), Commit(state={"s": 1})), Commit(append=(say(words="bye"),), ending="finish")
    )
    assert (view.ended, view.state) == (False, {})


def replaced(s: MemorySession) -> TurnView:
    return transitions.again(s)


def test_a_refused_commit_changes_nothing_not_even_the_state() -> None:
    s = fresh()
    old = begun(s, "hi")
    view = transitions.commit(s, old, Commit(state={"s": 1}))
    with pytest.raises(Diverged):
        transitions.commit(s, old, Commit(append=(Note(NOTICE, {}),), state={"s": 2}))
    with pytest.raises(StateTooLarge, match="keep what is large in the log"):
        transitions.commit(s, view, Commit(append=(Note(NOTICE, {}),), state={"s": "x" * MOST_STATE_BYTES}))
    after = transitions.again(s)
    assert (after.state, after.rev, len(s.log)) == ({"s": 1}, view.rev, 1)


async def test_the_time_a_turn_runs_leaves_its_waits_out() -> None:
    s = fresh()
    view = begun(s, "hi")
    await clock_of(s).advance(0.7)
    transitions.commit(s, view, Commit(wait=(Wait("w1", "retry", 5000),), ending="park"))
    await clock_of(s).advance(5)
    s.expire()
    view = begun(s)
    assert view.active_ms == 700
    await clock_of(s).advance(0.3)
    transitions.commit(s, view, Commit(ending="yield"))
    await clock_of(s).advance(4)
    view = begun(s)
    assert view.active_ms == 1000
    s.accept(text("more"))
    view = transitions.commit(s, view, Commit(append=(say(words="bye"),), ending="finish"))
    assert (view.ended, view.active_ms) == (False, 0)
    await clock_of(s).advance(0.04)
    assert transitions.commit(s, view, Commit(claim=True)).active_ms == 40


# -- calls that are too many, and calls that are parked too late


def test_a_call_beyond_the_sixty_fourth_that_waits_is_answered_with_an_error() -> None:
    s, _ = parked(*(call(f"c{i}", "callback") for i in range(MOST_CALLS - 1)))
    s.accept(text("more"))
    view = transitions.again(s) if s.state == "running" else begun(s)
    answers = tuple(Answer(r.call, PLACEHOLDER) for r in view.rows)
    view = transitions.commit(s, view, Commit(append=answers, claim=True))
    view = transitions.commit(s, view, Commit(append=(say(call("d0"), call("d1"), call("d2")),), start=("d0", "d1")))
    assert [r.call for r in view.rows] == ["d0"]
    new = [(e.type, e.call, e.outcome) for e in view.entries[-5:]]
    assert new[:3] == [(CALL, "d0", None), (CALL, "d1", None), (CALL, "d2", None)]
    assert new[3:] == [(RESULT, "d1", "error"), (RESULT, "d2", "error")]
    assert view.entries[-1].body["content"].startswith("ERROR: 64 calls have no result yet; not executed.")


def test_a_call_that_is_parked_under_a_cancel_is_called_off() -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1", "callback")),)))
    s.request_cancel()
    view = transitions.commit(s, view, Commit(append=(Answer("c1", PLACEHOLDER),), park=(Park("c1", 1000),)))
    assert (s.rows["c1"].outcome, list(s.parked())) == ("cancelled", [])
    assert s.outcome("c1", "result", text("7")) == "conflict"
