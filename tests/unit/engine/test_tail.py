"""Which entries are kept whole, however old or large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import asked, folded, got, noticed, said, user
from tests.unit.engine.sessions import logs
from turnyard.engine.groups import Group, Grouping
from turnyard.engine.render import in_order
from turnyard.engine.tail import pristine, tail_start
from turnyard.records.log import LogRecord


def grouped(*log: LogRecord) -> Grouping:
    grouping = Grouping()
    for entry in log:
        grouping.add(entry)
    return grouping


def tail(messages: int, exchanges: int, *log: LogRecord) -> list[int]:
    groups = grouped(*log).groups
    start = tail_start(groups, messages=messages, exchanges=exchanges)
    return sorted(entry.seq for group in groups[start:] for entry in group.entries)


def kept(messages: int, exchanges: int, *log: LogRecord) -> list[int]:
    found = grouped(*log)
    indices = pristine(found, messages=messages, exchanges=exchanges)
    return sorted(entry.seq for group in found.groups if group.index in indices for entry in group.entries)


@pytest.mark.spec("turn-27")
def test_the_tail_is_the_newest_messages_and_exchanges() -> None:
    assert tail(2, 1, asked(1, "c1"), said(2, "x"), got(3, "c1"), user(4)) == [1, 2, 3, 4]
    assert tail(1, 0, folded(1), user(2)) == [1, 2]
    assert tail(1, 0, noticed(1), user(2), said(3, "x")) == [3]
    assert tail(3, 0, user(1), said(2, "x"), user(3), said(4, "x"), user(5), said(6, "x")) == [4, 5, 6]
    assert tail(6, 4) == []


def round_of(seq: int, *calls: str) -> list[LogRecord]:
    """An answer that makes these calls, and their results."""
    n = len(calls)
    return [said(seq, "x"), *(asked(seq + 1 + i, c) for i, c in enumerate(calls)), *(got(seq + 1 + n + i, c) for i, c in enumerate(calls))]


@pytest.mark.spec("turn-27")
def test_exchanges_are_counted_not_entries_and_a_batch_is_as_many_as_its_calls() -> None:
    rounds = [*round_of(2, "a"), *round_of(5, "b"), *round_of(8, "c")]
    assert tail(9, 2, user(1), *rounds) == [5, 6, 7, 8, 9, 10]
    batch = [*round_of(2, "a"), *round_of(5, "b", "c", "d")]
    assert tail(9, 4, user(1), *batch) == list(range(1, 12))
    assert tail(9, 3, user(1), *batch) == list(range(5, 12))


@pytest.mark.spec("turn-27")
def test_the_boundary_never_falls_inside_a_group() -> None:
    assert tail(9, 1, user(1), *round_of(2, "a", "b", "c")) == list(range(2, 9))
    assert tail(0, 9, user(1), *round_of(2, "a")) == [2, 3, 4]


def test_the_walk_stops_at_the_first_group_that_does_not_fit() -> None:
    assert tail(1, 9, *round_of(1, "a"), user(4), said(5, "x")) == [5]


@pytest.mark.spec("turn-27")
def test_what_the_user_asked_last_is_kept_however_long_ago() -> None:
    rounds = [e for n in range(9) for e in round_of(3 + 3 * n, f"c{n}")]
    assert kept(9, 2, user(1), user(2, "do it"), *rounds) == [2, *range(24, 30)]


@pytest.mark.spec("turn-27")
def test_a_parked_call_is_kept_until_its_result_is_there() -> None:
    parked = [said(1, "x"), asked(2, "p"), got(3, "p", None, outcome="placeholder"), said(4, "wait"), user(5), said(6, "y")]
    assert kept(1, 1, *parked) == [1, 2, 3, 5, 6]
    done = [*parked, got(7, "p", aside=True), said(8, "z")]
    assert kept(1, 0, *done) == [5, 8]


@pytest.mark.spec("turn-27")
def test_results_that_the_model_has_not_read_are_kept() -> None:
    assert kept(0, 0, user(1), *round_of(2, "a", "b")) == [1, 2, 3, 4, 5, 6]
    assert kept(0, 0, user(1), *round_of(2, "a", "b"), said(7, "read")) == [1]
    late = [*round_of(1, "a"), said(4, "x"), got(5, "a", aside=True), user(6)]
    assert kept(0, 0, *late) == [5, 6]
    assert kept(0, 0, *late, said(7, "read")) == [6]


def test_a_result_goes_to_the_nearest_call_with_its_id() -> None:
    log = [*round_of(1, "call_0"), user(4), said(5), asked(6, "call_0"), user(7), got(8, "call_0")]
    groups = grouped(*log).groups
    assert [[e.seq for e in g.entries] for g in groups] == [[1, 2, 3], [4], [5, 6, 8], [7]]


@given(log=logs(), messages=st.integers(0, 4), exchanges=st.integers(0, 4))
def test_every_entry_is_in_one_group_and_more_allowance_keeps_more(log: list[LogRecord], messages: int, exchanges: int) -> None:
    entries = [e for e in in_order(log) if e.is_entry]
    found = grouped(*entries)
    assert sorted(e.seq for g in found.groups for e in g.entries) == sorted(e.seq for e in entries)
    groups: list[Group] = found.groups
    start = tail_start(groups, messages=messages, exchanges=exchanges)
    assert tail_start(groups, messages=messages + 1, exchanges=exchanges) <= start
    assert tail_start(groups, messages=messages, exchanges=exchanges + 1) <= start
