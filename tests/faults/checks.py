"""What must hold of a golden run, whatever died in it: each rule names what it found, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.golden import TENANT, Golden
from turnyard.records.ids import session_key
from turnyard.records.log import ASSISTANT, CALL, RESULT, USER, LogRecord
from turnyard.state.audit import audit_session
from turnyard.state.jobs import read_job

# The outcomes that each tool's call has in the log.
RIGHT = {"once": ["result"], "render": ["placeholder", "result"], "polish": ["result"], "order": ["placeholder", "result"]}
# What else there may be when a tool was interrupted that must not run again, or a vendor's answer came late.
UNSURE = (["unknown"], ["timeout"], ["placeholder", "timeout"], ["placeholder", "timeout", "result"])
ONCE = ("once", "order")
AGAIN = ("render", "polish")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a fault may cost: steps begun again (each one model or tool call), and outcomes that are unknown."""

    repeats: int = 0
    unknown: int = 0


async def findings(golden: Golden, cost: Cost) -> list[str]:
    """Return all that is wrong with a run that came to rest."""
    log, trace = await golden.log(), golden.deployment.trace(golden.marker)
    out = [*_input(log, golden.marker), *_calls(log, cost), *_counts(log, trace, cost)]
    out += _delivery(golden.delivered(), await golden.replies())
    for job in golden.jobs:
        found = await read_job(golden.yard, job, tenant=TENANT)
        if found is None or found.state != "succeeded":
            out.append(f"job {job} is {found.state if found else 'gone'}")
    sid = session_key(TENANT, golden.marker)
    audited = await audit_session(golden.yard.shard_for(sid), sid, logs=len(log))
    return out + [f"{found.invariant}: {found.detail}" for found in audited]


def _input(log: list[LogRecord], marker: str) -> Iterator[str]:
    said = [str(r.body.get("text")) for r in log if r.type == USER]
    if said != [f"golden {marker}", f"order {marker}"]:
        yield f"user entries are {said}"


def _calls(log: list[LogRecord], cost: Cost) -> Iterator[str]:
    """Each call has one result in its place; a lifted one has its real result behind a placeholder, once."""
    names = {r.call: str(r.body.get("name")) for r in log if r.type == CALL}
    if sorted(names.values()) != sorted(RIGHT):
        yield f"calls are {sorted(names.values())}"
    outcomes: dict[str, list[str]] = {name: [] for name in names.values()}
    for record in log:
        if record.type == RESULT:
            outcomes.setdefault(names.get(record.call, "a stranger"), []).append(str(record.outcome))
    wrong = {name: found for name, found in outcomes.items() if found != RIGHT.get(name)}
    unknown = [name for name, found in wrong.items() if name in ONCE and found in UNSURE]
    if len(unknown) > cost.unknown or len(wrong) > len(unknown):
        yield f"outcomes are {wrong}"


def _counts(log: list[LogRecord], trace: list[str], cost: Cost) -> Iterator[str]:
    ran = Counter(trace)
    answers = sum(r.type == ASSISTANT for r in log)
    yield from (f"{name} must not run again and ran {ran[name]} times" for name in ONCE if ran[name] > 1)
    yield from (f"{name} never ran" for name in AGAIN if not ran[name])
    repeats = ran["model"] - answers + sum(ran[name] - 1 for name in AGAIN)
    if repeats > cost.repeats:
        yield f"{repeats} steps were repeated: {dict(ran)} for {answers} answers"
    yield from (line for line in trace if line.startswith("unfit"))


def _delivery(delivered: list[tuple[str, str]], replies: list[tuple[str, str]]) -> Iterator[str]:
    """Who drops repeated ids sees the replies of the log, in order."""
    if list(dict(delivered).items()) != replies:
        yield f"delivered {delivered} instead of {replies}"
