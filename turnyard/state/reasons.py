"""Why a session stands where it stands: one code for each way of standing still, and what would change it.

`FIXES` is the list of codes; docs/operations.md explains each, and a test builds each. A code is a promise to people and
scripts: it may be added to, never reused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnyard.state.standing import Standing

FIXES: dict[str, str] = {
    # nothing to do
    "idle": "send a message",
    "paused": "resume the session",
    # it runs
    "running": "wait, or cancel the turn",
    "over_quantum": "wait: its slot is free after the step that runs; lift a tool that takes this long (@tool(lift=True))",
    "cancelling": "wait: its worker stops what it does and closes the turn",
    "cancel_overdue": "see that a dispatcher ticks: its next tick gives the turn to another worker, which closes it",
    "poisoned": "wait: the next worker only closes the turn; see its dead letter for what ended the workers before",
    "ghost_owner": "see that a dispatcher ticks: its next tick gives the turn to another worker",
    "amnesty": "wait: after a gap in ticking nobody is declared dead until one lease has passed",
    "store_full": "give the Redis server more memory (maxmemory), or delete old sessions; nothing stored is lost",
    # it was handed out
    "assigned": "wait: a worker of its list takes it within moments",
    "assignment_overdue": "see that a dispatcher ticks, which hands it to another worker; the one that took it may be frozen",
    # it could run
    "no_dispatcher": "start a dispatcher: turnyard dispatcher",
    "queued": "wait: it is admitted in its turn",
    "no_worker_for_pool": "start a worker: turnyard worker MOD:APP --pool {pool}",
    "no_worker_for_agent": "start a worker that has it: turnyard worker MOD:APP --pool {pool}",
    "only_older_version": "start a worker with the version of agent {agent} that the turn runs on, or a newer one; or cancel the turn",
    "schema_newer": "start workers of the newest Turnyard; the old ones leave this session alone",
    "no_capacity": "wait, or raise limits.max_concurrent_turns",
    "tenant_cap": "wait, or raise tenants.{tenant}.max_concurrent_turns",
    "agent_cap": "wait, or raise the limit of agent {agent}",
    "pool_cap": "wait, or raise pools.{pool}.max_concurrent_turns",
    "workers_busy": "wait, or add workers to pool {pool}",
    "isolated": "wait: a worker of pool {pool} starts a child for turns that may have killed theirs; see the worker's log",
    # it waits for something outside
    "parked": "answer the call, cancel the turn, or wait for its deadline",
    "approval": "turnyard approvals allow {approval}, or deny; cancel the turn, or wait for its deadline",
    "question": "turnyard approvals answer {approval} ANSWER; cancel the turn, or wait for its deadline",
    "lifted_queued": "start workers for lifted tasks of its queue: turnyard lifted MOD:APP; or cancel the turn",
    "lifted_running": "wait for the task, or cancel the turn",
    "child": "look at the child session: turnyard explain; or cancel the turn",
    "retry_delay": "wait: the model is asked again then; or cancel the turn",
    "timer": "wait, or cancel the turn",
    "debounce": "wait, or send with mode steer",
    "delayed": "wait, or cancel the job",
    # it waits for its dispatcher
    "ingress_backlog": "wait; when it lasts, the server's one core is busy: see docs/performance.md",
    "not_woken": "run turnyard doctor: nothing holds it back, so this should not be; a message to it wakes it",
    # beside
    "behind_turn": "wait for the turn that runs, or send with mode steer to join it",
    "delivery_held": "wait: a sender has the reply, or tries again then",
    "delivery_overdue": "start the platform that sends it: turnyard platform NAME",
    "dead_letter": "turnyard dead list --session {session}: see the reason, then retry or drop it",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One answer. `code` is a stable word, `detail` says it for this session, `fix` what would change it.

    `holder` is who or what it waits for, always with a `kind`; `age_ms` how long it has been so, None when that is not
    known; `facts` what else is known; `also` what else is to be said of the session.
    """

    code: str
    detail: str
    fix: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    holder: dict[str, Any] | None = None
    age_ms: int | None = None
    also: tuple[Explanation, ...] = ()


def because(s: Standing, code: str, detail: str, *, holder: str | dict[str, Any], since_ms: int | None, **facts: Any) -> Explanation:
    """Return an explanation with the fix of its code. `holder` is a kind, or all that is known of it."""
    names = {"pool": s.word("po"), "agent": s.word("ag"), "tenant": s.word("tn"), "session": s.session, "approval": facts.get("approval")}
    fix = FIXES[code].format_map(names)
    who = {"kind": holder} if isinstance(holder, str) else holder
    return Explanation(code, detail, fix, facts, who, s.age(since_ms))


_MINUTES_FROM_MS = 10 * 60_000
_HOURS_FROM_MS = 3 * 3_600_000


def seconds(ms: int | None) -> str:
    """Return a length of time for people."""
    if ms is None:
        return "an unknown time"
    if ms < _MINUTES_FROM_MS:
        return f"{ms / 1000:.1f} s"
    return f"{ms / 60_000:.0f} min" if ms < _HOURS_FROM_MS else f"{ms / 3_600_000:.1f} h"


def until(s: Standing, at_ms: int | None) -> str:
    """Return how long it is until then, for people."""
    return "for ever" if at_ms is None else f"{seconds(max(0, at_ms - s.now_ms))} more"
