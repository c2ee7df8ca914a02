"""One turn on this child: begin it, then one effect and one commit after the other until it ends.

Nothing is known but what begin and commit answered, and nothing goes out unless the lease is sure. An effect that a
cancel interrupts is followed by the closing commit; one that a drain finds running is finished first. A turn that is
somebody else's by now is dropped without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnyard.backoff import Backoff
from turnyard.engine.effects import AskModel, Effect, Failure, NoEffect, Result, ToolTable
from turnyard.engine.recovery import after_error, closing_events
from turnyard.engine.runner import Means, Performer
from turnyard.engine.strangers import raised_by_app
from turnyard.engine.turn import commit_after, next_effect
from turnyard.errors import AgentVersionGone, Diverged, FenceLost, StoreUnavailable
from turnyard.records.commit import Commit, Say, TurnView
from turnyard.records.ids import new_call_token
from turnyard.state import turns
from turnyard.state.scripts import StoreFull

from .board import Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextvars import ContextVar

    from turnyard.ports import Clock
    from turnyard.state.yard import Shard

    from .beside import Beside
    from .board import Seat
    from .feed import Feed
    from .lease import Lease
    from .views import Views

log = logging.getLogger("turnyard.workers")

_RETRY_FIRST_S = 1.0
_RETRY_MOST_S = 15.0
_FULL_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """An agent as this child runs it.

    `decode_state` is asked for turns that another version began; None goes on with them as they are.
    """

    serial: int
    table: ToolTable
    means: Means
    decode_state: Callable[[TurnView], Awaitable[TurnView]] | None = None


class Turn:
    """A turn in hand."""

    __slots__ = ("agent", "cancelled", "epoch", "in_effect", "seat", "session", "shard", "task", "tokens", "view", "waiting")

    def __init__(self, shard: Shard, session: str, epoch: int, agent: str, seat: Seat) -> None:
        self.seat = seat
        self.shard = shard
        self.session = session
        self.epoch = epoch
        self.agent = agent
        self.task: asyncio.Task[None] | None = None
        self.in_effect = False
        self.waiting: asyncio.Event | None = None
        self.view: TurnView | None = None
        self.cancelled = ""
        self.tokens: dict[str, tuple[str, str]] = {}

    def token(self, call: str) -> tuple[str, str]:
        """Return (token for the outside world, hash of its secret) of a call, the same as long as the turn is in hand."""
        if call not in self.tokens:
            self.tokens[call] = new_call_token(self.shard.n, self.view.store if self.view else "", call)
        return self.tokens[call]

    def cancel(self, turn: str) -> None:
        """Stop what is done outside for the open turn, if it is `turn`, and close it. What is being committed stands."""
        if self.view is None or turn != self.view.turn:
            return
        self.cancelled = turn
        if self.in_effect and self.task is not None:
            self.task.cancel()

    def hurry(self) -> None:
        """End a wait before another try, if the turn is in one."""
        if self.waiting is not None:
            self.waiting.set()


class Executor:
    """Runs turns for the incarnation whose lease it is given. `draining` makes each turn yield after its step."""

    def __init__(
        self,
        agents: Mapping[str, Served],
        *,
        current: ContextVar[Turn],
        lease: Lease,
        views: Views,
        feed: Feed,
        beside: Beside,
        clock: Clock,
    ) -> None:
        self._agents = agents
        self._current = current
        self._lease = lease
        self._views = views
        self._feed = feed
        self._beside = beside
        self._clock = clock
        self.draining = False

    async def run(self, turn: Turn) -> bool:
        """Run a turn to its end, its park or its yield; return False when it was left behind in the server's hands."""
        while True:
            owner = self._lease.owner
            try:
                view = await self._begin(turn, owner)
                if view is None or view.ended:
                    return True
                await self._steps(turn, view, owner)
            except FenceLost:
                return True
            except Diverged:
                continue
            except StoreUnavailable as error:
                log.warning("turn dropped: the server does not answer", extra=_fields(turn) | {"reason": str(error)})
                return False
            return True

    async def _begin(self, turn: Turn, owner: str) -> TurnView | None:
        """Begin; an outcome that stays unknown is asked for again, because the session may already be ours."""
        served = self._agents.get(turn.agent)
        known = self._views.take(turn.session)
        serial = served.serial if served else 0
        try:
            return await turns.begin(turn.shard, turn.session, epoch=turn.epoch, owner=owner, serial=serial, known=known)
        except StoreUnavailable:
            return await self._begin_again(turn, owner, serial)

    async def _begin_again(self, turn: Turn, owner: str, serial: int) -> TurnView | None:
        backoff = Backoff(first_s=0.1)
        while owner == self._lease.owner and not self.draining:
            await self._clock.sleep(backoff.next_s())
            with contextlib.suppress(StoreUnavailable):
                return await turns.begin(turn.shard, turn.session, epoch=turn.epoch, owner=owner, serial=serial)
        raise StoreUnavailable(f"session {turn.session}: whether its turn was begun stays unknown; the next beat tells")

    async def confirm(self, turn: Turn) -> None:
        """Cancel a turn that the server says is cancelled. What it pushed to us may be about one that ended since."""
        try:
            view = await turns.begin(turn.shard, turn.session, epoch=turn.epoch, owner=self._lease.owner, serial=0)
        except StoreUnavailable:
            return  # the next commit is told
        if view is not None and not view.ended and view.cancel:
            turn.cancel(view.turn)

    async def _steps(self, turn: Turn, view: TurnView, owner: str) -> None:
        served = self._agents[view.head["agent"]]
        performer = Performer(served.means, on_request=lambda: turn.seat.show(Phase.WAITING))
        self._current.set(turn)
        await performer.resume(view)
        store = view.store
        try:
            decoded = served.decode_state is not None and view.began not in (0, served.serial) and not view.cancel
            if decoded and served.decode_state is not None:
                view = await served.decode_state(view)
            with performer.span("turn", session=turn.session, turn=view.turn):
                while not view.ended:
                    store = view.store
                    view = await self._step(turn, performer, served, view, owner)
            if view.entries and not decoded:
                self._views.keep(replace(view, store=store, last_seq=max(e.seq for e in view.entries)))
        except (FenceLost, Diverged, StoreUnavailable):
            raise
        except BaseException as error:
            if not raised_by_app(error):
                raise
            await self._fail(turn, view, owner, error)
        finally:
            self._feed.forget(turn.session)
            self._beside.left(turn)
            await performer.aclose()

    async def _step(self, turn: Turn, performer: Performer, served: Served, view: TurnView, owner: str) -> TurnView:
        """Do one effect and commit what came of it; return what the session shows then."""
        if self.draining:
            view = replace(view, drain=True)
        if turn.cancelled == view.turn:
            view = replace(view, cancel=view.cancel or "user")
        turn.view = view
        try:
            effect = next_effect(view, served.table)
        except BaseException as error:  # noqa: BLE001 - whatever a strategy does, the step is done again, not for ever
            unrun = () if performer.busy else tuple(sorted(view.mine))
            return await self._commit(turn, view, owner, _again(turn, view, served, error, unrun=unrun))
        done, result = await self._perform(turn, performer, view, effect)
        if done is None:
            return view
        try:
            change = commit_after(view, done, result=result, facts=served.table)
        except BaseException as error:  # noqa: BLE001 - as above
            change = _again(turn, view, served, error, result=result)
        if change.wait and isinstance(result, Failure):
            fields = _fields(turn) | {"turn": view.turn, "reason": result.code, "delay_ms": change.wait[0].delay_ms}
            log.info("the model is asked again later", extra=fields)
        return await self._commit(turn, view, owner, change)

    async def _perform(self, turn: Turn, performer: Performer, view: TurnView, effect: Effect) -> tuple[Effect | None, Result]:
        """Do an effect; (None, None) when it came to nothing because the turn was cancelled or is to be handed back."""
        if isinstance(effect, NoEffect):
            return effect, None
        if not await self._lease.wait(lambda: self._over(turn, view)):
            return None, None
        turn.in_effect = True
        try:
            turn.seat.show(Phase.RENDERING if isinstance(effect, AskModel) else Phase.IN_TOOL)
            return await performer.perform(view, effect)
        except asyncio.CancelledError:
            if turn.cancelled != view.turn or turn.task is None:
                raise
            turn.task.uncancel()
            return None, None
        finally:
            turn.in_effect = False
            if not performer.busy:
                turn.seat.show(Phase.STORING)

    def _over(self, turn: Turn, view: TurnView) -> bool:
        """Tell whether no effect is wanted any more: the turn is to be closed, or to go to another worker."""
        return self.draining or turn.cancelled == view.turn

    async def _wait(self, turn: Turn, seconds: float) -> bool:
        """Wait before another try; False when the child drains and the turn should go to another instead."""
        if self.draining:
            return False
        turn.waiting = asyncio.Event()
        delay = asyncio.ensure_future(self._clock.sleep(seconds))
        hurry = asyncio.ensure_future(turn.waiting.wait())
        try:
            await asyncio.wait((delay, hurry), return_when=asyncio.FIRST_COMPLETED)
        finally:
            delay.cancel()
            hurry.cancel()
            turn.waiting = None
        return not self.draining

    async def _fail(self, turn: Turn, view: TurnView, owner: str, error: BaseException) -> None:
        """End a turn that this child cannot go on with: it would fail the same way wherever it is begun again."""
        if isinstance(error, AgentVersionGone):
            await self._end_old_turn(turn, view, owner, error)
            return
        ref = secrets.token_hex(4)
        log.error("turn failed", exc_info=error, extra=_fields(turn) | {"turn": view.turn, "step": view.rev + 1, "ref": ref})
        message = f"something went wrong inside the worker (ref {ref}); its log says what"
        failure = {"code": "internal", "message": message, "retryable": False, "ref": ref}
        ended = closing_events(view, message)
        await turns.commit(turn.shard, view, owner, Commit(append=ended, ending="finish", closing=True, failure=failure))

    async def _end_old_turn(self, turn: Turn, view: TurnView, owner: str, error: AgentVersionGone) -> None:
        log.warning("turn of an older version ended", extra=_fields(turn) | {"turn": view.turn, "began": view.began, "reason": str(error)})
        failure = {"code": error.code, "message": str(error), "retryable": True, "ref": None}
        ended = closing_events(view, str(error))
        await turns.commit(turn.shard, view, owner, Commit(append=ended, ending="finish", closing=True, failure=failure))

    async def _commit(self, turn: Turn, view: TurnView, owner: str, change: Commit) -> TurnView:
        change = _with_tokens(turn, view, change)
        try:
            return await self._committed(turn, view, owner, change)
        except StoreFull:
            log.warning("the server is full: a step waits to be stored", extra=_fields(turn) | {"turn": view.turn})
            return await self._commit_when_there_is_room(turn, view, owner, change)

    async def _committed(self, turn: Turn, view: TurnView, owner: str, change: Commit) -> TurnView:
        after = await turns.commit(turn.shard, view, owner, change)
        self._beside.committed(change)
        return after

    async def _commit_when_there_is_room(self, turn: Turn, view: TurnView, owner: str, change: Commit) -> TurnView:
        """Keep what the step brought while the server may make room; it has been paid for. Then give the slot back."""
        backoff = Backoff(first_s=_RETRY_FIRST_S, most_s=_RETRY_MOST_S)
        until_s = self._clock.monotonic() + _FULL_PATIENCE_S
        while self._clock.monotonic() < until_s and await self._wait(turn, backoff.next_s()):
            with contextlib.suppress(StoreFull):
                return await self._committed(turn, view, owner, change)
        return await turns.commit(turn.shard, view, owner, Commit(ending="yield"))


def _again(
    turn: Turn, view: TurnView, served: Served, error: BaseException, *, unrun: tuple[str, ...] = (), result: Result = None
) -> Commit:
    """Return the commit after the strategy raised, which puts the step off or ends the turn."""
    if isinstance(error, AgentVersionGone):
        raise error
    ref = secrets.token_hex(4)
    log.error("a step failed", exc_info=error, extra=_fields(turn) | {"turn": view.turn, "step": view.rev + 1, "ref": ref})
    return after_error(view, f"the strategy raised (ref {ref})", bounds=served.table.bounds, ref=ref, unrun=unrun, result=result)


def _with_tokens(turn: Turn, view: TurnView, change: Commit) -> Commit:
    """Add the hash of each token that a call started here may hand out, so that its answer is known however soon it comes."""
    if not change.start:
        return change
    kinds = {row.call: row.kind for row in view.rows}
    kinds |= {call.id: call.kind for part in change.append if isinstance(part, Say) for call in part.calls}
    tokens = tuple((call, turn.token(call)[1]) for call in change.start if kinds[call] in ("callback", "approval"))
    return replace(change, tokens=tokens) if tokens else change


def _fields(turn: Turn) -> dict[str, object]:
    return {"session": turn.session, "epoch": turn.epoch}
