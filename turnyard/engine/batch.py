"""What to do about the unanswered calls of the last answer, one commit at a time.

Calls start in source order; neighbours that only wait outside are parked together. A call that runs here never starts
while an awaited call before it is open, so at most one call of a turn is STARTED unless the batch is parallel. A call
found STARTED whose mark this worker did not make was interrupted: an idempotent one runs again with the same key, one
whose token may be out waits for its deadline, any other ends as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnyard.engine.effects import DAY_MS, Effect, NoEffect, Parked, RunBatch, RunTool, ToolFact, ToolResult, ToolTable
from turnyard.records import ids
from turnyard.records.commit import PLACEHOLDER, Answer, CallKind, Commit, Park, Row, TurnView
from turnyard.records.log import ASSISTANT, CALL, LogRecord

ARQ_LANE = "arq"
_UNASKED = ToolFact()
_MOST_NAMED = 50


@dataclass(frozen=True, slots=True)
class OpenCall:
    """An unanswered call: its row, and what its record says. One of a group was declared to run beside others, whatever became of it."""

    row: Row
    name: str
    args: dict[str, Any]
    refusal: str | None
    expires_in_ms: int | None = None
    grouped: bool = False

    @property
    def id(self) -> str:
        """Return the call's id."""
        return self.row.call

    @property
    def live(self) -> bool:
        """Tell whether it is this worker's turn to do something about the call."""
        return self.row.state != "parked" and (self.row.outcome is None or self.row.detached)

    @property
    def held(self) -> bool:
        """Tell whether the call waits outside, or its outcome waits to be claimed: nothing after it may start."""
        return not self.live and (self.row.state == "parked" or not self.grouped)


@dataclass(frozen=True, slots=True)
class Batch:
    """The unanswered calls in source order, within one view of one turn."""

    view: TurnView
    facts: ToolTable
    calls: tuple[OpenCall, ...]

    def __getitem__(self, call: str) -> OpenCall:
        return next(c for c in self.calls if c.id == call)

    def mine(self, call: OpenCall) -> bool:
        """Tell whether this worker marked the call STARTED and owes its result."""
        return call.id in self.view.mine

    def runs(self, call: OpenCall) -> bool:
        """Tell whether the call, as it stands, is run by this worker rather than waited for."""
        row = call.row
        if row.kind == "approval":
            return row.state in ("allowed", "started")
        if row.kind == "callback":
            return row.outcome is None and not row.demoted and (row.state == "open" or self.mine(call))
        return row.kind in ("plain", "parallel")

    def refusal(self, call: OpenCall) -> str | None:
        """Return why the call is answered with an error instead of being run, None when it may run.

        One that this worker runs may be of a tool that is gone by now: its result is what came of it.
        """
        if call.refusal is not None or self.mine(call):
            return call.refusal
        return None if self.facts.fact(call.name) is not None else unknown_tool(call.name, self.facts)


def open_batch(view: TurnView, facts: ToolTable) -> Batch:
    """Return the unanswered calls of the last answer with their names and arguments."""
    if not view.rows:
        return Batch(view, facts, ())
    said: dict[str, LogRecord] = {}
    for entry in reversed(view.entries):
        if entry.type == ASSISTANT:
            break
        if entry.type == CALL and entry.call:
            said[entry.call] = entry
    return Batch(view, facts, tuple(_open_call(row, said.get(row.call)) for row in view.rows))


def _open_call(row: Row, record: LogRecord | None) -> OpenCall:
    body: dict[str, Any] = {} if record is None else record.body
    grouped = "parallel" in (row.kind, None if record is None else record.kind)
    return OpenCall(row, str(body.get("name", "")), body.get("args") or {}, body.get("refused"), body.get("expires_in_ms"), grouped)


def unknown_tool(name: str, facts: ToolTable) -> str:
    """Return what a model is told that called a tool nobody has."""
    known = sorted(facts.tools)
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return f"{facts.absence(name)}; not executed. Tools: {', '.join(known[:_MOST_NAMED]) or 'none'}{more}"


def batch_effect(batch: Batch) -> Effect:
    """Return what is due for a batch that has unanswered calls."""
    live = [c for c in batch.calls if c.live]
    if not live:
        return NoEffect(_all_settled(batch))
    first = live[0]
    beside = _group(batch, first) if first.grouped else ()
    before = [c for c in batch.calls[: batch.calls.index(first)] if c not in beside]
    if batch.runs(first) and any(c.held for c in before):
        return NoEffect(Commit(ending="park"))
    if first.row.kind == "parallel":
        return _parallel_effect(batch, first)
    if not batch.runs(first):
        return NoEffect(_launch(batch, live))
    return _run_effect(batch, first)


