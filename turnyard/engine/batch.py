"""What to do about the unanswered calls of the last answer, one commit at a time.

Calls start in source order; neighbours that only wait outside are parked together. A call that runs here never starts
while an awaited call before it is open, so at most one call of a turn is STARTED unless the batch is parallel. A call
found STARTED whose mark this worker did not make was interrupted: an idempotent one runs again with the same key, one
whose token may be out waits for its deadline, any other ends as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from turnyard.engine.approving import audit_of, edited, question_of, request_of, requested, terms_of, verdict_of
from turnyard.engine.effects import (
    DAY_MS,
    Effect,
    JudgeCalls,
    Judgement,
    NoEffect,
    Parked,
    RunBatch,
    RunTool,
    ToolFact,
    ToolResult,
)
from turnyard.engine.open_calls import Batch, OpenCall
from turnyard.engine.texts import edited_text
from turnyard.ports import AskedCall
from turnyard.records import ids
from turnyard.records.commit import PLACEHOLDER, Answer, CallKind, Commit, Park, TurnView

ARQ_LANE = "arq"
_UNASKED = ToolFact()


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
    if batch.judges(first):
        return JudgeCalls((AskedCall(first.id, first.name, orjson.dumps(first.args).decode()),), first.id)
    if not batch.runs(first):
        return NoEffect(_launch(batch, live))
    return _run_effect(batch, first)


def _run_effect(batch: Batch, call: OpenCall) -> Effect:
    """Return what is due for a call that runs alone."""
    refusal = batch.refusal(call)
    if refusal is not None:
        return NoEffect(_answered(batch, call, _refused(call, refusal)))
    if batch.mine(call) or (call.row.state == "started" and call.row.idempotent):
        return run_of(batch.view, call)
    if call.row.state == "started":
        return NoEffect(_answered(batch, call, Answer(call.id, "unknown")))
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


def _answered(batch: Batch, call: OpenCall, answer: Answer, usage: dict[str, int] | None = None) -> Commit:
    return (_settle if call.grouped else answer_commit)(batch, call, answer, usage)


def result_commit(batch: Batch, call: OpenCall, result: ToolResult | Parked) -> Commit:
    """Return the commit after a call was run."""
    usage = {"tool_calls": 1}
    if isinstance(result, ToolResult):
        usage = {"tool_calls": result.times} if result.times else {}
        return _answered(batch, call, _answer(call, result), usage)
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


def ask_commit(batch: Batch, call: OpenCall, judgement: Judgement) -> Commit:
    """Return the commit after a call asked, before it did anything, that people decide first."""
    request = request_of(call.name, call.args, terms_of(judgement), approval_ms=batch.facts.approval_ms)
    if call.grouped:
        change = _settle(batch, call, None)
    else:
        start, ending, claim = _next(batch, answered=set(), waiting={call.id})
        change = Commit(start=start, ending=ending, claim=claim)
    park = Park(call.id, request["expires_in_ms"], awaited=True, kind="approval", request=request)
    return replace(change, append=(requested(call.id, request), *change.append), park=(park,))


def approved_commit(batch: Batch, call: OpenCall, judgement: Judgement) -> Commit:
    """Return the commit after an approved call was judged once more: only a denial, or arguments that do not fit, keep it from running."""
    if judgement.decision == "deny":
        return _answered(batch, call, _told(call, "error" if judgement.faulty else "denied", verdict_of(judgement)["denied"]))
    return Commit(start=(call.id,)) if batch.runs(call) else _launch(batch, [call])


def _launch(batch: Batch, live: Sequence[OpenCall]) -> Commit:
    """Park the leading calls that only wait outside; a detached one is answered by a placeholder at once."""
    append: list[Answer] = []
    parks: list[Park] = []
    waiting: set[str] = set()
    for call in live:
        if batch.runs(call) or (call is not live[0] and batch.judges(call)):
            break
        if call.row.outcome is None:
            parks.append(_park(batch, call, None))
        if batch.detached(call):
            append.append(_placeholder(call, None))
        else:
            waiting.add(call.id)
    start, ending, claim = _next(batch, answered={a.call for a in append}, waiting=waiting)
    lanes = (ARQ_LANE,) if any(batch.kind(batch[p.call]) == "lift" for p in parks) else ()
    asks = tuple(requested(p.call, p.request) for p in parks if p.request is not None)
    return Commit(append=(*asks, *append), park=tuple(parks), start=start, ending=ending, claim=claim, lanes=lanes)


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
            return NoEffect(_settle(batch, call, _refused(call, refusal)))
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


def _refused(call: OpenCall, reason: str) -> Answer:
    """Return what answers a call that is not run: a rule's own words when one denied it, else an error."""
    denied = None if "refused" in call.body else call.body.get("denied")
    return _error(call, reason) if denied is None else Answer(call.id, "error" if denied["is_error"] else "denied", denied)


