"""Is one log whole: numbers, epochs, calls and results, and each message once?

A pass over all records of a store. What is struck counts as gone, with its pairs. Calls that the open turn has not
answered yet are named by the caller; at the end of a log any other one without a result is unpaired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnyard.records.commit import PLACEHOLDER
from turnyard.records.log import CALL, RESULT, STRIKE, USER, LogRecord
from turnyard.state.oracles.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

NUMBERS = "log numbers have no gap"
EPOCHS = "epochs never fall"
PAIRED = "each call has exactly one result, in its place"
ONCE = "a call ends once, and one late result may follow"
MESSAGE = "a message is in the log once"


def transcript_findings(session: str, records: Sequence[LogRecord], *, pending: Collection[str] = ()) -> Iterator[Finding]:
    """Yield what is broken in a log, read whole; `pending` are the unanswered calls of its open turn."""
    struck = {seq for record in records if record.type == STRIKE for seq in record.seqs}
    reading = _Reading(struck)
    for number, record in enumerate(records, start=1):
        for invariant, detail in reading.read(number, record):
            yield Finding(session, invariant, detail)
    for call in reading.open:
        if call not in pending:
            yield Finding(session, PAIRED, f"{call} has no result")


@dataclass(slots=True)
class _Reading:
    """A pass over one log. `open` are the calls of the last batch that no result has answered."""

    struck: set[int]
    epoch: int = 0
    open: list[str] = field(default_factory=list[str])
    calls: set[str] = field(default_factory=set[str])
    ended: set[tuple[str, bool]] = field(default_factory=set[tuple[str, bool]])
    messages: set[str] = field(default_factory=set[str])

    def read(self, number: int, record: LogRecord) -> Iterator[tuple[str, str]]:
        if record.seq != number:
            yield NUMBERS, f"record {number} has number {record.seq}"
        if record.epoch < self.epoch:
            yield EPOCHS, f"record {record.seq} is of epoch {record.epoch} after {self.epoch}"
        self.epoch = max(self.epoch, record.epoch)
        if not record.is_entry:
            return
        if record.type == RESULT:
            yield from self._result(record)
        elif record.type == CALL:
            yield from self._call(record)
        else:
            yield from self._other(record)

    def _call(self, record: LogRecord) -> Iterator[tuple[str, str]]:
        call = record.call or ""
        if call in self.calls:
            yield PAIRED, f"{call} is made twice"
        self.calls.add(call)
        self.open.append(call)

    def _result(self, record: LogRecord) -> Iterator[tuple[str, str]]:
        call = record.call or ""
        if call not in self.calls:
            yield PAIRED, f"record {record.seq} is a result of {call}, which nobody made"
        if not record.aside:
            if call in self.open:
                self.open.remove(call)
            else:
                yield PAIRED, f"record {record.seq} answers {call} again"
        elif self.open:
            yield PAIRED, f"record {record.seq} stands between calls and their results"
        if record.outcome != PLACEHOLDER:
            if (call, record.late) in self.ended:
                yield ONCE, f"record {record.seq} ends {call} again"
            self.ended.add((call, record.late))

    def _other(self, record: LogRecord) -> Iterator[tuple[str, str]]:
        if self.open:
            yield PAIRED, f"record {record.seq} ({record.type}) stands between calls and their results"
        if record.type == USER and record.seq not in self.struck:
            for job in record.jobs:
                if job in self.messages:
                    yield MESSAGE, f"record {record.seq} brings {job} again"
                self.messages.add(job)
