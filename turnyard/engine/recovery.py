"""What follows when an effect of a turn fails: a wait and another try, a fold, or the end.

A wait is parked time: the turn holds no slot and no lease meanwhile, and a row wakes it. Every series of retries that was
begun is ended in the log, by a success, by the last failure, or by a cancel.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

from turnyard.engine.bounds import Bounds
from turnyard.engine.effects import HOOK_FAILED, AskModel, Failure, Fold, ModelAnswer, Result
from turnyard.engine.progress import Progress
from turnyard.engine.reply import fail, paid
from turnyard.records import ids
from turnyard.records.commit import Commit, Note, TurnView, Wait

OVERFLOW = "context_overflow"
MOST_DELAY_MS = 60_000
MOST_ERRORS = 3
_JITTER = 0.25
_FOLD_DUE, _FOLDED = 1, 2


@dataclass(frozen=True, slots=True)
class _Series:
    """The retries of one kind of effect: the counter in `Progress`, and how its events are called."""

    counter: str
    event: str

    def made(self, progress: Progress) -> int:
        return getattr(progress, self.counter)

    def next(self, progress: Progress) -> Progress:
        return replace(progress, **{self.counter: self.made(progress) + 1})

    def ended(self, progress: Progress, error: str | None) -> tuple[Note, ...]:
        """Return the event that ends the series; none when there was no retry."""
        made = self.made(progress)
        return (Note(f"{self.event}/end", {"success": error is None, "attempt": made, "final_error": error}),) if made else ()


_ASK = _Series("retries", "retry")
_SUMMARY = _Series("fold_retries", "summarization/retry")


def fold_mode(progress: Progress) -> Any:
    """Return how the next `AskModel` may fold: force after an overflow, least when that failed, never after a failed summary, else auto."""
    if progress.overflow == _FOLD_DUE:
        return "least" if progress.no_fold else "force"
    return "never" if progress.no_fold else "auto"


# -- a failure of the model, or of the summariser ---------------------------------------------------------------------


def after_failure(view: TurnView, effect: AskModel | Fold, failure: Failure, bounds: Bounds) -> Commit:
    """Return the commit that follows when an ask, or a summary on the way to one, gave no answer."""
    progress = Progress.of(view)
    if isinstance(effect, AskModel) and failure.code == OVERFLOW:
        return _after_overflow(view, progress, failure)
    series = _SUMMARY if isinstance(effect, Fold) else _ASK
    delay_ms = _delay_ms(view, series.made(progress) + 1, failure, bounds)
    if delay_ms is not None:
        return _wait(view, series, failure, bounds, delay_ms=delay_ms)
    if isinstance(effect, Fold) and failure.code != HOOK_FAILED:
        return _without_summary(view, progress, failure)
    return _end(view, failure, _ASK.ended(progress, failure.message))


def _delay_ms(view: TurnView, attempt: int, failure: Failure, bounds: Bounds) -> int | None:
    """Return how long to wait before retry number `attempt`; None when there is none."""
    asked_ms = failure.retry_after_ms or 0
    spent = bounds.attempts is not None and attempt >= bounds.attempts
    if not failure.retryable or failure.code == OVERFLOW or spent or asked_ms > MOST_DELAY_MS or view.cancel:
        return None
    own_ms = min(bounds.retry_base_ms << min(attempt - 1, 30), MOST_DELAY_MS)
    least_ms = max(asked_ms, own_ms)
    return least_ms + int(least_ms * _JITTER * _share(view))


def _share(view: TurnView) -> float:
    """Return a number from 0 to 1 that differs from turn to turn, so that what failed together does not return together."""
    return zlib.crc32(f"{view.turn}:{view.rev}".encode()) / 0xFFFFFFFF


def _wait(view: TurnView, series: _Series, failure: Failure, bounds: Bounds, *, delay_ms: int) -> Commit:
    progress = series.next(Progress.of(view))
    most = None if bounds.attempts is None else bounds.attempts - 1
    body = {"attempt": series.made(progress), "max_attempts": most, "delay_ms": delay_ms, "error_message": failure.message}
    return Commit(append=(Note(f"{series.event}/start", body),), **_parked(view, progress, delay_ms))


def _parked(view: TurnView, progress: Progress, delay_ms: int) -> dict[str, Any]:
    row = Wait(ids.wait_id(view.store, view.turn, view.rev + 1), "retry", delay_ms)
    return {"wait": (row,), "ending": "park", "state": progress.into(view.state)}


def _end(view: TurnView, failure: Failure, events: tuple[Note, ...]) -> Commit:
    change = fail(view, failure)
    return replace(change, append=(*events, *change.append))


# -- a request that is too long ---------------------------------------------------------------------------------------


def _after_overflow(view: TurnView, progress: Progress, failure: Failure) -> Commit:
    """Fold and ask again, once: nothing but an answer allows a second time."""
    if progress.overflow or progress.no_fold:
        events = _ASK.ended(progress, failure.message)
        if progress.overflow == _FOLD_DUE:
            events += (_overflow_event(progress, applied=False),)
            again = failure.message[:200] == progress.too_long
            failure = failure if again else replace(failure, message=f"{progress.too_long}; and {failure.message}")
        return _end(view, replace(failure, retryable=False), events)
    due = replace(progress, overflow=_FOLD_DUE, too_long=failure.message[:200])
    return Commit(state=due.into(view.state))


def _overflow_event(progress: Progress, *, applied: bool) -> Note:
    return Note("overflow/recovery", {"applied": applied, "reason": "overflow", "error": progress.too_long})


def _without_summary(view: TurnView, progress: Progress, failure: Failure) -> Commit:
    """Go on unfolded; a request that was too long as it was is then made as short as it can be."""
    events = _SUMMARY.ended(progress, failure.message)
    rest = replace(progress, no_fold=1, fold_retries=0)
    return Commit(append=events, state=rest.into(view.state))


# -- what closes a series ---------------------------------------------------------------------------------------------


def after_summary(progress: Progress) -> tuple[Progress, tuple[Note, ...]]:
    """Return the progress after a summary was made, and the events that go into the commit of its marker."""
    events = _SUMMARY.ended(progress, None)
    if progress.overflow == _FOLD_DUE:
        events += (_overflow_event(progress, applied=True),)
        progress = replace(progress, overflow=_FOLDED)
    return replace(progress, fold_retries=0), events


def after_answer(progress: Progress) -> tuple[Progress, tuple[Note, ...]]:
    """Return the progress after the model answered, and the events that go into the commit of the answer."""
    if not (progress.retries or progress.fold_retries or progress.errors or progress.overflow or progress.idle):
        return progress, ()
    rest = replace(progress, retries=0, fold_retries=0, errors=0, overflow=0, idle=0, too_long="")
    shortened = (_overflow_event(progress, applied=True),) if progress.overflow == _FOLD_DUE else ()
    return rest, (*_SUMMARY.ended(progress, "no summary is needed any more"), *_ASK.ended(progress, None), *shortened)


def closing_events(view: TurnView, error: str = "cancelled") -> tuple[Note, ...]:
    """Return the events that end what a cancelled or failing turn had begun."""
    progress = Progress.of(view)
    return (*_SUMMARY.ended(progress, error), *_ASK.ended(progress, error))


def closed(view: TurnView, change: Commit) -> Commit:
    """Return a step's commit so that no series of retries outlives its turn."""
    if change.ending != "finish":
        return change
    told = {part.type for part in change.append if isinstance(part, Note)}
    error = change.failure["message"] if change.failure else "cancelled" if change.closing else "the turn ended before the next try"
    missing = tuple(event for event in closing_events(view, error) if event.type not in told)
    return replace(change, append=(*missing, *change.append)) if missing else change


