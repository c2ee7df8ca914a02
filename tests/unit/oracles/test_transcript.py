"""A log that is whole has no finding; one damage in it has one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnyard.records.log import ASSISTANT, CALL, RESULT, STRIKE, USER, LogRecord
from turnyard.state.oracles import transcript_findings
from turnyard.state.oracles.transcript import EPOCHS, MESSAGE, NUMBERS, ONCE, PAIRED

WHOLE = (
    LogRecord(1, USER, epoch=1, jobs=("job_1",)),
    LogRecord(2, ASSISTANT, epoch=1),
    LogRecord(3, CALL, epoch=1, call="a"),
    LogRecord(4, CALL, epoch=1, call="b"),
    LogRecord(5, RESULT, epoch=2, call="b", outcome="placeholder"),
    LogRecord(6, RESULT, epoch=2, call="a", outcome="timeout"),
    LogRecord(7, RESULT, epoch=2, call="a", outcome="result", aside=True, late=True),
    LogRecord(8, RESULT, epoch=2, call="b", outcome="result", aside=True),
    LogRecord(9, ASSISTANT, epoch=2),
)


def numbered(*records: LogRecord) -> list[LogRecord]:
    return [replace(record, seq=n) for n, record in enumerate(records, start=1)]


def broken(*records: LogRecord, pending: tuple[str, ...] = ()) -> list[str]:
    return [finding.invariant for finding in transcript_findings("s", records, pending=pending)]


def test_a_whole_log_has_no_finding() -> None:
    assert broken(*WHOLE) == []


@pytest.mark.parametrize("cut", range(3, 6))
def test_calls_of_the_open_turn_may_be_unanswered_and_no_others(cut: int) -> None:
    assert broken(*WHOLE[:cut], pending=("a", "b")) == []
    assert set(broken(*WHOLE[:cut])) == {PAIRED}


@pytest.mark.parametrize(
    ("invariant", "records"),
    [
        (NUMBERS, WHOLE[:4] + WHOLE[5:]),
        (EPOCHS, (*WHOLE[:8], replace(WHOLE[8], epoch=1))),
        (PAIRED, numbered(*WHOLE[:5], *WHOLE[6:7], WHOLE[8])),
        (PAIRED, numbered(*WHOLE[:6], WHOLE[5], *WHOLE[6:])),
        (PAIRED, numbered(*WHOLE[:4], WHOLE[8], *WHOLE[4:])),
        (PAIRED, numbered(*WHOLE[:2], WHOLE[4])),
        (PAIRED, numbered(*WHOLE[:3], WHOLE[2], *WHOLE[3:])),
        (ONCE, numbered(*WHOLE[:8], WHOLE[7], WHOLE[8])),
        (ONCE, numbered(*WHOLE[:7], WHOLE[6], *WHOLE[7:])),
        (MESSAGE, numbered(WHOLE[0], WHOLE[0])),
    ],
)
def test_a_damaged_log_is_found(invariant: str, records: tuple[LogRecord, ...]) -> None:
    assert invariant in broken(*records)


def test_a_message_that_was_struck_may_come_again() -> None:
    assert broken(*numbered(WHOLE[0], LogRecord(0, STRIKE, epoch=2, seqs=(1,)), replace(WHOLE[0], epoch=2))) == []
