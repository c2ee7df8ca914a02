"""Whether a turn ends where a segment of it does: what turn_stopping hooks are asked, and what follows from their answer.

A segment ends when the model answers without calls, after `segment_steps` model calls in a row, or when the budget is used
up. A message of the user begins the count of steps anew, never the budget. What hooks said is in the log before the model
sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from turnyard.engine.bounds import Bounds
from turnyard.engine.budget import Spent, Stop, budget_of
from turnyard.engine.effects import AskHooks, Effect, Failure, HookAnswer, NoEffect
from turnyard.engine.history import unseen
from turnyard.engine.progress import Progress
from turnyard.engine.reply import fail, lanes
from turnyard.records.commit import Commit, Note, TurnView
from turnyard.records.log import USER, LogRecord

Reason = Literal["no_calls", "step_limit", "budget"]


def segment_over(view: TurnView, bounds: Bounds) -> bool:
    """Tell whether the open segment has had as many model calls as one may have; a message of the user that is unread begins another."""
    most = bounds.segment_steps
    if most is None or Spent.of(view).model_calls - Progress.of(view).segment < most:
        return False
    return not any(e.type == USER for e in unseen(view))


def reset_by(progress: Progress, view: TurnView, read: Iterable[LogRecord], *, counted: bool) -> Progress:
    """Return the progress after an answer to `read`: a message of the user among it began a new count of steps.

    `counted` False: nobody asks for the count, and nothing is stored for it.
    """
    if not counted or not any(e.type == USER for e in read):
        return progress
    return replace(progress, segment=Spent.of(view).model_calls)


def at_end(view: TurnView, bounds: Bounds, stop: Stop | None, *, hooks: bool) -> Effect:
    """Return what is due when nothing is left to answer: the hooks are asked once about each segment, else the turn ends."""
    if hooks and Spent.of(view).model_calls > Progress.of(view).segment:
        return _ask(view, bounds, "budget" if stop else "no_calls")
    return NoEffect(_finish(view))


def at_stop(view: TurnView, bounds: Bounds, stop: Stop | None, *, hooks: bool) -> Effect:
    """Return what is due when the turn may not go on: for want of budget (`stop`), or None for the steps of a segment."""
    if hooks:
        return _ask(view, bounds, "budget" if stop else "step_limit")
    return NoEffect(fail(view, stopped(stop, bounds)))


def stopped(stop: Stop | None, bounds: Bounds) -> Failure:
    """Return the failure of a turn that was stopped."""
    if stop is not None:
        return Failure(stop.code, stop.message)
    return Failure("step_limit", f"the turn asked the model {bounds.segment_steps} times in a row; raise Limits(segment_steps=...)")


def after_hooks(
    view: TurnView, effect: AskHooks, answer: HookAnswer | Failure, bounds: Bounds, *, stop: Stop | None, replied: bool
) -> Commit:
    """Return the commit that follows from what the hooks said.

    `stop` is what the budget says: over it, nothing the hooks say goes on. `replied`: the model has answered everything, so
    that the turn ends well when it ends here.
    """
    if isinstance(answer, Failure):
        return fail(view, answer)
    if answer.texts and not answer.stop and stop is None and effect.budget.continuations != 0:
        return _go_on(view, effect, answer.texts)
    return _finish(view) if replied else fail(view, stopped(stop, bounds))


def _ask(view: TurnView, bounds: Bounds, reason: Reason) -> AskHooks:
    spent = Spent.of(view)
    return AskHooks(reason, steps=spent.model_calls, segments=spent.continuations, budget=budget_of(spent, bounds))


def _finish(view: TurnView) -> Commit:
    return Commit(ending="finish", lanes=lanes(view))


def _go_on(view: TurnView, effect: AskHooks, texts: tuple[str, ...]) -> Commit:
    progress = replace(Progress.of(view), continuations=effect.segments + 1, segment=effect.steps)
    body = {"segment": progress.continuations, "reason": effect.reason, "steps": effect.steps, "messages": list(texts)}
    said = tuple(Note(USER, {"text": text, "origin": "hook"}) for text in texts)
    return Commit(append=(Note("turn/continue", body), *said), claim=True, state=progress.into(view.state))
