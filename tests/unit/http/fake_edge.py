"""A store in memory that a door can be tested against: it accepts, remembers, and does what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from turnyard.errors import Overloaded, StoreUnavailable
from turnyard.records import ids, log
from turnyard.records.approvals import Approval, ApprovalKind, ApprovalPage, ApprovalState, Decided, approval_id
from turnyard.records.approvals import Decision as Verdict
from turnyard.records.jobs import Job
from turnyard.records.log import LogRecord
from turnyard.records.manifest import Manifest
from turnyard.records.messages import Accepted, UserMessage
from turnyard.state.call_facts import CallFacts
from turnyard.state.dead import DeadLetter, Decision
from turnyard.state.explain import Explanation
from turnyard.state.fleet import WorkerView
from turnyard.state.scale import Scale

NOW_MS = 1_790_000_000_000


@dataclass
class FakeEdge:
    """`down` makes every call fail, `answers` says what the next accept answers instead of accepting."""

    agents: dict[str, Manifest] = field(default_factory=lambda: {"hello": Manifest("hello", "abc123")})
    jobs: dict[str, Job] = field(default_factory=dict)
    messages: list[UserMessage] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    views: dict[str, SimpleNamespace] = field(default_factory=dict)
    logs: dict[tuple[str, int], list[LogRecord]] = field(default_factory=dict)
    items: dict[str, list[SimpleNamespace]] = field(default_factory=dict)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    notices: list[dict[str, Any]] = field(default_factory=list)
    controls: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[str, CallFacts] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    cascades: list[bool] = field(default_factory=list)
    approvals: dict[str, Approval] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    down: bool = False
    broken: Exception | None = None
    reads_down: bool = False
    channel: str = "ty:done:test"
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    forever: bool = True
    lagging_after: int | None = None

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self.down:
            raise StoreUnavailable

    async def ping(self) -> None:
        self._check()

    def shard_of(self, session_key: str) -> int:
        return 0

    async def manifest(self, agent: str) -> Manifest | None:
        self._check()
        return self.agents.get(agent)

    async def manifests(self) -> dict[str, Manifest]:
        self._check()
        return self.agents

    def _answer(self, code: str = "accepted", **known: Any) -> Accepted:
        self._check()
        return Accepted(self.answers.pop(0) if self.answers else code, **known)  # pyright: ignore[reportArgumentType]

    async def accept_message(self, m: UserMessage) -> Accepted:
        self._check()
        if self.answers:
            return self._answer(job=m.job)
        if m.job in self.jobs:
            same = self.hashes[m.job] == m.body_hash
            return Accepted("duplicate" if same else "mismatch", job=m.job, position=1)
        self.messages.append(m)
        self.hashes[m.job] = m.body_hash
        self.jobs[m.job] = Job(
            id=m.job,
            state="queued",
            tenant=m.tenant,
            session=m.session,
            session_key=ids.session_key(m.tenant, m.session),
            agent=m.agent,
            user=m.user,
            mode=m.mode,
            complete_when=m.complete_when,
            input=m.body,
            metadata=m.metadata,
            priority=m.priority,
            created_ms=NOW_MS,
        )
        self.session(m.session)
        return Accepted("accepted", job=m.job, session=m.session, position=1)

    async def accept_notice(self, **notice: Any) -> Accepted:
        self.notices.append(notice)
        return self._answer()

    async def accept_control(self, **control: Any) -> Accepted:
        self.controls.append(control)
        return self._answer()

    async def cancel_job(self, job: str, *, tenant: str, cascade: bool = False) -> Accepted:
        self.cascades.append(cascade)
        answer = self._answer("late" if self.jobs[job].done else "accepted")
        if answer.code == "accepted":
            self.jobs[job] = replace(self.jobs[job], cancel_requested=True)
        return answer

    async def accept_outcome(self, **outcome: Any) -> Accepted:
        self.outcomes.append(outcome)
        return self._answer()

    async def call_facts(self, *, shard: int, store: str, call: str) -> CallFacts | None:
        return self.calls.get(call)

    async def read_job(self, job: str, *, tenant: str) -> Job | None:
        self._check()
        if self.reads_down:
            raise StoreUnavailable
        found = self.jobs.get(job)
        return found if found is not None and found.tenant == tenant else None

    async def wait_job(self, job: str, *, tenant: str, timeout_s: float) -> Job:
        async with asyncio.timeout(timeout_s):
            while not self.jobs[job].done:
                await self.changed.wait()
                self.changed.clear()
        return self.jobs[job]

    async def read_session(self, session: str, *, tenant: str) -> Any:
        self._check()
        view = self.views.get(session)
        return view if view is not None and view.tenant == tenant else None

    async def list_sessions(self, *, tenant: str, limit: int, before: int | None) -> list[Any]:
        self._check()
        views = sorted((v for v in self.views.values() if v.tenant == tenant), key=lambda v: -v.updated_ms)
        return [v for v in views if before is None or v.updated_ms < before][:limit]

    async def explain(self, session: str, *, tenant: str) -> Any:
        self._check()
        return Explanation("idle", "nothing waits for it", "send a message") if session in self.views else None

    async def read_log(self, session_key: str, ordinal: int, *, after: int, limit: int) -> list[LogRecord]:
        self._check()
        return [r for r in self.logs.get((session_key, ordinal), []) if r.seq > after][:limit]

    async def feed(self, session_key: str, *, after: str | None, deltas: bool) -> AsyncGenerator[Any]:
        ordinal, _, rest = (after or "0.0-0").partition(".")
        start = (int(ordinal), *(int(n) for n in rest.split("-")))
        sent = given = 0
        while True:
            items = self.items.get(session_key, [])
            for item in items[sent:]:
                o, _, sk = item.id.partition(".")
                if (int(o), *(int(n) for n in sk.split("-"))) > start and (deltas or isinstance(item.record, LogRecord)):
                    yield item
                    given += 1
                    if given == self.lagging_after:
                        raise Overloaded
            sent = len(items)
            if not self.forever:
                return
            await self.changed.wait()
            self.changed.clear()

    async def pending_approvals(self, *, tenant: str, limit: int, after: str | None) -> ApprovalPage:
        self._check()
        mine = [a for a in self.approvals.values() if a.tenant == tenant and a.state == "pending" and a.id > (after or "")]
        return ApprovalPage(tuple(mine[:limit]), mine[limit - 1].id if len(mine) > limit else None)

    async def read_approval(self, approval: str, *, tenant: str) -> Approval | None:
        self._check()
        found = self.approvals.get(approval)
        return found if found is not None and found.tenant == tenant else None

    async def decide(self, approval: str, decision: Verdict, *, tenant: str) -> Decided:
        self._check()
        self.verdicts.append(decision)
        found = self.approvals[approval]
        states: dict[str, ApprovalState] = {"allow": "allowed", "deny": "denied", "answer": "answered"}
        if self.answers:
            return Decided(self.answers.pop(0), found)  # pyright: ignore[reportArgumentType]
        if found.state != "pending":
            same = self.verdicts.count(decision) > 1
            return Decided("expired" if found.state == "timeout" else "duplicate" if same else "conflict", found)
        decided = {"by": decision.by, "at": NOW_MS, "scope": decision.scope, "input": decision.input, "reason": decision.reason}
        found = replace(found, state=states[decision.decision], decided={**decided, "answer": decision.answer})
        self.approvals[approval] = found
        return Decided("accepted", found)

    async def dead_letters(self, *, tenant: str, limit: int, before: str | None) -> list[DeadLetter]:
        self._check()
        return [x for x in self.letters if x.tenant == tenant and (before is None or x.id < before)][:limit]

    async def retry_dead(self, letter: str, *, tenant: str) -> Decision:
        self._check()
        return self.decisions.get(letter, Decision("gone"))

    async def workers(self) -> list[Any]:
        self._check()
        return [WorkerView("w1", "worker", "host", 1, 2, ("default",), {"hello": 1}, 10, 0, 0.5)]

    async def scale(self, pool: str) -> Scale:
        self._check()
        return Scale(pool, 1, 0, 0.5, 1)

    async def aclose(self) -> None:
        pass

    # What a test does to it.

    def session(self, session: str, **facts: Any) -> SimpleNamespace:
        """Have a session exist."""
        known: dict[str, Any] = {
            "id": session,
            "tenant": "default",
            "state": "idle",
            "agent": "hello",
            "user": "",
            "platform": "http",
            "turn": "",
            "rev": 0,
            "store": "",
            "ordinal": 0,
            "entries": 0,
            "last_seq": 0,
            "inbox": 0,
            "paused": False,
            "holder": None,
            "parked": [],
            "usage": {},
            "created_ms": NOW_MS,
            "updated_ms": NOW_MS + len(self.views),
            "title": None,
            "metadata": {},
        }
        view = self.views.setdefault(session, SimpleNamespace(**known))
        vars(view).update(facts)
        return view

    def ask(self, call: str = "call_1", *, session: str = "s1", kind: ApprovalKind = "allow_deny", **facts: Any) -> Approval:
        """Have a call wait for people."""
        self.session(session)
        store = ids.store_key(ids.session_key("default", session), 0)
        known: dict[str, Any] = {
            "tenant": "default",
            "agent": "hello",
            "user": "u7",
            "turn": "turn_1",
            "tool": "refund",
            "args": {"order_id": "7", "amount": 120.0},
            "since_ms": NOW_MS,
            "expires_ms": NOW_MS + 900_000,
        }
        approval = Approval(id=approval_id(0, store, call), kind=kind, session=session, call=call, **(known | facts))
        self.approvals[approval.id] = approval
        return approval

    def write(self, session: str, type_: str, **facts: Any) -> LogRecord:
        """Append a record to a session's log and feed."""
        view = self.session(session)
        key = ids.session_key("default", session)
        view.last_seq += 1
        record = LogRecord(seq=view.last_seq, type=type_, **{"at_ms": NOW_MS, **facts})
        view.entries += record.is_entry
        self.logs.setdefault((key, view.ordinal), []).append(record)
        self.items.setdefault(key, []).append(SimpleNamespace(id=f"{view.ordinal}.{record.seq}-0", record=record))
        self.changed.set()
        return record

    def live(self, session: str, k: int, kind: str, text: str, *, turn: str = "turn_1", seq: int | None = None) -> None:
        """Write a delta after the last record, numbered behind entry `seq`."""
        view = self.session(session)
        behind = view.last_seq if seq is None else seq
        record = SimpleNamespace(seq=behind, k=k, turn=turn, step=1, kind=kind, index=0, text=text)
        item = SimpleNamespace(id=f"{view.ordinal}.{behind}-{k}", record=record)
        self.items.setdefault(ids.session_key("default", session), []).append(item)
        self.changed.set()

    def finish(self, job: str, *, state: str = "succeeded", text: str = "5", **facts: Any) -> None:
        """End a job."""
        output = {"text": text, "output": None} if state == "succeeded" else None
        self.jobs[job] = replace(self.jobs[job], state=state, output=output, started_ms=NOW_MS, finished_ms=NOW_MS, **facts)  # pyright: ignore[reportArgumentType]
        self.changed.set()

    def run_turn(self, session: str, job: str, *, turn: str = "turn_1", text: str = "5") -> None:
        """Write the records of a turn that answers one job, and end the job."""
        self.jobs[job] = replace(self.jobs[job], state="running", turn=turn)
        self.write(session, log.USER, turn=turn, jobs=(job,), step=1, body={"text": "hi"})
        self.write(session, log.ASSISTANT, turn=turn, step=1, body={"text": text, "model": "m", "usage": {"input_tokens": 3}})
        self.finish(job, text=text, turn=turn)
        self.write(session, log.TURN_END, turn=turn, jobs=(job,), outcome="finished")
