"""What follows a failure: a wait outside the slot, a fold, or the end; and how each series of retries ends in the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import TABLE, said, user, view
from turnyard.engine.bounds import Bounds
from turnyard.engine.effects import AskModel, Failure, Fold, ModelAnswer, NoEffect
from turnyard.engine.progress import Progress
from turnyard.engine.recovery import MOST_DELAY_MS, after_error, after_failure, after_summary, closing_events, fold_mode, forgiven
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import Done
from turnyard.records.commit import Commit, Note, TurnView

ASK = AskModel("k")
FOLD = Fold("k", (), ((1, 2),), 2, 3, 2, 100, 20)
BUSY = Failure("rate_limited", "429: come back later", retryable=True)
LONG = Failure("context_overflow", "the prompt has 9 tokens and may have 8")


def shown(turn: str = "turn_1", **progress: Any) -> TurnView:
    return replace(view(user(1)), turn=turn, state=Progress(**progress).into({}))


def then(before: TurnView, change: Commit) -> TurnView:
    """The view after a commit that did not end the turn."""
    return replace(before, rev=before.rev + 1, state=before.state if change.state is None else change.state)


def events(change: Commit) -> list[tuple[str, dict[str, Any]]]:
    return [(p.type, p.body) for p in change.append if isinstance(p, Note) and "/" in p.type and p.type != "user/message"]


def code(change: Commit) -> str | None:
    return change.failure["code"] if change.failure else None


# -- retries


@pytest.mark.spec("runner-22")
@given(turn=st.text("abc", min_size=1), attempts=st.none() | st.integers(1, 6), base_ms=st.integers(1, 5000), fold=st.booleans())
def test_a_failure_that_may_pass_parks_the_turn_for_twice_as_long_each_time(
    turn: str, attempts: int | None, base_ms: int, *, fold: bool
) -> None:
    bounds = Bounds(attempts=attempts, retry_base_ms=base_ms)
    at, effect = shown(turn), FOLD if fold else ASK
    name = "summarization/retry" if fold else "retry"
    for n in range(1, attempts or 9):
        change = after_failure(at, effect, BUSY, bounds)
        [row] = change.wait
        assert (change.ending, change.failure, row.kind) == ("park", None, "retry")
        least_ms = min(base_ms * 2 ** (n - 1), MOST_DELAY_MS)
        assert least_ms <= row.delay_ms <= least_ms * 1.25
        most = None if attempts is None else attempts - 1
        body = {"attempt": n, "max_attempts": most, "delay_ms": row.delay_ms, "error_message": BUSY.message}
        assert events(change) == [(f"{name}/start", body)]
        at = then(at, change)
    if attempts is None:
        return
    last = after_failure(at, effect, BUSY, bounds)
    assert last.wait == ()
    ended = {"success": False, "attempt": attempts - 1, "final_error": BUSY.message}
    assert events(last) == ([(f"{name}/end", ended)] if attempts > 1 else [])
    assert code(last) == (None if fold else "rate_limited")


def test_each_wait_of_a_turn_is_a_row_of_its_own() -> None:
    first = after_failure(shown(), ASK, BUSY, Bounds())
    second = after_failure(then(shown(), first), ASK, BUSY, Bounds())
    assert first.wait[0].id != second.wait[0].id


@given(asked_ms=st.integers(0, MOST_DELAY_MS), turn=st.text("abc", min_size=1))
def test_a_retry_never_comes_earlier_than_the_server_asked(asked_ms: int, turn: str) -> None:
    [row] = after_failure(shown(turn), ASK, replace(BUSY, retry_after_ms=asked_ms), Bounds()).wait
    assert max(asked_ms, 2000) <= row.delay_ms <= max(asked_ms, 2000) * 1.25


def test_turns_that_failed_together_do_not_all_return_together() -> None:
    delays = {after_failure(shown(f"turn_{n}"), ASK, BUSY, Bounds()).wait[0].delay_ms for n in range(50)}
    assert len(delays) > 20


@pytest.mark.parametrize(
    "failure",
    [
        replace(BUSY, retryable=False),
        replace(BUSY, retry_after_ms=MOST_DELAY_MS + 1),
    ],
)
def test_what_cannot_pass_or_not_soon_fails_at_once(failure: Failure) -> None:
    change = after_failure(shown(), ASK, failure, Bounds())
    assert (change.wait, events(change), change.ending, code(change)) == ((), [], "finish", "rate_limited")


def test_nothing_is_retried_after_a_cancel() -> None:
    assert after_failure(replace(shown(), cancel="user"), ASK, BUSY, Bounds()).wait == ()


@pytest.mark.spec("runner-22")
def test_an_answer_ends_the_series_and_the_next_step_counts_from_zero() -> None:
    answered = commit_after(shown(retries=2), ASK, result=ModelAnswer(Done("done")), facts=TABLE)
    assert events(answered) == [("retry/end", {"success": True, "attempt": 2, "final_error": None})]
    going_on = commit_after(shown(retries=2), ASK, result=ModelAnswer(Done("", finish="repetition")), facts=TABLE)
    assert Progress.read(going_on.state or {}).retries == 0
    assert events(commit_after(shown(), ASK, result=ModelAnswer(Done("done")), facts=TABLE)) == []


@pytest.mark.spec("runner-22")
def test_a_cancel_during_the_wait_ends_the_series_as_cancelled() -> None:
    effect = next_effect(replace(shown(retries=1, fold_retries=2), cancel="user"), TABLE)
    assert isinstance(effect, NoEffect)
    assert effect.commit.closing
    assert events(effect.commit) == [
        ("summarization/retry/end", {"success": False, "attempt": 2, "final_error": "cancelled"}),
        ("retry/end", {"success": False, "attempt": 1, "final_error": "cancelled"}),
    ]
    assert closing_events(shown()) == ()


def test_a_summary_that_was_made_ends_its_own_series_and_not_that_of_the_ask() -> None:
    progress, ended = after_summary(Progress(retries=1, fold_retries=2))
    assert progress == Progress(retries=1)
    assert [(n.type, n.body["success"], n.body["attempt"]) for n in ended] == [("summarization/retry/end", True, 2)]


def test_a_summary_that_failed_for_good_lets_the_turn_go_on_unfolded() -> None:
    change = after_failure(shown(fold_retries=2), FOLD, replace(BUSY, retryable=False), Bounds())
    assert (change.ending, change.failure) == ("none", None)
    assert Progress.read(change.state or {}) == Progress(no_fold=1)
    assert fold_mode(Progress(no_fold=1)) == "never"


# -- overflow


def test_a_request_that_is_too_long_is_folded_and_sent_again_once() -> None:
    change = after_failure(shown(), ASK, LONG, Bounds())
    assert (change.ending, change.failure, change.wait, events(change)) == ("none", None, (), [])
    due = then(shown(), change)
    effect = next_effect(due, TABLE)
    assert isinstance(effect, AskModel)
    assert effect.fold == "force"
    folded, ended = after_summary(Progress.of(due))
    assert [(n.type, n.body) for n in ended] == [("overflow/recovery", {"applied": True, "reason": "overflow", "error": LONG.message})]
    assert fold_mode(folded) == "auto"
    again = replace(due, state=folded.into({}))
    second = after_failure(again, AskModel("k"), LONG, Bounds())
    assert (second.ending, code(second), events(second)) == ("finish", "context_overflow", [])


def test_it_fails_when_nothing_could_be_folded_and_the_log_says_so() -> None:
    due = then(shown(), after_failure(shown(), ASK, LONG, Bounds()))
    told = ("overflow/recovery", {"applied": False, "reason": "overflow", "error": LONG.message})
    nothing = after_failure(due, AskModel("k", fold="force"), LONG, Bounds())
    assert (code(nothing), events(nothing)) == ("context_overflow", [told])
    assert (nothing.failure or {})["message"] == LONG.message
    unfolded = after_failure(due, AskModel("k", fold="force"), replace(LONG, message="nothing of it"), Bounds())
    assert (unfolded.failure or {})["message"] == f"{LONG.message}; and nothing of it"
    unsummed = after_failure(due, FOLD, Failure("model_error", "no"), Bounds())
    assert (code(unsummed), events(unsummed), fold_mode(Progress.read(unsummed.state or {}))) == (None, [], "least")
    least = after_failure(then(due, unsummed), AskModel("k", fold="least"), LONG, Bounds())
    assert (code(least), events(least)) == ("context_overflow", [told])


def test_an_answer_to_a_request_that_was_shortened_without_a_fold_ends_the_recovery_in_the_log() -> None:
    due = then(shown(), after_failure(shown(), ASK, LONG, Bounds()))
    change = commit_after(due, AskModel("k", fold="force"), result=ModelAnswer(Done("at last")), facts=TABLE)
    assert events(change) == [("overflow/recovery", {"applied": True, "reason": "overflow", "error": LONG.message})]


def test_an_answer_lets_the_next_overflow_be_recovered() -> None:
    change = commit_after(shown(overflow=2, too_long="x"), ASK, result=ModelAnswer(Done("", finish="repetition")), facts=TABLE)
    assert Progress.read(change.state or {}) == Progress(cuts=1)


@given(retryable=st.booleans(), after_ms=st.none() | st.integers(0, 1000))
def test_an_overflow_is_never_retried_as_it_is(after_ms: int | None, *, retryable: bool) -> None:
    failure = replace(LONG, retryable=retryable, retry_after_ms=after_ms)
    for progress in (Progress(), Progress(overflow=1), Progress(overflow=2), Progress(no_fold=1)):
        assert after_failure(replace(shown(), state=progress.into({})), ASK, failure, Bounds()).wait == ()


# -- a strategy that raises


@pytest.mark.spec("turn-52")
def test_a_step_that_always_raises_is_done_four_times_no_earlier_than_its_delays_then_given_up() -> None:
    at, delays = shown(), list[int]()
    for _ in range(3):
        change = after_error(at, "it broke", bounds=Bounds(), unrun=("c1",))
        assert (change.ending, change.unstart) == ("park", ("c1",))
        delays.append(change.wait[0].delay_ms)
        at = then(at, change)
    assert delays == [2000, 4000, 8000]
    last = after_error(at, "it broke", bounds=Bounds())
    assert (last.wait, last.ending, last.closing, code(last)) == ((), "finish", True, "retry_exhausted")


def test_a_delay_after_an_error_is_at_most_a_minute() -> None:
    assert after_error(shown(errors=2), "x", bounds=Bounds(retry_base_ms=50_000)).wait[0].delay_ms == MOST_DELAY_MS


@pytest.mark.spec("turn-52")
def test_a_step_that_went_well_forgets_the_errors_before_it() -> None:
    assert Progress.read(forgiven(shown(errors=3, folds=1), Commit(claim=True)).state or {}) == Progress(folds=1)
    assert Progress.read(forgiven(shown(errors=3), Commit(state={"s": {"v": 1}})).state or {}) == Progress()
    assert forgiven(shown(errors=3), Commit(state={"s": {"v": 1}})).state == {"s": {"v": 1}}
    assert forgiven(shown(), Commit()) == Commit()


def test_a_plain_turn_stores_nothing_of_all_this() -> None:
    assert commit_after(view(user(1)), ASK, result=ModelAnswer(Done("hi")), facts=TABLE).state is None
    assert commit_after(view(user(1), said(2), user(3)), ASK, result=ModelAnswer(Done("hi")), facts=TABLE).state is None
