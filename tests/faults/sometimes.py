"""What should happen sometimes: a run with faults in which none of it did has shown nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from turnyard.records.log import CALL, DECIDED, PARKED, RESOLVED, RESULT, LogRecord
from turnyard.state.oracles.events import Ending

SOMETIMES = (
    "FENCED",
    "ALREADY",
    "DIVERGED",
    "DUPLICATE",
    "unknown",
    "resumed_elsewhere",
    "begin_by_missed",
    "yielded",
    "dead_letter",
    "timeout_first",
    "result_first",
    "amnesty",
    "approved",
    "refused",
    "asked_in_vain",
    "taken_back",
    "detached",
)
_DECISIONS = {"allow": "approved", "deny": "refused", "timeout": "asked_in_vain", "superseded": "taken_back"}
_RACE_MS = 300  # an outcome that came this shortly before its deadline has raced it


def count(ending: Ending) -> Counter[str]:
    """Return how often the logs hold an unknown outcome, what people said, and how the races of outcomes and deadlines went."""
    found: Counter[str] = Counter()
    for stores in ending.logs.values():
        for records in stores:
            found.update(_of_log(records))
    return found


def _of_log(records: Sequence[LogRecord]) -> Iterator[str]:
    deadlines = {r.call: int(float(r.extra.get("dl") or 0)) for r in records if r.type == PARKED}
    timeouts = {r.call for r in records if r.type == RESOLVED and r.outcome == "timeout"}
    here = {r.call for r in records if r.type == CALL and r.body.get("name") == "grow"}
    for record in records:
        if record.type == RESULT and record.outcome == "unknown":
            yield "unknown"
        elif record.type == DECIDED and record.outcome in _DECISIONS:
            yield _DECISIONS[record.outcome]
        elif record.type == PARKED and record.call in here:
            yield "detached"
        elif record.type == RESOLVED and record.outcome == "late" and record.call in timeouts:
            yield "timeout_first"
        elif record.type == RESOLVED and record.outcome == "result" and 0 <= deadlines.get(record.call, 0) - record.at_ms <= _RACE_MS:
            yield "result_first"
