"""The kernel: what happens next in a turn, and which commit follows from what came of it.

`next_effect` and `commit_after` are the worker's side of the protocol as pure functions of a `TurnView`: the same view
gives the same decision on any worker. What is common to all turns is decided here, in this order: a cancel, a hand-over,
the open calls of the last answer, then what the agent's strategy decides, within the limits. A replay repeats at most the
one effect whose commit is missing.
"""

from __future__ import annotations

from dataclasses import replace

from turnyard.engine.asking import answer_commit, ask_effect, outright, stop_of
from turnyard.engine.batch import approved_commit, ask_commit, batch_effect, result_commit, running_batch
from turnyard.engine.decide import asked_calls, decide
from turnyard.engine.effects import (
    AskApproval,
    AskHooks,
    AskModel,
    Effect,
    Failure,
    Fold,
    HookAnswer,
    JudgeCalls,
    Judged,
    ModelAnswer,
    NoEffect,
    Parked,
    Result,
    RunTool,
    Summary,
    ToolResult,
    ToolTable,
)
from turnyard.engine.folded import after_fold
from turnyard.engine.history import unseen
from turnyard.engine.open_calls import open_batch
from turnyard.engine.progress import Progress
from turnyard.engine.recovery import after_failure, closed, forgiven
from turnyard.engine.reply import fail, lanes, unsaid
from turnyard.engine.shapes import read_clear, read_pending
from turnyard.engine.stopping import after_hooks, at_end
from turnyard.engine.strategy import Ask, Call, Finish
from turnyard.records.commit import Answer, Clear, Commit, Row, TurnView
from turnyard.records.log import RESULT


def next_effect(view: TurnView, facts: ToolTable) -> Effect:
    """Return the one thing to do now in the turn that `view` shows; it may raise what the strategy raises."""
    effect = _next(view, facts)
    return NoEffect(closed(view, effect.commit)) if isinstance(effect, NoEffect) else effect


def _next(view: TurnView, facts: ToolTable) -> Effect:
    if view.cancel:
        return NoEffect(Commit(ending="finish", closing=True, lanes=lanes(view)))
    batch = open_batch(view, facts)
    if (view.drain or view.yield_) and not running_batch(batch):
        return NoEffect(Commit(ending="yield", unstart=tuple(r.call for r in view.rows if r.call in view.mine)))
    if batch.calls:
        return batch_effect(batch)
    if view.code == "AWAITS":
        return NoEffect(Commit(ending="park"))
    if _closed(view):
        return NoEffect(Commit(ending="finish", lanes=lanes(view)))
    if facts.hooks and Progress.of(view).over and not unseen(view):
        return _end(view, facts)
    return _decided(view, facts)


def commit_after(view: TurnView, effect: Effect, *, result: Result, facts: ToolTable) -> Commit:
    """Return the commit that follows `effect`, which `result` came of, on the view that asked for it.

    For a call of a `RunBatch` pass the `RunTool` of that call and the newest view. It may raise what the strategy raises.
    """
    return closed(view, forgiven(view, _after(view, effect, result, facts)))


def _closed(view: TurnView) -> bool:
    """Tell whether a tool has ended the turn: nothing is asked any more."""
    return any(e.type == RESULT and e.body.get("closes") and not e.aside for e in unseen(view))


def _decided(view: TurnView, facts: ToolTable) -> Effect:
    decided = decide(view, facts.strategy, None)
    match decided.decision:
        case Ask() as ask:
            return ask_effect(view, facts, ask)
        case Finish(output=None) if (last := unsaid(view, facts)) is not None:
            return NoEffect(outright(view, facts, replace(decided, decision=Finish(last))))
        case Finish(output=None):
            return _end(view, facts)
        case Call() as made if facts.judged and (calls := asked_calls(made)):
            return JudgeCalls(calls)
        case _:
            return NoEffect(outright(view, facts, decided))


def _end(view: TurnView, facts: ToolTable) -> Effect:
    return at_end(view, facts.bounds, stop_of(view, facts), hooks=facts.hooks)


def _after(view: TurnView, effect: Effect, result: Result, facts: ToolTable) -> Commit:
    match effect, result:
        case NoEffect(commit=commit), _:
            return commit
        case AskModel(), ModelAnswer() as answer:
            return answer_commit(view, effect, answer, facts, unseen=unseen(view))
        case Fold(), Summary() as summary:
            return after_fold(view, effect, summary)
        case AskModel() | Fold(), Failure() as failure:
            return after_failure(view, effect, failure, facts.bounds)
        case AskHooks(), HookAnswer() | Failure():
            return after_hooks(view, effect, result, facts.bounds, stop=stop_of(view, facts), replied=not unseen(view))
        case JudgeCalls(), Judged() | Failure():
            return _after_judging(view, effect, result, facts)
        case RunTool(row=row), ToolResult() | Parked() | AskApproval() | Failure():
            return _after_run(view, row, result, facts)
        case _:
            raise TypeError(f"{type(effect).__name__} cannot end with {type(result).__name__}")


def _after_judging(view: TurnView, effect: JudgeCalls, result: Judged | Failure, facts: ToolTable) -> Commit:
    """Return the commit of calls that were judged: one that was approved is run, or not; what the strategy makes is declared."""
    if isinstance(result, Failure):
        return replace(fail(view, result), closing=True)
    judged = result.judgements
    if effect.approved is not None:
        batch = open_batch(view, facts)
        return approved_commit(batch, batch[effect.approved], judged[0])
    return outright(view, facts, decide(view, facts.strategy, None), judged=judged)


def _after_run(view: TurnView, row: Row, result: ToolResult | Parked | AskApproval | Failure, facts: ToolTable) -> Commit:
    """Return the commit after a call was run. One that a hook failed on ends the turn, and is answered with that."""
    batch = open_batch(view, facts)
    call = batch[row.call]
    if isinstance(result, Failure):
        answer = Answer(row.call, "error", {"content": f"ERROR: {result.answer or result.message}", "is_error": True})
        return replace(fail(view, result), append=(answer,), closing=True)
    if isinstance(result, AskApproval):
        return ask_commit(batch, call, result.judgement)
    if isinstance(result, Parked) or result.is_error:
        return result_commit(batch, call, result)
    pending = read_pending(result.content) if batch.kind(call) in ("plain", "parallel") else None
    return _clearing(result_commit(batch, call, pending or result), read_clear(result.content))


def _clearing(change: Commit, pair: str | None) -> Commit:
    """Return the commit of a result together with the notices that it says to be over, those that nobody was shown yet, too."""
    return change if pair is None else replace(change, append=(Clear(pair, unshown=True), *change.append))
