"""Is one session where its state says, and does it count what it holds?

`facts` are what the script `inspect` reads at one moment, so a rule that does not hold is broken and not just late. What
may be late for a while (a deadline that nobody has looked at) is a finding only after `STALE_MS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnyard.state.oracles.finding import REPORT, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

STALE_MS = 60_000
DONE = frozenset({"succeeded", "failed", "cancelled"})

_TICK = "see that a dispatcher runs and reaches the server: turnyard dispatcher"
_COUNTERS = (("aw", "awaited"), ("iw", "wakers"), ("nw", "undelayed"), ("nd", "delayed"), ("nj", "joining"))

# invariant, detail, and what to do where it is not the usual
Broken = tuple[str, str] | tuple[str, str, str]


def session_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield the invariants that one session breaks."""
    who = facts["head"]["id"]
    for rule in (_place, _flow, _counters, _rest, _parked, _delayed, _rows, _jobs, _logs):
        for invariant, detail, *fix in rule(facts):
            yield Finding(who, invariant, detail, fix[0] if fix else REPORT)


def _place(facts: dict[str, Any]) -> Iterator[Broken]:
    """A session that runs has a slot and one owner; no other has either."""
    head = facts["head"]
    state, slot = head["st"], facts["running"]
    if (state in ("assigned", "running")) != (slot is not False):
        yield "assigned or running if and only if it has a slot", f"state {state}, slot {slot is not False}"
    if state == "running" and facts["held"] != 1:
        yield "running if and only if its owner's set names it", f"owner {head['ow']}"
    if facts["holders"] != (1 if state == "running" else 0):
        yield "running if and only if one worker holds it", f"state {state}, held by {facts['holders']}"
    if state == "assigned" and slot is not False and facts["now"] - float(slot) > STALE_MS:
        late_s = (facts["now"] - float(slot)) / 1000
        yield "an assignment is begun in time or given back", f"{late_s:.0f} s past its begin-by", _TICK


def _flow(facts: dict[str, Any]) -> Iterator[Broken]:
    """A session that is ready is in its flow, and its flow is offered or waits for one resource."""
    head, state = facts["head"], facts["head"]["st"]
    if (state == "ready") != (facts["in_flow"] == 1):
        yield "ready if and only if it is in its flow", f"state {state}, in flow {facts['in_flow']}"
    if state != "ready":
        return
    if not facts["flow_listed"] and not facts["flow_blocked"]:
        yield "a flow that waits is offered or blocked", f"flow of {head['tn']}/{head['ag']} is neither"
    if facts["flow_listed"] and facts["flow_blocked"]:
        yield "a flow that waits is offered or blocked", f"flow of {head['tn']}/{head['ag']} is both"
    if facts["flow_blocked"] and not facts["flow_waits"]:
        yield "a blocked flow waits at its resource", f"{facts['flow_blocked']} does not list {head['tn']}/{head['ag']}"


def _counters(facts: dict[str, Any]) -> Iterator[Broken]:
    """What the head counts is what its queues and rows hold."""
    head = facts["head"]
    for name, counted in _COUNTERS:
        if head[name] != facts[counted]:
            yield "counters are what queues and rows hold", f"{counted}: head {head[name]}, counted {facts[counted]}"
    if head["q"] < facts["users"] or (not facts["ingress"] and head["q"] != facts["users"]):
        yield "counters are what queues and rows hold", f"unclaimed messages: head {head['q']}, counted {facts['users']}"
    if facts["inbox_stores"] > 1:
        yield "an inbox is of one store", f"items of {facts['inbox_stores']} stores"


def _rest(facts: dict[str, Any]) -> Iterator[Broken]:
    """A session rests only when nothing is left to do."""
    head = facts["head"]
    if head["st"] != "idle" or head["pz"]:
        return
    if facts["wakers"] or facts["undelayed"]:
        yield "idle means that nothing wakes it", f"inbox {facts['wakers']}, next {facts['undelayed']}"
    if head["tu"] or head["aw"]:
        yield "idle has no open turn", f"turn {head['tu'] or 'none'}, awaiting {head['aw']}"


def _parked(facts: dict[str, Any]) -> Iterator[Broken]:
    """A parked turn waits for something that can still come."""
    head = facts["head"]
    if head["st"] != "parked" or head["pz"]:
        return
    if head["ct"] and head["ct"] == head["tu"]:
        yield "a cancelled turn does not wait", f"turn {head['tu']} is parked under a cancel"
    if head["aw"] == 0 and not facts["ingress"]:
        yield "a parked turn waits for something", f"turn {head['tu']} awaits nothing and no wake is on its way"


def _delayed(facts: dict[str, Any]) -> Iterator[Broken]:
    """Every delayed message of an idle session has its deadline: nothing else would wake it."""
    if facts["head"]["st"] == "idle" and not facts["head"]["pz"] and facts["unscheduled"]:
        detail = f"{facts['unscheduled']} of {facts['delayed']} have none"
        yield "a delayed message has its deadline", detail, "send the session a message: it takes them"


def _rows(facts: dict[str, Any]) -> Iterator[Broken]:
    """Every parked call has a deadline, one that a task has begun is held by its worker, one that people decide is shown to them."""
    for name, invariant in (
        ("undated", "every parked call has a deadline"),
        ("strays", "what is listed as open has an open row"),
        ("unheld", "a begun task is held by its worker"),
        ("unlisted", "what people are asked is listed for them"),
    ):
        if facts[name]:
            yield invariant, ", ".join(facts[name])
    if facts["overdue_ms"] > STALE_MS:
        yield "deadlines are met", f"a call waits {facts['overdue_ms'] / 1000:.0f} s past its deadline", _TICK


def _jobs(facts: dict[str, Any]) -> Iterator[Broken]:
    """A job that ended has no open call; one that waits, waits for one."""
    for job, state, still_open in facts["jobs"] or ():
        if state in DONE and still_open:
            yield "a job that ended has no open call", f"{job} {state} with {still_open} open"
        if still_open < 0 or (state == "waiting" and still_open == 0):
            yield "a job waits for the calls it counts", f"{job} {state} with {still_open} open", f"turnyard jobs cancel {job}"


def _logs(facts: dict[str, Any]) -> Iterator[Broken]:
    """A log's length is its last number."""
    for store, last, length in facts["gaps"] or ():
        yield "log numbers have no gap", f"store {store} has {length} records and ends at {last}"
