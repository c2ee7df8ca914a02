"""How a turn of an in-process session begins, moves on and ends.

`begin` and `commit` mean what they mean in the protocol: a commit happens whole, only on the revision it was made for,
and the claim is the only way by which what others wrote gets into the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from turnyard.engine.memory import CallRow, Item, MemorySession
from turnyard.errors import Diverged, FenceLost
from turnyard.records import ids
from turnyard.records.commit import (
    ASKED_TWICE,
    MOST_CALLS,
    PLACEHOLDER,
    TOO_MANY_CALLS,
    Answer,
    Clear,
    Commit,
    NewCall,
    Park,
    Part,
    Say,
    TurnView,
    Wait,
    encode_state,
)
from turnyard.records.log import ASSISTANT, CALL, CLEARED, NOTICE, RESULT, USER, LogRecord


def begin(s: MemorySession) -> TurnView | None:
    """Take the session when it is ready; None when there is nothing to do."""
    if s.state != "ready":
        return None
    s.state = "running"
    s.began_ms = s.clock.now_ms()
    s.epoch += 1
    if not s.turn:
        s.turn = ids.new_turn_id()
    if not s.cancel:
        claim(s)
    return _view(s, frozenset())


def again(s: MemorySession) -> TurnView:
    """Return what the running turn shows; calls that were started before count as interrupted."""
    return _view(s, frozenset())


def commit(s: MemorySession, view: TurnView, change: Commit) -> TurnView:
    """Make one transition; return what the turn shows then.

    Raises:
        FenceLost: the turn is another's by now, or nobody's.
        Diverged: the session moved on since `view`.
        StateTooLarge: the turn's state is over its limit; nothing is changed.
    """
    state = None if change.state is None else encode_state(change.state)
    if s.state != "running" or view.epoch != s.epoch:
        raise FenceLost(f"epoch {view.epoch} of the session is over; it is {s.state} in epoch {s.epoch}")
    if view.rev != s.rev:
        raise Diverged(f"the session is at revision {s.rev}, the commit is for the one after {view.rev}")
    if change.ending == "finish" and s.awaiting > 0 and not s.cancel and not (change.closing and change.failure):
        return replace(view, code="AWAITS")
    _check_calls(s, change)
    s.rev += 1
    for part in change.append:
        _append(s, part)
    _rows(s, change)
    if state is not None:
        s.turn_state = state
    for name, n in change.usage.items():
        s.usage[name] = s.usage.get(name, 0) + n
    mine = (view.mine - {a.call for a in change.append if isinstance(a, Answer)} - {a.call for a in change.settle}) | set(change.start)
    _end(s, change)
    return _view(s, frozenset(mine - set(change.unstart)))


def _check_calls(s: MemorySession, change: Commit) -> None:
    """Refuse a change that names a call which is not there, before anything of it is done."""
    made = {call.id for part in change.append if isinstance(part, Say) for call in part.calls}
    answered = {part.call for part in change.append if isinstance(part, Answer)}
    named = {*change.start, *change.unstart, *(p.call for p in change.park), *(a.call for a in change.settle)}
    missing = (answered - made - set(s.pending)) | (named - made - set(s.rows))
    if missing:
        raise Diverged(f"the session has no unanswered call {', '.join(sorted(missing))}")


def claim(s: MemorySession) -> int:
    """Write outcomes of awaited calls, then the inbox, into the log; return how many items that were.

    The inbox stays where it is while a declared call has no answer.
    """
    for call in list(s.pending):
        row = s.rows[call]
        if row.demoted and (row.state == "parked" or row.outcome is not None):
            _result(s, row, PLACEHOLDER, None)
        elif row.outcome is not None and (row.awaited or row.kind == "approval"):
            _result(s, row, row.outcome, row.body)
    if s.pending:
        return 0
    items, s.inbox = s.inbox, []
    for item in items:
        _claim_item(s, item)
    return len(items)


# -- entries ----------------------------------------------------------------------------------------------------------


def _claim_item(s: MemorySession, item: Item) -> None:
    if item.kind == "user":
        s.append(LogRecord(0, USER, jobs=(item.job,), body=item.body))
        s.jobs[item.job].state = "running"
        s.turn_jobs.append(item.job)
    elif item.kind == "notice":
        if item.until_ms is None or item.until_ms > s.clock.now_ms():
            s.append(LogRecord(0, NOTICE, group_key=item.group_key, until_ms=item.until_ms, body=item.body))
    else:
        _aside(s, item)


def _aside(s: MemorySession, item: Item) -> None:
    row = s.rows[item.call]
    s.append(LogRecord(0, RESULT, call=item.call, kind=row.kind, outcome=item.outcome, aside=True, late=item.late, body=item.body))
    if not item.late and item.outcome != "cancelled":
        s.settle_jobs(row)
    for job in row.jobs:
        if job not in s.turn_jobs and s.jobs[job].state in ("waiting", "running"):
            s.jobs[job].state = "running"
            s.turn_jobs.append(job)


def _append(s: MemorySession, part: Part) -> None:
    if isinstance(part, Clear):
        if part.unshown:
            s.inbox = [item for item in s.inbox if item.group_key != part.group_key]
        s.append(LogRecord(0, CLEARED, group_key=part.group_key))
    elif isinstance(part, Say):
        s.append(LogRecord(0, ASSISTANT, body=part.body))
        free = max(0, MOST_CALLS - len(s.waiting))
        for call in part.calls[:free]:
            _declare(s, call)
        _refuse(s, part.calls[free:])
    elif not isinstance(part, Answer):
        s.append(LogRecord(0, part.type, body=part.body))
    elif part.outcome == PLACEHOLDER:
        s.rows[part.call].correlation = (part.body or {}).get("correlation")
        _result(s, s.rows[part.call], PLACEHOLDER, part.body)
    else:
        row = s.rows[part.call]
        s.settle(row, part.outcome, part.body)
        _result(s, row, row.outcome or part.outcome, row.body)


def _declare(s: MemorySession, call: NewCall) -> None:
    s.append(LogRecord(0, CALL, call=call.id, kind=call.kind, body=call.body))
    jobs = tuple(s.turn_jobs)
    s.keep(CallRow(call.id, call.body["name"], call.kind, s.turn, jobs, call.awaited, call.idempotent, call.body["args"]))
    s.pending.append(call.id)
    for job in jobs:
        s.jobs[job].open += 1


def _refuse(s: MemorySession, calls: Sequence[NewCall]) -> None:
    for call in calls:
        s.append(LogRecord(0, CALL, call=call.id, kind=call.kind, body=call.body))
    for call in calls:
        s.append(LogRecord(0, RESULT, call=call.id, kind=call.kind, outcome="error", body=dict(TOO_MANY_CALLS)))


def _result(s: MemorySession, row: CallRow, outcome: str, body: dict[str, object] | None) -> None:
    s.append(LogRecord(0, RESULT, call=row.call, kind=row.kind, outcome=outcome, body=body or {}))
    s.pending.remove(row.call)
    row.answered = True
    if outcome != PLACEHOLDER:
        s.settle_jobs(row)


# -- rows and endings -------------------------------------------------------------------------------------------------


def _rows(s: MemorySession, change: Commit) -> None:
    for park in change.park:
        row = s.rows.get(park.call)
        if row is not None and row.outcome is None and row.state in ("open", "started", "allowed"):
            _park_row(s, row, park)
    if s.cancel and change.park:
        s.cancel_calls(answered=True)
    for answer in change.settle:
        s.settle(s.rows[answer.call], answer.outcome, answer.body)
    if not s.cancel:
        _start(s, change)
    for call in change.unstart:
        row = s.rows[call]
        if row.state == "started" and row.outcome is None:
            row.state = "allowed" if row.decision == "allow" else "open"


def _park_row(s: MemorySession, row: CallRow, park: Park) -> None:
    """Let a call wait, as what it is from now on. People decide about a call once; who asks again gets an error."""
    kind = park.kind or ("plain" if park.task and row.kind == "approval" else row.kind)
    if kind == "approval" and row.decision == "allow":
        s.settle(row, "error", dict(ASKED_TWICE))
        return
    row.kind, row.state, row.request, row.ripe, row.task = kind, "parked", park.request, park.ripe, park.task
    row.look_ms = None if park.after_ms is None else s.clock.now_ms() + park.after_ms
    row.deadline_ms = s.clock.now_ms() + park.deadline_ms
    row.awaited = row.awaited or park.awaited
    row.demoted = row.demoted or (park.task is not None and not park.awaited)


def _start(s: MemorySession, change: Commit) -> None:
    for wait in change.wait:
        _wait(s, wait)
    for row in (s.rows[call] for call in change.start if call in s.rows):
        row.state = "started"


def _wait(s: MemorySession, wait: Wait) -> None:
    if wait.id not in s.rows:
        due_ms = s.clock.now_ms() + wait.delay_ms
        s.keep(CallRow(wait.id, "", wait.kind, s.turn, (), awaited=True, idempotent=False, args={}, state="parked", deadline_ms=due_ms))


def _end(s: MemorySession, change: Commit) -> None:
    if change.ending == "finish":
        _finish(s, change)
    elif change.ending == "park":
        _park(s)
    elif change.ending == "yield":
        _rest(s)
        s.state = "ready"
    elif change.claim and not s.cancel:
        claim(s)


def _park(s: MemorySession) -> None:
    if any(i.kind == "user" for i in s.inbox):
        s.overtake()
    if s.cancel:
        return
    if s.awaiting == 0:
        claim(s)
    else:
        _rest(s)
        s.state = "parked"


def _rest(s: MemorySession) -> None:
    s.ran_ms += s.clock.now_ms() - s.began_ms


def _finish(s: MemorySession, change: Commit) -> None:
    cancelled = s.cancel
    if change.closing:
        _close_calls(s)
    _end_jobs(s, change, cancelled)
    s.turn, s.cancel, s.turn_jobs, s.turn_state = "", None, [], b""
    s.began_ms, s.ran_ms = s.clock.now_ms(), 0
    if s.wakes and not cancelled:
        s.turn = ids.new_turn_id()
        claim(s)
        return
    s.state = "idle"
    s.wake()


def _close_calls(s: MemorySession) -> None:
    for call in list(s.pending):
        row = s.rows[call]
        if row.row().detached and row.outcome not in (None, "cancelled"):
            _result(s, row, PLACEHOLDER, None)
        else:
            s.settle(row, "cancelled", None)
            _result(s, row, row.outcome or "cancelled", row.body)


def _end_jobs(s: MemorySession, change: Commit, cancelled: str | None) -> None:
    said = next((r.body for r in reversed(s.log) if r.type == ASSISTANT and r.turn == s.turn), dict[str, object]())
    for job in (s.jobs[j] for j in s.turn_jobs):
        if job.open > 0 and not cancelled and not change.failure:
            job.state = "waiting"
        elif cancelled:
            job.state, job.cause = "cancelled", cancelled
        else:
            job.state, job.error = ("failed", change.failure) if change.failure else ("succeeded", None)
            job.text = str(said.get("text", ""))
            job.output = said.get("output", job.text)


def _view(s: MemorySession, mine: frozenset[str]) -> TurnView:
    running = s.state == "running"
    rows = tuple(s.rows[c].row() for c in s.pending) if running else ()
    return TurnView(
        code="OK",
        session="local",
        store=s.store,
        turn=s.turn,
        epoch=s.epoch,
        rev=s.rev,
        entries=s.entries,
        rows=rows,
        mine=frozenset(r.call for r in rows if r.call in mine and r.state == "started"),
        cancel=s.cancel,
        jobs=tuple(s.turn_jobs),
        head=s.head,
        ended=not running,
        last_seq=s.log[-1].seq if s.log else 0,
        now_ms=s.clock.now_ms(),
        state=orjson.loads(s.turn_state) if running and s.turn_state else {},
        active_ms=s.ran_ms + s.clock.now_ms() - s.began_ms if running else 0,
    )
