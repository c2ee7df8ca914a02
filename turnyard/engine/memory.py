"""One session in this process: its inbox, its log, its call rows and its jobs.

It keeps the same promises as a session in Redis, one script being one method: a message becomes exactly one entry,
the first outcome of a call stands, what belongs to a call that was answered before comes as an aside, and a message
never lands between a call and its result. Nothing outlives the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from turnyard.ports import Clock, Settled
from turnyard.records import ids
from turnyard.records.commit import ASK_OUTCOMES, MOST_GRANTS, CallKind, Row, RowState
from turnyard.records.jobs import JobState
from turnyard.records.log import CLEARED, DECIDED, NOTICE, LogRecord, unfolds, visible
from turnyard.records.notices import Notice, group_key

State = Literal["idle", "ready", "running", "parked"]


def _said(body: dict[str, Any] | None) -> dict[str, Any]:
    """Return a decision without what was added as it was taken."""
    return {name: value for name, value in (body or {}).items() if name not in ("by", "at")}


@dataclass(slots=True)
class Item:
    """Something that waits in the inbox. One that does not wake joins a turn but starts none."""

    kind: Literal["user", "notice", "note"]
    wake: bool
    body: dict[str, Any]
    job: str = ""
    group_key: str = ""
    call: str = ""
    outcome: str = ""
    late: bool = False
    until_ms: int | None = None


@dataclass(slots=True)
class CallRow:
    """One call and what is known of its fate."""

    call: str
    name: str
    kind: CallKind
    turn: str
    jobs: tuple[str, ...]
    awaited: bool
    idempotent: bool
    args: dict[str, Any]
    state: RowState = "open"
    outcome: str | None = None
    body: dict[str, Any] | None = None
    late: dict[str, Any] | None = None
    demoted: bool = False
    decision: str | None = None
    decided: dict[str, Any] | None = None
    request: dict[str, Any] | None = None
    ripe: dict[str, Any] | None = None
    task: str | None = None
    look_ms: int | None = None
    raw: list[str] = field(default_factory=list[str])
    answered: bool = False
    deadline_ms: int | None = None
    correlation: str | None = None

    @property
    def only_wakes(self) -> bool:
        """Tell whether this is no call but a delay that holds the turn."""
        return self.kind in ("retry", "timer")

    @property
    def asks(self) -> bool:
        """Tell whether people are asked: whether the call may run, or a question. One that was decided asks no more."""
        return self.kind == "question" or (self.kind == "approval" and self.decision is None)

    @property
    def waiting(self) -> bool:
        """Tell whether the call is parked without an outcome."""
        return self.state == "parked" and self.outcome is None

    def row(self) -> Row:
        """Return what the engine sees of it."""
        return Row(
            self.call,
            self.kind,
            self.state,
            self.awaited,
            self.outcome,
            demoted=self.demoted,
            idempotent=self.idempotent,
            decision=self.decision,
            decided=self.decided,
        )


@dataclass(slots=True)
class MemoryJob:
    """One accepted message and how its answer stands."""

    id: str
    state: JobState = "queued"
    open: int = 0
    text: str = ""
    output: Any = None
    error: dict[str, Any] | None = None
    cause: str | None = None


@dataclass(slots=True)
class MemorySession:
    """The state of one session. `accept`, `notice`, `outcome` and their like are what the outside may do to it."""

    clock: Clock
    head: dict[str, str]
    state: State = "idle"
    store: str = "local.0"
    turn: str = ""
    epoch: int = 0
    rev: int = 0
    cancel: str | None = None
    turn_state: bytes = b""
    began_ms: int = 0
    ran_ms: int = 0
    log: list[LogRecord] = field(default_factory=list[LogRecord])
    inbox: list[Item] = field(default_factory=list[Item])
    rows: dict[str, CallRow] = field(default_factory=dict[str, CallRow])
    pending: list[str] = field(default_factory=list[str])
    jobs: dict[str, MemoryJob] = field(default_factory=dict[str, MemoryJob])
    turn_jobs: list[str] = field(default_factory=list[str])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    _shown: tuple[LogRecord, ...] = ()
    _read: int = 0
    _unsettled: dict[str, CallRow] = field(default_factory=dict[str, CallRow])

    # -- what arrives -------------------------------------------------------------------------------------------------

    def accept(self, body: dict[str, Any]) -> str:
        """Take in a user's message, which wakes the session; return the id of its job.

        What people are asked is superseded by it, another awaited call becomes detached, so that the message is answered.
        """
        job = MemoryJob(ids.new_job_id(0))
        self.jobs[job.id] = job
        self.inbox.append(Item("user", wake=True, body=body, job=job.id))
        if self.state == "parked":
            self.overtake()
        self.wake()
        return job.id

    def again(self) -> str:
        """Open a turn in which nothing is new, for the model to be asked once more; return the id of its job."""
        job = MemoryJob(ids.new_job_id(0), "running")
        self.jobs[job.id] = job
        self.turn_jobs.append(job.id)
        self.state = "ready"
        return job.id

    def inject(self, body: dict[str, Any], *, wake: bool = False) -> None:
        """Add context that the next model call sees; by itself it starts nothing unless `wake`."""
        if self.turn or self.inbox or wake:
            self.inbox.append(Item("notice", wake=wake, body=body))
            self.wake()
        else:
            self.append(LogRecord(0, NOTICE, body=body))

    def notice(self, body: dict[str, Any], *, group: str, key: str, supersede: bool = True, ttl_ms: int | None = None) -> None:
        """Leave a notice; with `supersede` an unshown one of the same group and key is replaced, a shown one stays."""
        pair = group_key(group, key)
        until_ms = None if ttl_ms is None else self.clock.now_ms() + ttl_ms
        waiting = [i for i in self.inbox if i.group_key == pair] if supersede else []
        if waiting:
            waiting[0].body, waiting[0].until_ms = body, until_ms
            self.inbox = [i for i in self.inbox if i is waiting[0] or i.group_key != pair]
        else:
            self.inbox.append(Item("notice", wake=False, body=body, group_key=pair, until_ms=until_ms))

    def clear(self, *, group: str, key: str) -> None:
        """Remove the notices of a group and key, shown or not."""
        pair = group_key(group, key)
        self.inbox = [i for i in self.inbox if i.group_key != pair]
        self.append(LogRecord(0, CLEARED, group_key=pair))

    def unshown(self) -> list[Notice]:
        """Return the notices that wait to be shown, oldest first."""
        paired = ((i, *i.group_key.partition("\n")) for i in self.inbox if i.kind == "notice" and i.group_key)
        return [Notice(group, key, item.body, until_ms=item.until_ms) for item, group, _, key in paired]

    def outcome(self, call: str, outcome: str, body: dict[str, Any] | None) -> Settled:
        """Give a call its outcome. The first one stands; one that was given up takes one late result more."""
        row = self.rows.get(call)
        if row is None or row.only_wakes:
            return "gone"
        if row.kind == "approval" and row.decision is None:
            return "conflict"
        if row.outcome in ("timeout", "unknown") and row.late is None:
            row.late = body or {}
            self.inbox.append(Item("note", wake=True, body=row.late, call=call, outcome=outcome, late=True))
        elif row.outcome is not None:
            first = row.body if row.late is None else row.late
            return "duplicate" if first == body else "conflict"
        else:
            self.settle(row, outcome, body)
            if not row.awaited:
                self.inbox.append(Item("note", wake=True, body=body or {}, call=call, outcome=outcome))
        self.wake()
        return "accepted"

    def decide(self, call: str, *, allow: bool, body: dict[str, Any] | None = None, by: str = "", grant: str = "") -> Settled:
        """Let a call that waits for approval run, or deny it; the first decision stands.

        `body` is what was decided: who runs the call gets it, that of a denial is the result. `grant` is what the session may do
        from now on without being asked.
        """
        row, decision = self.rows.get(call), "allow" if allow else "deny"
        if row is not None and row.decision is not None:
            first = row.decided if row.decision == "allow" else row.body
            return "duplicate" if row.decision == decision and _said(first) == _said(body) else "conflict"
        if row is not None and (row.outcome is not None or not (row.kind == "approval" or (row.kind == "question" and not allow))):
            return "conflict"
        if row is None or row.state != "parked":
            return "gone"
        if allow:
            self._resolved(row, "allow", by)
            row.state, row.awaited, row.deadline_ms = "allowed", False, None
            row.decided = {**(body or {}), "by": by, "at": self.clock.now_ms()}
            self._grant(grant)
        else:
            self.settle(row, "denied", body, by=by)
        row.decision = decision
        self.wake()
        return "accepted"

    def _grant(self, grant: str) -> None:
        if grant:
            kept = [other for other in self.head.get("grants", "").split("\n") if other not in ("", grant)]
            self.head = {**self.head, "grants": "\n".join([*kept, grant][-MOST_GRANTS:])}

    def request_cancel(self, cause: str = "user") -> bool:
        """Ask the open turn to end; False when there is none. Its parked calls are cancelled at once."""
        if not self.turn:
            return False
        self.cancel = cause
        self.cancel_calls()
        if self.state == "parked":
            self.state = "ready"
        return True

    def expire(self) -> list[str]:
        """Give up the calls whose time is over, and return them; end the delays that are over, which wakes their turn.

        One that only waited for its time has its result then.
        """
        due = [r for r in self.waiting if r.deadline_ms is not None and r.deadline_ms <= self.clock.now_ms()]
        for row in due:
            outcome = "timeout" if row.ripe is None else "result"
            self.settle(row, outcome, row.ripe)
            if not row.awaited:
                self.inbox.append(Item("note", wake=True, body=row.ripe or {}, call=row.call, outcome=outcome))
        self.wake()
        return [row.call for row in due if not row.only_wakes]

    def forget(self) -> None:
        """Begin anew, with another store, as if nothing had ever been said."""
        name, _, number = self.store.rpartition(".")
        head = {name: value for name, value in self.head.items() if name != "grants"}
        fresh = MemorySession(self.clock, head, store=f"{name}.{int(number) + 1}")
        for one in fields(self):
            setattr(self, one.name, getattr(fresh, one.name))

    # -- what the transitions share -----------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[LogRecord, ...]:
        """What of the log a model may see. Only what is new since the last time is looked at."""
        new = self.log[self._read :]
        if new:
            self._shown = visible((), self.log) if unfolds(self._shown, new) else visible(self._shown, new)
            self._read = len(self.log)
        return self._shown

    @property
    def last_seq(self) -> int:
        """How long the log is."""
        return self.log[-1].seq if self.log else 0

    def keep(self, row: CallRow) -> None:
        """Take in a new call, or a delay."""
        self.rows[row.call] = self._unsettled[row.call] = row

    @property
    def waiting(self) -> list[CallRow]:
        """The calls and delays that are parked without an outcome, oldest first, however many there ever were."""
        self._unsettled = {call: row for call, row in self._unsettled.items() if row.outcome is None}
        return [row for row in self._unsettled.values() if row.waiting]

    @property
    def awaiting(self) -> int:
        """How many parked calls hold the turn."""
        return sum(1 for r in self.waiting if r.awaited)

    @property
    def wakes(self) -> bool:
        """Tell whether something in the inbox starts a turn."""
        return any(i.wake for i in self.inbox)

    def wake(self) -> None:
        """Become ready when there is something to do and nothing to wait for."""
        if (self.state == "idle" and self.wakes) or (self.state == "parked" and self.awaiting == 0):
            self.state = "ready"

    def settle(self, row: CallRow, outcome: str, body: dict[str, Any] | None, *, by: str = "") -> bool:
        """Give a row its outcome unless it has one; `by` is told to who follows what people are asked."""
        if row.outcome is not None:
            return False
        if row.asks and row.state == "parked":
            self._resolved(row, ASK_OUTCOMES.get(outcome, outcome), by)
        row.outcome, row.body = outcome, body
        if row.only_wakes:
            del self.rows[row.call]
        return True

    def _resolved(self, row: CallRow, outcome: str, by: str) -> None:
        self.append(LogRecord(0, DECIDED, call=row.call, kind=row.kind, outcome=outcome, extra={"by": by}))

    def settle_jobs(self, row: CallRow) -> None:
        """Count one call less as open for the jobs that it was made for."""
        for job in (self.jobs[j] for j in row.jobs):
            job.open -= 1

    def cancel_calls(self, *, answered: bool = False) -> None:
        """Give the parked calls of the cancelled turn up; with `answered` those alone that a placeholder answered."""
        for row in [r for r in self.waiting if r.turn == self.turn and (r.answered or not answered)]:
            self.settle(row, "cancelled", None)
            if row.answered and not row.only_wakes:
                self.inbox.append(Item("note", wake=False, body={}, call=row.call, outcome="cancelled"))
                self.settle_jobs(row)
                self._cancel_waiting(row, self.cancel or "user")

    def _cancel_waiting(self, row: CallRow, cause: str) -> None:
        for job in (self.jobs[j] for j in row.jobs):
            if job.state == "waiting" and job.open == 0:
                job.state, job.cause = "cancelled", cause

    def overtake(self) -> None:
        """Let a user who writes again go first."""
        for row in self.waiting:
            if row.awaited and not row.only_wakes:
                if row.asks:
                    self.settle(row, "superseded", None)
                else:
                    row.awaited, row.demoted = False, True

    def append(self, record: LogRecord) -> LogRecord:
        """Write one record at the end of the log."""
        seq = self.log[-1].seq + 1 if self.log else 1
        now_ms = self.clock.now_ms()
        stored = replace(record, seq=seq, epoch=self.epoch, turn=self.turn, step=self.rev, at_ms=now_ms)
        self.log.append(stored)
        return stored

    def parked(self) -> Sequence[CallRow]:
        """Return the calls that wait outside, oldest first."""
        return [r for r in self.waiting if not r.only_wakes]

    @property
    def next_due_ms(self) -> int | None:
        """When time alone brings something to do: a delay is over, a call is ripe, or to be looked at, or out of time; None: never."""
        timed = [r for r in self.waiting if r.only_wakes or (r.awaited and r.ripe is not None) or r.look_ms or r.task]
        return min((ms for r in timed for ms in (r.deadline_ms, r.look_ms) if ms is not None), default=None)
