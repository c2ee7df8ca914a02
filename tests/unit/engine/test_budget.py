"""What a turn has used, when that is too much, and when the model is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import TABLE, TURN, asked, folded, got, said, user, view
from turnyard.engine.bounds import UNLIMITED, Bounds
from turnyard.engine.budget import Notice, Spent, Stop, budget_of, carry, judge
from turnyard.engine.effects import AskModel, ModelAnswer
from turnyard.engine.progress import Progress
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import TurnView
from turnyard.records.log import LogRecord

KINDS = ("model_calls", "tool_calls", "tokens", "cost_micros", "active_ms")


def answered(seq: int, *, tokens: int = 0, cost_micros: int = 0) -> LogRecord:
    """An answer and what it cost."""
    usage = {"input_tokens": tokens, "output_tokens": 0, "cost_micros": cost_micros}
    return replace(said(seq, "x"), body={"text": "x", "usage": usage})


@st.composite
def turns(draw: st.DrawFn) -> TurnView:
    """A turn with some rounds behind it, some of an older turn before it, and counts that a fold left behind."""
    entries: list[LogRecord] = [replace(user(1), turn="turn_0"), replace(answered(2, tokens=9), turn="turn_0"), user(3)]
    for n in range(draw(st.integers(0, 6))):
        tokens, calls = draw(st.integers(0, 50)), draw(st.integers(0, 3))
        entries.append(answered(len(entries) + 1, tokens=tokens, cost_micros=draw(st.integers(0, 9))))
        for c in range(calls):
            entries += [asked(len(entries) + 1, f"c{n}.{c}"), got(len(entries) + 2, f"c{n}.{c}", str(n))]
        if draw(st.booleans()):
            entries.append(user(len(entries) + 1, "and?"))
    counts: dict[str, Any] = {name: draw(st.integers(0, 3)) for name in (*KINDS[:4], "continuations")}
    held = Progress(**counts, warned=draw(st.integers(0, 31)))
    return view(*entries, state=held.into({}), active_ms=draw(st.integers(0, 5000)))


limits = st.none() | st.integers(0, 60)
bounds = st.builds(
    Bounds,
    **dict.fromkeys(KINDS, limits),
    continuations=st.none() | st.integers(0, 3),
    soft_ratio=st.floats(0.01, 0.99),
)


@given(turns(), bounds)
def test_a_turn_is_stopped_exactly_when_some_bound_is_used_up_and_a_stop_comes_before_any_notice(shown: TurnView, within: Bounds) -> None:
    spent, verdict = Spent.of(shown), judge(shown, within)
    used_up = [k for k in KINDS if (most := getattr(within, k)) is not None and getattr(spent, k) >= most + (k == "tool_calls")]
    assert isinstance(verdict, Stop) == bool(used_up)
    if isinstance(verdict, Stop):
        assert (verdict.bound, verdict.code) == (used_up[0], "step_limit" if used_up[0].endswith("calls") else "budget_exceeded")
    assert budget_of(spent, within).exhausted == bool(used_up)


@given(turns(), bounds)
def test_the_model_is_told_once_of_each_bound_that_comes_close(shown: TurnView, within: Bounds) -> None:
    first = judge(shown, within)
    if not isinstance(first, Notice):
        return
    told = replace(Progress.of(shown), warned=first.warned).into({})
    assert judge(replace(shown, state=told), within) is None
    spent = Spent.of(shown)
    close = [k for k in KINDS if (most := getattr(within, k)) is not None and getattr(spent, k) >= most * within.soft_ratio]
    new = [k for i, k in enumerate(KINDS) if (first.warned & ~Progress.of(shown).warned) >> i & 1]
    assert new
    assert set(new) <= set(close)
    assert budget_of(spent, within).soft_exhausted


@pytest.mark.spec("runner-20")
@given(turns(), bounds)
def test_what_is_left_is_never_below_0_and_minus_1_without_a_bound(shown: TurnView, within: Bounds) -> None:
    spent = Spent.of(shown)
    left = budget_of(spent, within)
    for kind in (*KINDS, "continuations"):
        most = getattr(within, kind)
        assert getattr(left, kind) == (UNLIMITED if most is None else max(0, most - getattr(spent, kind)))


@pytest.mark.spec("runner-20")
def test_no_continuations_allowed_is_0_left_and_not_without_a_bound() -> None:
    assert budget_of(Spent(), Bounds(continuations=0)).continuations == 0
    assert budget_of(Spent(), Bounds(continuations=None)).continuations == UNLIMITED


@pytest.mark.spec("runner-20")
@given(bounds=st.builds(Bounds, soft_ratio=st.floats(0.01, 0.99), tokens=st.integers(1, 1000)), used=st.integers(0, 2000))
def test_a_bound_is_soft_exhausted_from_its_ratio_on(bounds: Bounds, used: int) -> None:
    left = budget_of(Spent(tokens=used), replace(bounds, model_calls=None))
    assert left.soft_exhausted == (used >= (bounds.tokens or 0) * bounds.soft_ratio)
    assert left.exhausted == (used >= (bounds.tokens or 0))


@given(turns(), st.data())
def test_a_fold_changes_no_count(shown: TurnView, data: st.DataObject) -> None:
    first, last = sorted(data.draw(st.tuples(*[st.integers(1, len(shown.entries))] * 2)))
    held = carry(Progress.of(shown), shown, spans=((first, last),))
    left = tuple(e for e in shown.entries if not first <= e.seq <= last)
    after = replace(shown, entries=(replace(folded(99), turn=TURN), *left) if last < shown.entries[-1].seq else left, state=held.into({}))
    inside = [e for e in shown.entries if first <= e.seq <= last]
    if any(e.turn == TURN for e in inside) and any(e.turn != TURN for e in left):
        after = replace(after, entries=tuple(e for e in after.entries if e.turn == TURN))
    assert Spent.of(after) == Spent.of(shown)


def test_a_summary_costs_tokens_and_money_and_is_no_model_call() -> None:
    held = carry(Progress(), view(user(1)), spans=(), usage={"input_tokens": 7, "output_tokens": 3, "cost_micros": 5})
    assert held == Progress(tokens=10, cost_micros=5)


@pytest.mark.spec("runner-20")
@given(steers=st.lists(st.booleans(), min_size=12, max_size=12))
def test_steering_without_end_asks_the_model_no_more_often_than_allowed(steers: list[bool]) -> None:
    table = replace(TABLE, bounds=Bounds(model_calls=5, segment_steps=2), hooks=False)
    entries: list[LogRecord] = [user(1)]
    asks = 0
    for steer in steers:
        if steer:
            entries.append(user(len(entries) + 1, "also"))
        shown = view(*entries)
        if not isinstance(next_effect(shown, replace(table, bounds=Bounds(model_calls=5))), AskModel):
            break
        asks += 1
        n = len(entries)
        entries += [said(n + 1), asked(n + 2, f"c{asks}"), got(n + 3, f"c{asks}", str(asks))]
    assert asks == 5


def told(entries: list[LogRecord], state: dict[str, Any], calls: int, ratio: float) -> tuple[str, dict[str, Any] | None]:
    """What the model is told with the next ask, and the state that its answer leaves."""
    table = replace(TABLE, bounds=Bounds(model_calls=calls, soft_ratio=ratio))
    shown = view(*entries, state=state)
    effect = next_effect(shown, table)
    assert isinstance(effect, AskModel)
    change = commit_after(shown, effect, result=ModelAnswer(Done("", (AskedCall("x", "add", "{}"),))), facts=table)
    return effect.note, change.state


@pytest.mark.spec("turn-48")
def test_from_a_share_of_its_limit_on_the_model_is_told_with_one_call_and_not_before() -> None:
    entries: list[LogRecord] = [user(1)]
    state: dict[str, Any] = {}
    notes: list[str] = []
    for n in range(8):
        note, after = told(entries, state, calls=10, ratio=0.4)
        notes.append(note)
        state = state if after is None else after
        at = len(entries)
        entries += [said(at + 1), asked(at + 2, f"c{n}"), got(at + 3, f"c{n}", str(n))]
    assert [bool(note) for note in notes] == [False] * 4 + [True] + [False] * 3
    assert "4 of 10 model calls" in notes[4]


@pytest.mark.spec("turn-48")
def test_what_a_call_that_failed_was_told_is_told_again_with_the_next_one() -> None:
    entries: list[LogRecord] = [user(1), said(2), asked(3, "c"), got(4, "c")]
    assert told(entries, {}, calls=2, ratio=0.5)[0] == told(entries, {"k": {"retries": 1}}, calls=2, ratio=0.5)[0] != ""
