"""A session in memory keeps the promises that a session in Redis keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.engine import transitions
from turnyard.engine.memory import MemorySession
from turnyard.errors import Diverged
from turnyard.records.commit import PLACEHOLDER, Answer, Clear, Commit, NewCall, Note, Park, Say, TurnView
from turnyard.records.log import ASSISTANT, CALL, CLEARED, COMPACTION, NOTICE, RESULT, STRIKE, USER, LogRecord, visible
from turnyard.testing import ManualClock


def fresh() -> MemorySession:
    return MemorySession(ManualClock(), {"tenant": "t", "session": "s"})


def clock_of(s: MemorySession) -> ManualClock:
    assert isinstance(s.clock, ManualClock)
    return s.clock


def text(words: str) -> dict[str, Any]:
    return {"text": words}


def begun(s: MemorySession, *messages: str) -> TurnView:
    for words in messages:
        s.accept(text(words))
    view = transitions.begin(s)
    assert view is not None
    return view


def call(ident: str, kind: Any = "plain", *, awaited: bool = False) -> NewCall:
    return NewCall(ident, kind, {"name": "add", "args": {}}, awaited)


def say(*calls: NewCall, words: str = "") -> Say:
    return Say({"text": words}, calls)


def result(ident: str, content: str = "3") -> Answer:
    return Answer(ident, "result", {"content": content})


def parked(*calls: NewCall) -> tuple[MemorySession, TurnView]:
    """A session whose turn declared these calls and parked for them."""
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(*calls),)))
    return s, transitions.commit(s, view, Commit(park=tuple(Park(c.id, 1000) for c in calls), ending="park"))


def test_each_waiting_item_is_claimed_once() -> None:
    s = fresh()
    for words in ("a", "b", "c"):
        s.accept(text(words))
    s.turn = "turn_1"
    assert [transitions.claim(s) for _ in range(3)] == [3, 0, 0]
    assert [r.body["text"] for r in s.log] == ["a", "b", "c"]


def test_an_entry_comes_back_as_it_was_given_whatever_its_tag_and_origin() -> None:
    odd = {"text": "\u2028 <|x|>", "tag": "a\nb\u0000", "origin": {"weird": [None, 1.5, "\ud83d\ude00"]}}
    s = fresh()
    s.inject(odd)
    view = begun(s, "hi")
    view = transitions.commit(s, view, Commit(append=(Note("custom/kind", odd),)))
    assert view.entries[0].body == odd
    assert next(r for r in s.log if r.type == "custom/kind").body == odd


@pytest.mark.parametrize(
    "change",
    [
        Commit(append=(Note("notification", text("half")), result("call_nobody"))),
        Commit(append=(Note("notification", text("half")),), park=(Park("call_nobody", 1000),)),
        Commit(append=(Note("notification", text("half")),), start=("call_nobody",)),
    ],
)
def test_a_commit_that_names_a_call_which_is_not_there_changes_nothing(change: Commit) -> None:
    s = fresh()
    view = begun(s, "hi")
    before = list(s.log)
    with pytest.raises(Diverged, match="call_nobody"):
        transitions.commit(s, view, change)
    assert (s.rev, s.log) == (view.rev, before)


@pytest.mark.parametrize("unshown", [True, False])
def test_a_commit_clears_the_notices_that_were_shown_and_those_that_wait_where_it_says_so(unshown: bool) -> None:
    s = fresh()
    s.notice(text("full"), group="g", key="k")
    view = begun(s, "hi")
    s.notice(text("fuller"), group="g", key="k")
    s.notice(text("hot"), group="g", key="other")
    view = transitions.commit(s, view, Commit(append=(Clear("g\nk", unshown=unshown),)))
    assert [e.body["text"] for e in view.entries] == ["hi"]
    view = transitions.commit(s, view, Commit(claim=True))
    assert [e.body["text"] for e in view.entries] == (["hi", "hot"] if unshown else ["hi", "fuller", "hot"])


def test_a_turn_begins_only_when_there_is_something_to_do() -> None:
    s = fresh()
    assert transitions.begin(s) is None
    s.inject(text("x"))
    s.notice(text("y"), group="g", key="k")
    assert transitions.begin(s) is None
    view = begun(s, "hi")
    assert [e.type for e in view.entries] == [NOTICE, NOTICE, USER]
    assert transitions.begin(s) is None


def test_a_commit_happens_only_on_the_revision_it_was_made_for() -> None:
    s = fresh()
    view = begun(s, "hi")
    transitions.commit(s, view, Commit())
    with pytest.raises(Diverged):
        transitions.commit(s, view, Commit(append=(say(words="twice"),)))
    assert [r.type for r in s.log] == [USER]


def test_what_arrives_waits_while_a_call_is_unanswered() -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1")),), start=("c1",)))
    assert view.mine == {"c1"}
    s.accept(text("and?"))
    view = transitions.commit(s, view, Commit(claim=True))
    assert [e.type for e in view.entries] == [USER, ASSISTANT, CALL]
    view = transitions.commit(s, view, Commit(append=(result("c1"),), claim=True))
    assert [e.type for e in view.entries] == [USER, ASSISTANT, CALL, RESULT, USER]
    assert (view.rows, view.mine) == ((), frozenset())


def test_a_finish_with_something_waking_opens_the_next_turn() -> None:
    s = fresh()
    view = begun(s, "hi")
    job = s.accept(text("more"))
    after = transitions.commit(s, view, Commit(append=(say(words="hello"),), ending="finish"))
    assert not after.ended
    assert after.turn != view.turn
    assert after.jobs == (job,)
    done = transitions.commit(s, after, Commit(append=(say(words="there"),), ending="finish"))
    assert done.ended
    assert [(j.state, j.text) for j in s.jobs.values()] == [("succeeded", "hello"), ("succeeded", "there")]


def test_an_awaited_call_parks_the_turn_and_its_outcome_wakes_it() -> None:
    s, view = parked(call("c1", "lift", awaited=True))
    assert (view.ended, s.state, s.awaiting) == (True, "parked", 1)
    assert s.outcome("c1", "result", text("7")) == "accepted"
    view = transitions.begin(s)
    assert view is not None
    assert [(e.outcome, e.aside) for e in view.entries if e.type == RESULT] == [("result", False)]


def test_a_park_with_nothing_to_wait_for_goes_on() -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1", "lift", awaited=True)),)))
    view = transitions.commit(s, view, Commit(park=(Park("c1", 1000),)))
    s.outcome("c1", "result", text("7"))
    view = transitions.commit(s, view, Commit(ending="park"))
    assert not view.ended
    assert view.rows == ()


def test_a_finish_while_a_call_is_waited_for_is_refused() -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1", "lift", awaited=True)),)))
    view = transitions.commit(s, view, Commit(park=(Park("c1", 1000),)))
    assert transitions.commit(s, view, Commit(ending="finish")).code == "AWAITS"


def test_the_result_of_a_detached_call_comes_as_an_aside_and_settles_its_job() -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1", "lift")),)))
    view = transitions.commit(s, view, Commit(append=(Answer("c1", PLACEHOLDER),), park=(Park("c1", 1000),), claim=True))
    transitions.commit(s, view, Commit(append=(say(words="wait"),), ending="finish"))
    job = next(iter(s.jobs.values()))
    assert (s.state, job.state, job.open) == ("idle", "waiting", 1)
    s.outcome("c1", "result", text("7"))
    view = begun(s)
    assert [(e.outcome, e.aside) for e in view.entries if e.type == RESULT] == [("placeholder", False), ("result", True)]
    transitions.commit(s, view, Commit(append=(say(words="it is 7"),), ending="finish"))
    assert (job.state, job.open, job.text) == ("succeeded", 0, "it is 7")


def test_a_user_who_writes_again_supersedes_an_approval_and_detaches_what_is_waited_for() -> None:
    s, _ = parked(call("c1", "approval", awaited=True), call("c2", "child", awaited=True))
    view = begun(s, "never mind")
    results = [(e.call, e.outcome) for e in view.entries if e.type == RESULT]
    assert results == [("c1", "superseded"), ("c2", PLACEHOLDER)]
    assert view.entries[-1].type == USER


def test_an_allowed_call_may_run_and_a_denied_one_is_answered() -> None:
    s, _ = parked(call("c1", "approval", awaited=True))
    assert s.decide("c1", allow=True) == "accepted"
    assert s.decide("c1", allow=False) == "conflict"
    assert begun(s).rows[0].state == "allowed"
    s, _ = parked(call("c1", "approval", awaited=True))
    s.decide("c1", allow=False)
    assert begun(s).entries[-1].outcome == "denied"


async def test_the_first_outcome_stands_and_a_call_given_up_takes_one_late_result() -> None:
    s, _ = parked(call("c1", "lift", awaited=True))
    assert s.expire() == []
    await clock_of(s).advance(1.001)
    assert s.expire() == ["c1"]
    assert s.outcome("c1", "result", text("late")) == "accepted"
    assert s.outcome("c1", "result", text("later")) == "conflict"
    assert s.outcome("nobody", "result", None) == "gone"
    view = begun(s)
    assert [(e.outcome, e.aside, e.late) for e in view.entries if e.type == RESULT] == [("timeout", False, False), ("result", True, True)]


def test_results_of_a_batch_rest_in_their_rows_until_all_are_there() -> None:
    s = fresh()
    calls = (call("c1", "parallel"), call("c2", "parallel"))
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(*calls),), start=("c1", "c2")))
    view = transitions.commit(s, view, Commit(settle=(result("c2", "two"),)))
    assert [(r.call, r.outcome) for r in view.rows] == [("c1", None), ("c2", "result")]
    assert view.mine == {"c1"}
    view = transitions.commit(s, view, Commit(append=(result("c1", "one"), Answer("c2", "result")), claim=True))
    assert [e.body["content"] for e in view.entries if e.type == RESULT] == ["one", "two"]


def test_a_cancelled_turn_claims_nothing_and_closes_its_calls() -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1"), call("c2", "lift")),), start=("c1",)))
    s.accept(text("wait"))
    assert s.request_cancel()
    view = transitions.commit(s, view, Commit(start=("c2",)))
    assert (view.cancel, view.mine) == ("user", {"c1"})
    after = transitions.commit(s, view, Commit(ending="finish", closing=True))
    assert after.ended
    assert [e.outcome for e in s.log if e.type == RESULT] == ["cancelled", "cancelled"]
    assert [j.state for j in s.jobs.values()] == ["cancelled", "queued"]
    assert s.state == "ready"


def test_a_yield_takes_marks_back_and_the_turn_goes_on_where_it_was() -> None:
    s = fresh()
    view = transitions.commit(s, begun(s, "hi"), Commit(append=(say(call("c1")),), start=("c1",)))
    transitions.commit(s, view, Commit(ending="yield", unstart=("c1",)))
    again = begun(s)
    assert (again.turn, again.rows[0].state, again.epoch) == (view.turn, "open", view.epoch + 1)


def test_a_failed_turn_fails_its_jobs_with_the_reason() -> None:
    s = fresh()
    failure = {"code": "step_limit", "message": "x", "retryable": False, "ref": None}
    transitions.commit(s, begun(s, "a", "b"), Commit(ending="finish", failure=failure))
    assert [(j.state, j.error) for j in s.jobs.values()] == [("failed", failure)] * 2


WRITTEN = st.one_of(
    st.sampled_from([LogRecord(0, USER, body={"text": "hi"}), LogRecord(0, ASSISTANT, body={"text": "yes"}), LogRecord(0, "turn/end")]),
    st.sampled_from([LogRecord(0, kind, group_key=key, body={"text": "news"}) for kind in (NOTICE, CLEARED) for key in ("g\na", "g\nb")]),
    st.lists(st.integers(1, 20), min_size=1, max_size=3).map(lambda seqs: LogRecord(0, STRIKE, seqs=tuple(seqs))),
    st.tuples(st.integers(1, 20), st.integers(0, 5)).map(
        lambda span: LogRecord(0, COMPACTION, body={"text": "before", "at": span[0], "spans": [[span[0], sum(span)]]})
    ),
)


def of_the_past(record: LogRecord, log: list[LogRecord]) -> LogRecord:
    """A strike and a summary are of what is in the log already; a summary of a summary stands for all that this one did."""
    if not (past := len(log)):
        return LogRecord(0, USER, body={"text": "hi"})
    if record.type == STRIKE:
        return replace(record, seqs=tuple(1 + seq % past for seq in record.seqs))
    if record.type == COMPACTION:
        first, last = sorted(1 + seq % past for seq in record.body["spans"][0])
        spans = [[first, last], *(span for r in log[first - 1 : last] if r.type == COMPACTION for span in r.body["spans"])]
        return replace(record, body={"text": "before", "at": min(span[0] for span in spans), "spans": spans})
    return record


@given(st.lists(st.tuples(WRITTEN, st.booleans()), max_size=30))
def test_what_is_visible_never_depends_on_when_it_was_looked_at(written: list[tuple[LogRecord, bool]]) -> None:
    s = fresh()
    for record, looked in written:
        s.append(of_the_past(record, s.log))
        if looked:
            assert s.entries == visible((), s.log)
    assert s.entries == visible((), s.log)
