"""A run without damage is judged clean; each planted violation is counted in its own place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnyard.records.log import ASSISTANT, CALL, RESOLVED, RESULT, STRIKE, TURN_END, USER, LogRecord
from turnyard.state.oracles.events import Asked, Began, Committed, Delivered, Ending, History, Ran, Sent
from turnyard.state.oracles.history import Verdict, judge

HISTORY = History(
    sent=(
        Sent("m1", "s", "steer", "accepted", "job_1", 1.0, 1.1),
        Sent("m2", "s", "steer", "accepted", "job_2", 2.0, 2.1),
        Sent("m3", "s", "follow_up", "accepted", "job_3", 1.5, 1.6),
        Sent("m4", "s", "reject", "busy", "job_4", 1.7, 1.8),
    ),
    asked=(Asked("s", 7, 3.0, ("m1", "m2")), Asked("s", 8, 9.0, ("m1", "m2", "m3"))),
    ran=(Ran("k1", "once", repeatable=False), Ran("k2", "again", repeatable=True), Ran("k2", "again", repeatable=True)),
    began=(Began("s", 1, "a", 7, 2.5), Began("s", 2, "b", 8, 8.0)),
    committed=(Committed("s", 1, "a", 1, 3.0), Committed("s", 1, "a", 1, 8.1, repeat=True), Committed("s", 2, "b", 2, 8.2)),
    delivered=(Delivered("s.0", 3, "d3"), Delivered("s.0", 3, "d3"), Delivered("s.0", 5, "d5")),
)
LOG = (
    LogRecord(1, USER, jobs=("job_1",), body={"text": "m1"}),
    LogRecord(2, USER, jobs=("job_2",), body={"text": "m2"}),
    LogRecord(3, ASSISTANT),
    LogRecord(4, USER, jobs=("job_3",), body={"text": "m3"}),
    LogRecord(5, ASSISTANT),
    LogRecord(6, TURN_END, jobs=("job_1", "job_2", "job_3")),
)
ENDING = Ending(logs={"s": [LOG]}, jobs=dict.fromkeys(("job_1", "job_2", "job_3"), "succeeded"))


def numbered(*records: LogRecord) -> tuple[LogRecord, ...]:
    return tuple(replace(record, seq=n) for n, record in enumerate(records, start=1))


def ending(*records: LogRecord, **more: object) -> Ending:
    return replace(ENDING, logs={"s": [numbered(*records, LOG[-1])]}, **more)


def more(**lists: object) -> History:
    return replace(HISTORY, **{name: (*getattr(HISTORY, name), item) for name, item in lists.items()})


def found(history: History = HISTORY, end: Ending = ENDING) -> Verdict:
    return judge(history, end, lease_s=2.0)


def test_a_clean_run_is_clean_and_says_so() -> None:
    verdict = found()
    assert verdict.clean, verdict
    assert verdict.line() == "lost=0 doubled=0 unpaired=0 overlaps=0 leaked_slots=0 reordered=0"


M1, M2, A1, M3, A2, END = LOG
JOBS = ENDING.jobs


@pytest.mark.parametrize(
    ("what", "end"),
    [
        ("no log", ending(M1, A1, M3, A2)),
        ("no end", replace(ENDING, jobs={**JOBS, "job_1": "running"})),
        ("no job", replace(ENDING, jobs={"job_2": "failed", "job_3": "succeeded"})),
        ("another session", replace(ENDING, logs={"s": [numbered(M2, A1, M3, A2, END)], "other": [numbered(M1)]})),
    ],
)
def test_an_accepted_message_that_is_nowhere_is_lost(what: str, end: Ending) -> None:
    assert found(end=end).lost


CALLED = (LogRecord(0, CALL, call="c"), LogRecord(0, RESULT, call="c", outcome="placeholder"))
LATE = LogRecord(0, RESULT, call="c", outcome="result", aside=True, late=True)


@pytest.mark.parametrize(
    "records",
    [
        (*CALLED, LogRecord(0, RESOLVED, call="c", outcome="result")),
        (*CALLED, LogRecord(0, RESOLVED, call="c", outcome="timeout"), LogRecord(0, RESOLVED, call="c", outcome="late"), LATE),
    ],
)
def test_an_outcome_that_was_taken_and_is_never_told_is_lost(records: tuple[LogRecord, ...]) -> None:
    assert found(end=ending(M1, M2, A1, M3, *records, A2)).lost
    told = LogRecord(0, RESULT, call="c", outcome="result", aside=True)
    assert found(end=ending(M1, M2, A1, M3, *records, told, A2)).clean
    struck = LogRecord(0, STRIKE, seqs=(5,))
    assert found(end=ending(M1, M2, A1, M3, *records, struck, A2)).lost == []


def test_a_job_that_is_done_without_the_end_of_a_turn_is_lost() -> None:
    assert found(end=replace(ENDING, logs={"s": [LOG[:5]]})).lost
    assert found(end=replace(ENDING, jobs={**JOBS, "job_1": "failed"})).lost == []


def test_a_reply_that_was_never_delivered_is_lost() -> None:
    assert found(end=replace(ENDING, owed=frozenset({"d3", "d9"}))).lost == ["reply d9 was never delivered"]


def test_a_queued_message_whose_job_was_cancelled_is_not_lost() -> None:
    assert found(end=ending(M1, A1, M3, A2, jobs={**JOBS, "job_2": "cancelled"})).lost == []


@pytest.mark.parametrize(
    ("history", "end"),
    [
        (HISTORY, ending(M1, M2, M2, A1, M3, A2)),
        (HISTORY, replace(ENDING, logs={"s": [LOG], "other": [numbered(M1)]})),
        (more(asked=Asked("s", 8, 9.5, ("m1", "m1"))), ENDING),
        (more(ran=Ran("k1", "once", repeatable=False)), ENDING),
    ],
)
def test_what_counts_twice_is_doubled(history: History, end: Ending) -> None:
    assert found(history, end).doubled


def test_a_message_that_a_rollback_gave_back_stands_once() -> None:
    assert found(end=ending(M1, M2, A1, LogRecord(0, STRIKE, seqs=(1, 2)), M1, M2, A1, M3, A2)).clean


@pytest.mark.parametrize(
    ("history", "end"),
    [
        (more(asked=Asked("s", 8, 9.5, (), ("message 3: two assistant messages in a row",))), ENDING),
        (HISTORY, ending(*LOG, LogRecord(0, CALL, call="c"))),
    ],
)
def test_a_call_without_its_result_is_unpaired(history: History, end: Ending) -> None:
    assert found(history, end).unpaired


@pytest.mark.parametrize(
    "history",
    [
        more(committed=Committed("s", 1, "a", 2, 7.0)),
        more(committed=Committed("s", 2, "a", 3, 8.5)),
        more(committed=Committed("s", 1, "c", 3, 7.5)),
        more(committed=Committed("s", 1, "a", 3, 8.5)),
        more(asked=Asked("s", 7, 10.5, ())),
    ],
)
def test_two_owners_of_a_session_overlap(history: History) -> None:
    assert found(history).overlaps


def test_a_fenced_worker_may_start_a_call_within_its_lease() -> None:
    assert found(more(asked=Asked("s", 7, 9.9, ()))).overlaps == []


def test_a_slot_that_is_left_is_leaked() -> None:
    assert found(end=replace(ENDING, slots=("running: s",))).leaked_slots == ["running: s is still taken"]


@pytest.mark.parametrize(
    ("history", "end"),
    [
        (HISTORY, ending(M2, M1, A1, M3, A2)),
        (more(delivered=Delivered("s.0", 4, "d4")), ENDING),
        (more(delivered=Delivered("s.0", 6, "d5")), ENDING),
    ],
)
def test_what_stands_or_goes_out_before_its_turn_is_reordered(history: History, end: Ending) -> None:
    assert found(history, end).reordered


def test_a_steer_may_overtake_a_follow_up_and_what_is_sent_at_once_has_no_order() -> None:
    assert found(end=ending(M1, M3, M2, A1, A2)).clean
    together = replace(HISTORY, sent=(HISTORY.sent[0], replace(HISTORY.sent[1], asked_s=1.05), *HISTORY.sent[2:]))
    assert found(together, ending(M2, M1, A1, M3, A2)).reordered == []
