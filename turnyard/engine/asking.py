"""What stands between a turn and its model: the limits and guards before an ask, and the counts after an answer.

Every ask passes the same gate, whatever brought it about, so no steering and no retry gets around a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from turnyard.engine.budget import Notice, Spent, Stop, Verdict, judge
from turnyard.engine.decide import Decided, decide
from turnyard.engine.effects import AskModel, Effect, Failure, Judgement, ModelAnswer, NoEffect, ToolTable
from turnyard.engine.guards import REPETITION, check_cuts, check_loop, one_copy
from turnyard.engine.history import has_called
from turnyard.engine.progress import Progress
from turnyard.engine.recovery import after_answer, fold_mode
from turnyard.engine.reply import body_of, carry_out, fail, lanes, paid
from turnyard.engine.stopping import at_stop, reset_by, segment_over
from turnyard.engine.strategy import Ask, Continue
from turnyard.errors import StrategyError
from turnyard.records.commit import Clear, Commit, Say, TurnView
from turnyard.records.log import LogRecord

MOST_IDLE = 100


def ask_effect(view: TurnView, facts: ToolTable, ask: Ask) -> Effect:
    """Return the ask that is due, or what is due in its place: the hooks, a notice, or the end."""
    verdict = _verdict(view, facts)
    if isinstance(verdict, Stop):
        return at_stop(view, facts.bounds, stop_of(view, facts), hooks=facts.hooks)
    if segment_over(view, facts.bounds):
        return at_stop(view, facts.bounds, None, hooks=facts.hooks)
    loop = check_loop(view) if facts.bounds.loop_guard else None
    if isinstance(loop, Stop):
        return NoEffect(fail(view, Failure(loop.code, loop.message)))
    if loop is not None:
        return NoEffect(Commit(append=(loop,), claim=True))
    note = "\n\n".join(part for part in (ask.note, verdict.text if verdict is not None else "") if part)
    progress = Progress.of(view)
    # each retry was one commit; the key is that of the first try
    return AskModel(f"{view.turn}:{view.rev + 1 - progress.retries}", note, ask.tools, fold_mode(progress))


def stop_of(view: TurnView, facts: ToolTable) -> Stop | None:
    """Return why the model may not be asked again, None when it may."""
    stop = _verdict(view, facts)
    if not isinstance(stop, Stop):
        return None
    terminal = facts.forced_terminal
    if terminal and stop.bound == "model_calls" and not has_called(view, terminal):
        called = f"the model never called {terminal} in {facts.bounds.model_calls} model calls"
        return replace(stop, message=f"{called}; the provider may ignore tool_choice")
    return stop


def _verdict(view: TurnView, facts: ToolTable) -> Verdict:
    """Return what the agent's limits and the strategy's own say: any stop comes before any notice."""
    spent = Spent.of(view)
    ours = judge(view, facts.bounds, spent)
    if isinstance(ours, Stop):
        return ours
    own = facts.strategy.limit(spent)
    if ours is None or isinstance(own, Stop):
        return own
    return ours if own is None else Notice("\n\n".join(text for text in (ours.text, own.text) if text), ours.warned)


def answer_commit(view: TurnView, effect: AskModel, answer: ModelAnswer, facts: ToolTable, *, unseen: Iterable[LogRecord]) -> Commit:
    """Return the commit of an answer, with what it changes in the turn's counts. `unseen` is what it answers."""
    before = Progress.of(view)
    progress, events = after_answer(before)
    progress = reset_by(progress, view, unseen, counted=facts.hooks or facts.bounds.segment_steps is not None)
    if effect.note and isinstance(verdict := judge(view, facts.bounds), Notice):
        progress = replace(progress, warned=verdict.warned)
    cut = answer.done.finish == REPETITION
    cuts = progress.cuts + 1 if cut else 0
    change, over = (_cut(view, answer, cuts), False) if cut else _said(view, facts, answer)
    if (cuts, over) != (progress.cuts, bool(progress.over)):
        progress = replace(progress, cuts=cuts, over=int(over))
    if answer.cleared or events:
        change = replace(change, append=(*map(Clear, answer.cleared), *events, *change.append))
    if progress == before or change.ending == "finish":
        return change
    return replace(change, state=progress.into(view.state if change.state is None else change.state))


def outright(view: TurnView, facts: ToolTable, decided: Decided, *, judged: Sequence[Judgement] = ()) -> Commit:
    """Return the commit of a decision that no answer was taken for. With hooks they are asked before it ends the turn."""
    change, before = carry_out(view, facts, decided, judged=judged), Progress.of(view)
    progress = replace(before, idle=before.idle + 1 if isinstance(decided.decision, Continue) else 0)
    if progress.idle > MOST_IDLE:
        raise StrategyError(f"strategy {facts.strategy.name} went on {MOST_IDLE} times in a row without an effect")
    if _is_over(facts, change):
        change, progress = replace(change, ending="none", claim=True), replace(progress, over=1)
    return change if progress == before or change.ending == "finish" else replace(change, state=progress.into(decided.held))


def _is_over(facts: ToolTable, change: Commit) -> bool:
    return facts.hooks and change.ending == "finish" and change.failure is None


def _said(view: TurnView, facts: ToolTable, answer: ModelAnswer) -> tuple[Commit, bool]:
    """Return the commit of an answer, and whether the turn is over once the hooks were asked, which comes first."""
    decided = decide(view, facts.strategy, answer.done)
    change = carry_out(view, facts, decided, answer, judged=answer.judged)
    if _is_over(facts, change):
        return replace(change, ending="none", claim=True, state=decided.state(view)), True
    return change, False


def _cut(view: TurnView, answer: ModelAnswer, cuts: int) -> Commit:
    """Return the commit of an answer that was cut because it repeated itself; its calls are no calls."""
    said = Say(body_of(answer) | {"text": one_copy(answer.done.text)})
    then = check_cuts(cuts)
    if isinstance(then, Stop):
        return replace(fail(view, Failure(then.code, then.message)), append=(said,), usage=paid(answer), lanes=lanes(view))
    return Commit(append=(said, then), claim=True, usage=paid(answer))
