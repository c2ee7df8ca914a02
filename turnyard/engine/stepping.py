"""How a step of a turn in this process is decided and done, and how an abort stops what is being done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from turnyard.engine import turn
from turnyard.engine.asking import ask_effect
from turnyard.engine.batch import run_of
from turnyard.engine.effects import AskModel, Effect, Failure, ModelAnswer, NoEffect, Result, ToolTable
from turnyard.engine.open_calls import open_batch
from turnyard.engine.recovery import after_error
from turnyard.engine.runner import Means, Performer
from turnyard.engine.strategy import Ask
from turnyard.engine.wiring import Shared
from turnyard.records.commit import Commit, Say, TurnView

T = TypeVar("T")

_log = logging.getLogger("turnyard.engine")


@dataclass(slots=True)
class Steps:
    """Does the steps of one run's turns. With `ask` the model is asked next, though nothing is new; `aborted` that no more is done."""

    shared: Shared
    ask: bool = False
    aborted: bool = False
    table: ToolTable = field(init=False)
    performer: Performer = field(init=False)
    _effect: asyncio.Future[Any] | None = None

    def equip(self, table: ToolTable, means: Means) -> None:
        """Go on with these means."""
        self.table = table
        self.performer = Performer(means, on_request=self.shared.narration.stream_broke)

    def abort(self) -> None:
        """Stop what is being done."""
        self.aborted = True
        if self._effect is not None:
            self._effect.cancel()

    async def step(self, view: TurnView) -> tuple[Effect, Result]:
        """Decide and do the next thing."""
        if self.aborted:
            return self._left(view) or (self._closing(view), None)
        effect = ask_effect(view, self.table, Ask()) if self.ask and not view.cancel else self._next_effect(view)
        if isinstance(effect, NoEffect):
            return effect, None
        if isinstance(effect, AskModel):
            self.shared.narration.stream_broke()
        done = await self.stoppable(self.performer.perform(view, effect))
        if done is None or (self.aborted and isinstance(done[1], Failure)):
            return self._left(view) or (self._closing(view, partial=isinstance(effect, AskModel)), None)
        if isinstance(done[1], ModelAnswer):
            self.ask = False
        if isinstance(done[1], Failure):
            self.shared.narration.stream_broke()
        return done

    def _left(self, view: TurnView) -> tuple[Effect, Result] | None:
        """Return what a call of a batch that was stopped still gave, if one did that is not stored yet."""
        if not self.performer.stopped:
            return None
        call, result = self.performer.stopped.popitem()
        return run_of(view, open_batch(view, self.table)[call]), result

    def _next_effect(self, view: TurnView) -> Effect:
        try:
            return turn.next_effect(view, self.table)
        except BaseException as error:  # noqa: BLE001 - whatever a strategy does, the step is done again, not for ever
            return NoEffect(self._again(view, error))

    def commit_after(self, view: TurnView, done: Effect, result: Result) -> Commit:
        """Return the commit that follows from what was done and what came of it."""
        try:
            return turn.commit_after(view, done, result=result, facts=self.table)
        except BaseException as error:  # noqa: BLE001 - as above
            return self._again(view, error, result)

    def _again(self, view: TurnView, error: BaseException, result: Result = None) -> Commit:
        """Return the commit after the strategy raised, which puts the step off or ends the turn."""
        _log.error("a step failed", exc_info=error, extra={"turn": view.turn, "step": view.rev + 1})
        unrun = () if result is not None or self.performer.busy else tuple(sorted(view.mine))
        message = f"the strategy raised {type(error).__name__}: {error}"
        return after_error(view, message, bounds=self.table.bounds, unrun=unrun, result=result)

    def _closing(self, view: TurnView, *, partial: bool = False) -> NoEffect:
        """Return what ends an aborted turn. What was said by then is kept as an answer that no model is shown."""
        self.shared.memory.request_cancel()
        effect = turn.next_effect(replace(view, cancel="user"), self.table)
        change = effect.commit if isinstance(effect, NoEffect) else Commit(ending="finish", closing=True)
        if partial:
            said = self.shared.narration.streaming
            body = {"text": said.text if said else "", "usage": None, "finish": "aborted", "aborted": True}
            change = replace(change, append=(Say(body), *change.append))
        return NoEffect(change)

    async def stoppable(self, doing: Awaitable[T]) -> T | None:
        """Do something that an abort stops; None when it was, whatever it made of that but a result."""
        self._effect = effect = asyncio.ensure_future(doing)
        if self.aborted:
            effect.cancel()
        try:
            await asyncio.wait({effect})
        except asyncio.CancelledError:
            effect.add_done_callback(_heard)
            effect.cancel()
            await asyncio.wait({effect})
            raise
        finally:
            self._effect = None
        return None if self.aborted and not _gave(effect) else effect.result()


def _gave(effect: asyncio.Future[Any]) -> bool:
    """Tell whether something that is over gave a result; an error on being stopped is for the log alone."""
    if effect.cancelled():
        return False
    error = effect.exception()
    if error is not None:
        _log.warning("what an abort stopped failed", exc_info=error)
    return error is None


def _heard(effect: asyncio.Future[Any]) -> None:
    """Take note of how something ended that nobody waits for any more."""
    if not effect.cancelled():
        effect.exception()