def _run_effect(batch: Batch, call: OpenCall) -> Effect:
    """Return what is due for a call that runs alone."""
    refusal = batch.refusal(call)
    if refusal is not None:
        return NoEffect(answer_commit(batch, call, _error(call, refusal)))
    if batch.mine(call) or (call.row.state == "started" and call.row.idempotent):
        return run_of(batch.view, call)
    if call.row.state == "started":
        return NoEffect(answer_commit(batch, call, Answer(call.id, "unknown")))
    return NoEffect(Commit(start=(call.id,)))


def run_of(view: TurnView, call: OpenCall) -> RunTool:
    """Return the effect that runs one call."""
    head = view.head
    key = ids.idempotency_key(head.get("tenant", ""), head.get("session", view.session), view.turn, call.id)
    return RunTool(call.row, call.name, call.args, key)


# -- commits of a sequential batch ------------------------------------------------------------------------------------


def answer_commit(batch: Batch, call: OpenCall, answer: Answer, usage: dict[str, int] | None = None) -> Commit:
    """Return the commit that answers one call and marks or parks what comes next."""
    start, ending, claim = _next(batch, answered={call.id}, waiting=set())
    return Commit(append=(answer,), start=start, ending=ending, claim=claim, usage=usage or {})


def result_commit(batch: Batch, call: OpenCall, result: ToolResult | Parked) -> Commit:
    """Return the commit after a call was run."""
    usage = {"tool_calls": 1}
    if isinstance(result, ToolResult):
        usage = {"tool_calls": result.times} if result.times else {}
        commit = _settle if call.grouped else answer_commit
        return commit(batch, call, _answer(call, result), usage)
    park = _park(batch, call, result)
    awaited = (call.row.awaited or result.awaited) and not call.row.demoted
    answer = None if awaited else _placeholder(call, result)
    if call.grouped:
        return replace(_settle(batch, call, answer, usage), park=(park,))
    if answer is None:
        start, ending, claim = _next(batch, answered=set(), waiting={call.id})
        return Commit(park=(park,), start=start, ending=ending, claim=claim, usage=usage)
    start, ending, claim = _next(batch, answered={call.id}, waiting=set())
    return Commit(append=(answer,), park=(park,), start=start, ending=ending, claim=claim, usage=usage)


def _launch(batch: Batch, live: Sequence[OpenCall]) -> Commit:
    """Park the leading calls that only wait outside; a detached one is answered by a placeholder at once."""
    append: list[Answer] = []
    parks: list[Park] = []
    waiting: set[str] = set()
    lifts = False
    for call in live:
        if batch.runs(call):
            break
        if call.row.outcome is None:
            parks.append(_park(batch, call, None))
            lifts = lifts or call.row.kind == "lift"
        if call.row.detached:
            append.append(_placeholder(call, None))
        else:
            waiting.add(call.id)
    start, ending, claim = _next(batch, answered={a.call for a in append}, waiting=waiting)
    lanes = (ARQ_LANE,) if lifts else ()
    return Commit(append=tuple(append), park=tuple(parks), start=start, ending=ending, claim=claim, lanes=lanes)


def _next(batch: Batch, *, answered: set[str], waiting: set[str]) -> tuple[tuple[str, ...], Any, bool]:
    """Return (calls to mark, ending, claim) of a commit that answers and parks these calls."""
    left = [c for c in batch.calls if c.id not in answered]
    rest = [c for c in left if c.live and c.id not in waiting]
    if not rest:
        return ((), "park", False) if left else ((), "none", True)
    following = rest[0]
    if not batch.runs(following):
        return (), "none", False
    if waiting or any(c.held for c in left):
        return (), "park", False
    return first_marks(batch, rest), "none", False


def first_marks(batch: Batch, rest: Sequence[OpenCall]) -> tuple[str, ...]:
    """Return the calls that may be marked STARTED together with the commit before them."""
    first = rest[0]
    if first.row.state != "open" or batch.refusal(first) is not None:
        return ()
    if first.row.kind != "parallel":
        return (first.id,)
    marks: list[str] = []
    for call in rest[: batch.facts.parallel]:
        if call.row.kind != "parallel" or batch.refusal(call) is not None:
            break
        marks.append(call.id)
    return tuple(marks)


# -- parallel batches -------------------------------------------------------------------------------------------------


def _group(batch: Batch, first: OpenCall) -> Sequence[OpenCall]:
    """Return the neighbours that were declared to run beside each other, of which `first` is one."""
    at = batch.calls.index(first)
    low, high = at, at
    while low > 0 and batch.calls[low - 1].grouped:
        low -= 1
    while high < len(batch.calls) and batch.calls[high].grouped:
        high += 1
    return batch.calls[low:high]


def _owed(group: Sequence[OpenCall]) -> list[OpenCall]:
    """Return the calls of a group that have to be brought to an end here; one that waits outside is waited for after the others."""
    return [c for c in group if c.row.outcome is None and c.row.state != "parked"]


