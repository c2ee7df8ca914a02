"""How much work a request is: that of the entries that are new."""

from __future__ import annotations

import pytest

from tests.unit.engine.logs import asked, got, said, user
from tests.unit.engine.sessions import Session, build
from turnyard.engine.shaper import Shaper, ShaperPolicy
from turnyard.engine.tokens import estimate
from turnyard.engine.transcript import Transcript
from turnyard.records.log import STRIKE, LogRecord


def transcript() -> Transcript:
    return Transcript(above_chars=0, late="append", trusted=False, count=estimate)


def step(session: Session, n: int) -> None:
    session.add(said(0, "let me see"), asked(0, f"c{n}"), got(0, f"c{n}", "r" * 40))


def test_only_new_entries_are_read() -> None:
    session, seen = Session(), transcript()
    session.add(user(0))
    assert seen.read(session.view) == 1
    step(session, 1)
    assert seen.read(session.view) == 3
    assert seen.read(session.view) == 0


def test_everything_is_read_again_when_what_came_before_has_changed() -> None:
    session, seen = Session(), transcript()
    session.add(user(0), said(0, "x"), user(0, "no"), user(0, "yes"))
    seen.read(session.view)
    session.add(LogRecord(0, STRIKE, seqs=(3,)), user(0, "more"))
    assert seen.read(session.view) == 4
    fresh = transcript()
    fresh.read(session.view)
    assert fresh.parts == seen.parts
    assert fresh.whole_tokens == seen.whole_tokens


class Counter:
    """Counts tokens, and how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        return estimate(text)


@pytest.mark.parametrize("policy", [ShaperPolicy(), ShaperPolicy(10**6), ShaperPolicy(2_000, hard_budget_tokens=10**9)])
def test_a_step_counts_as_much_at_entry_ten_thousand_as_at_entry_ten(policy: ShaperPolicy) -> None:
    session, count = Session(), Counter()
    shaper = Shaper(policy, count=count)
    session.add(user(0))
    work: dict[int, int] = {}
    for n in range(3_333):
        step(session, n)
        if n < 10 or n % 300 == 0 or n > 3_330:
            shaper.build(session.view, fold="never")
            before = count.calls
            step(session, 10_000 + n)
            shaper.build(session.view, fold="never")
            work[n] = count.calls - before
    assert len(session.log) > 10_000
    assert max(work.values()) <= 1.2 * work[3] if policy.budget_tokens != 2_000 else max(work.values()) <= 30 + 1.2 * work[3]


def test_a_step_after_many_folds_costs_what_one_at_the_start_does() -> None:
    session, count = Session(), Counter()
    shaper = Shaper(ShaperPolicy(700, 2, 2, 0, -1), count=count)
    session.add(user(0))
    costs: list[int] = []
    for n in range(400):
        step(session, n)
        before = count.calls
        _, folds = build(session, shaper)
        if not folds:
            costs.append(count.calls - before)
    assert sum(e.type == "session/compaction" for e in session.log) > 10
    assert max(costs[-50:]) <= max(costs[:5])