def _answer(call: OpenCall, result: ToolResult) -> Answer:
    body = result.body | ({"closes": True} if result.closes else {})
    return _told(call, "error" if result.is_error else "result", body)


def _told(call: OpenCall, outcome: str, body: dict[str, Any]) -> Answer:
    """Return an answer with what is kept of the call's judgement and approval; the model learns when a person changed its arguments."""
    audit: dict[str, Any] = {**audit_of(call.body, call.row), **(body.get("audit") or {})}
    if edited(call.row) is not None:
        body = body | {"content": edited_text(call.args, body["content"])}
    return Answer(call.id, outcome, body | {"audit": audit} if audit else body)


def _placeholder(call: OpenCall, parked: Parked | None) -> Answer:
    """Return what answers a parked call meanwhile: the facts alone, which a model reads as `pending_text`."""
    said: dict[str, Any] = (
        {} if parked is None else {"note": parked.note, "correlation": parked.correlation, "expires_in_ms": parked.expires_in_ms}
    )
    if edited(call.row) is not None:
        said["note"] = edited_text(call.args, str(said.get("note") or ""))
    said["audit"] = audit_of(call.body, call.row)
    return Answer(call.id, PLACEHOLDER, {name: value for name, value in said.items() if value} or None)


def _park(batch: Batch, call: OpenCall, parked: Parked | None) -> Park:
    kind = batch.kind(call)
    if parked is None and kind in ("approval", "question"):
        return _asking(batch, call)
    fact = batch.facts.fact(call.name) or _UNASKED
    deadline_ms = (parked.expires_in_ms if parked else None) or call.body.get("expires_in_ms") or fact.timeout_ms or DAY_MS
    hashed = batch.facts.secret_hash if kind == "callback" else None
    park = Park(call.id, deadline_ms, hashed(call.id) if hashed else None)
    if call.row.kind == "approval":
        park = replace(park, kind=kind, awaited=not batch.detached(call))
    if parked is None:
        return park
    becomes: CallKind | None = "lift" if parked.poll_ms is not None and kind != "callback" else park.kind
    if parked.ripe is not None and kind in ("plain", "parallel"):
        becomes = "callback"  # nobody has its token, and its deadline answers
    awaited = parked.awaited or park.awaited
    return replace(park, task=parked.task, awaited=awaited, kind=becomes, request=parked.request, after_ms=parked.poll_ms, ripe=parked.ripe)


def _asking(batch: Batch, call: OpenCall) -> Park:
    """Return the park of a call that waits for people."""
    if call.row.kind == "question":
        fact = batch.facts.fact(call.name) or _UNASKED
        request = question_of(call.name, call.args, expires_in_ms=call.body.get("expires_in_ms") or fact.timeout_ms or DAY_MS)
    else:
        request = request_of(call.name, call.args, call.body.get("approval") or {}, approval_ms=batch.facts.approval_ms)
    return Park(call.id, request["expires_in_ms"], awaited=True, request=request)