def _parallel_effect(batch: Batch, first: OpenCall) -> Effect:
    left = _owed(_group(batch, first))
    for call in left:
        refusal = batch.refusal(call)
        if refusal is not None:
            return NoEffect(_settle(batch, call, _error(call, refusal)))
        if call.row.state == "started" and not batch.mine(call) and not call.row.idempotent:
            return NoEffect(_settle(batch, call, Answer(call.id, "unknown")))
    running = [c for c in left if c.row.state == "started"]
    free = batch.facts.parallel - len(running)
    fresh = [c.id for c in left if c.row.state == "open"]
    if fresh and free > 0:
        return NoEffect(Commit(start=tuple(fresh[:free])))
    return RunBatch(tuple(run_of(batch.view, c) for c in running))


def _all_settled(batch: Batch) -> Commit:
    """Return what is due when every call has its outcome or waits: a settled group is written, else the turn parks."""
    settled = [c for c in batch.calls if c.grouped and c.row.state != "parked"]
    if not settled:
        return Commit(ending="park")
    return _append_group(batch, _group(batch, settled[0]), None)


def _settle(batch: Batch, call: OpenCall, answer: Answer | None, usage: dict[str, int] | None = None) -> Commit:
    """Put one result into its row; the last one of the group appends them all, in source order.

    A placeholder is written at once: the row waits for the result that comes later. None: the call is parked and awaited.
    """
    group = _group(batch, call)
    left = [c for c in _owed(group) if c.id != call.id]
    if left:
        fresh = [c.id for c in left if c.row.state == "open" and batch.refusal(c) is None]
        busy = sum(1 for c in left if c.row.state == "started")
        start = tuple(fresh[: max(0, batch.facts.parallel - busy)])
        if answer is None or answer.outcome == PLACEHOLDER:
            return Commit(append=(answer,) if answer else (), start=start, usage=usage or {})
        return Commit(settle=(answer,), start=start, usage=usage or {})
    return _append_group(batch, group, answer, usage, waiting=call if answer is None else None)


def _append_group(
    batch: Batch,
    group: Sequence[OpenCall],
    answer: Answer | None,
    usage: dict[str, int] | None = None,
    *,
    waiting: OpenCall | None = None,
) -> Commit:
    """Return the commit that writes a finished group; a result that is in its row already is named without its body.

    What waits outside is written when it comes, like `waiting`, which this commit parks.
    """
    done = [c for c in group if c is not waiting and c.row.state != "parked"]
    append = tuple(answer if answer and answer.call == c.id else Answer(c.id, c.row.outcome or "unknown") for c in done)
    start, ending, claim = _next(batch, answered={c.id for c in done}, waiting={waiting.id} if waiting else set())
    return Commit(append=append, start=start, ending=ending, claim=claim, usage=usage or {})


def running_batch(batch: Batch) -> bool:
    """Tell whether a parallel batch is half done, so that giving the turn away now would lose results."""
    return any(c.row.kind == "parallel" and c.row.outcome is not None for c in batch.calls)


# -- single answers ---------------------------------------------------------------------------------------------------


def _error(call: OpenCall, reason: str) -> Answer:
    return Answer(call.id, "error", {"content": f"ERROR: {reason}", "is_error": True})


def _answer(call: OpenCall, result: ToolResult) -> Answer:
    body = result.body | ({"closes": True} if result.closes else {})
    return Answer(call.id, "error" if result.is_error else "result", body)


def _placeholder(call: OpenCall, parked: Parked | None) -> Answer:
    """Return what answers a parked call meanwhile: the facts alone, which a model reads as `pending_text`."""
    said = {} if parked is None else {"note": parked.note, "correlation": parked.correlation, "expires_in_ms": parked.expires_in_ms}
    return Answer(call.id, PLACEHOLDER, {name: value for name, value in said.items() if value} or None)


def _park(batch: Batch, call: OpenCall, parked: Parked | None) -> Park:
    fact = batch.facts.fact(call.name) or _UNASKED
    deadline_ms = (parked.expires_in_ms if parked else None) or call.expires_in_ms or fact.timeout_ms or DAY_MS
    hashed = batch.facts.secret_hash if call.row.kind == "callback" else None
    park = Park(call.id, deadline_ms, hashed(call.id) if hashed else None)
    if parked is None:
        return park
    kind: CallKind | None = "lift" if parked.poll_ms is not None and call.row.kind != "callback" else None
    if parked.ripe is not None and call.row.kind in ("plain", "parallel"):
        kind = "callback"  # nobody has its token, and its deadline answers
    return replace(
        park, task=parked.task, awaited=parked.awaited, kind=kind, request=parked.request, after_ms=parked.poll_ms, ripe=parked.ripe
    )