# -- a strategy that raises -------------------------------------------------------------------------------------------


def forgiven(view: TurnView, change: Commit) -> Commit:
    """Return a step's commit so that it forgets the errors of the strategy before it, unless it counts another one."""
    before = Progress.of(view)
    if not before.errors or change.ending == "finish":
        return change
    state = view.state if change.state is None else change.state
    progress = Progress.read(state)
    return change if progress.errors > before.errors else replace(change, state=replace(progress, errors=0).into(state))


def after_error(
    view: TurnView, message: str, *, bounds: Bounds, ref: str | None = None, unrun: tuple[str, ...] = (), result: Result = None
) -> Commit:
    """Return the commit after the strategy raised: the step is done again later, four times in all.

    `unrun` are calls marked STARTED by this worker whose effect did not begin. What an answer cost that it raised on
    (`result`) is counted all the same. Crashes of workers are counted apart.
    """
    usage = paid(result) if isinstance(result, ModelAnswer) else {}
    progress = Progress.of(view)
    tries = progress.errors + 1
    if tries > MOST_ERRORS:
        failure = Failure("retry_exhausted", f"{message}; the step was tried {tries} times", ref=ref)
        return replace(_end(view, failure, closing_events(view, message)), closing=True, usage=usage)
    delay_ms = min(bounds.retry_base_ms << (tries - 1), MOST_DELAY_MS)
    return Commit(unstart=unrun, usage=usage, **_parked(view, replace(progress, errors=tries), delay_ms))
