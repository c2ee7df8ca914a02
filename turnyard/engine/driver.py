"""How one run of a session in this process goes: turn after turn, until nothing is left that can be done here.

A run makes the same transitions as a worker. Between them it tells what was written, asks the owner where the owner
has a say, and takes what waits in the queues: steering before each request, follow-ups only when the run would end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import dropwhile, takewhile
from typing import Any

from turnyard.engine import transitions
from turnyard.engine.bus import Compacted
from turnyard.engine.compaction import Compaction, estimate_tokens
from turnyard.engine.cutting import compaction_of, idle_view, put_summary
from turnyard.engine.effects import Failure, ModelAnswer
from turnyard.engine.local_agent import LocalAgent
from turnyard.engine.memory import MemorySession
from turnyard.engine.messages import Message, messages_of
from turnyard.engine.options import Settings, TurnDone, asked, told
from turnyard.engine.outcomes import decide
from turnyard.engine.outside import Outside
from turnyard.engine.queues import MessageQueue
from turnyard.engine.results import parked_of
from turnyard.engine.runner import Means
from turnyard.engine.stepping import Steps
from turnyard.engine.wiring import Shared, wired
from turnyard.errors import ModelError
from turnyard.records.approvals import Decision
from turnyard.records.commit import Commit, TurnView
from turnyard.records.log import COMPACTION, RESULT, LogRecord

_EVER_S = 86_400.0
_CANCELLED = {"code": "cancelled", "message": "the run was aborted", "retryable": False, "ref": None}


@dataclass(slots=True)
class Run:
    """One run. `error` is why it failed or was aborted, None so far; `compactions` are those that took place in it."""

    shared: Shared
    agent: LocalAgent
    settings: Settings
    error: dict[str, Any] | None = None
    compactions: list[Compaction] = field(default_factory=list[Compaction])
    _halted: bool = False
    _stopped: bool = False
    _seen: int = 0
    _began: int = 0
    _delay: asyncio.Future[None] | None = None
    _asked: set[str] = field(default_factory=set[str])
    _means: Means = field(init=False)
    _steps: Steps = field(init=False)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __post_init__(self) -> None:
        self._steps = Steps(self.shared)

    @property
    def memory(self) -> MemorySession:
        """Return the session's state."""
        return self.shared.memory

    # -- the whole ----------------------------------------------------------------------------------------------------

    async def go(self, enter: Callable[[], None], *, poll: bool = True, ask: bool = False) -> None:
        """Run until nothing is left to do.

        `enter` brings in what is new; with `poll` what steers comes in, too. With `ask` the model is asked though nothing is new.
        """
        self.agent.wires.connect(self.shared.narration.tool_progress, lambda: self._steps.aborted)
        async with self._stack:
            await self._equip(self.settings)
            self._began = self._seen = self.memory.last_seq
            self.shared.narration.begin()
            try:
                enter()
                if poll:
                    take(self.shared.steering, self.memory)
                self._steps.ask = ask
                await self._turns()
            except BaseException as error:
                # the caller has the exception; the session must not stay in the hands of nobody
                self.error = {"code": "internal", "message": str(error) or type(error).__name__, "retryable": False, "ref": None}
                if self.memory.state == "running":
                    self.memory.state = "ready"
                raise
            finally:
                await self._close()

    def abort(self) -> None:
        """Stop what is being done, and end the run; returns at once."""
        self.error = dict(_CANCELLED)
        self._steps.abort()

    def hurry(self) -> None:
        """End a delay that holds the turn: nothing is waited for any more."""
        if self._delay is not None:
            self._delay.cancel()

    def added(self) -> list[Message]:
        """Return the messages that the run added to the transcript."""
        names = {call: row.name for call, row in self.memory.rows.items()}
        return messages_of((r for r in self.memory.log if r.seq > self._began and r.is_entry), names)

    async def _equip(self, settings: Settings) -> None:
        """Make ready what the turns are done with."""
        self.settings = settings
        self.agent = self.agent.under(settings)
        means = await self._stack.enter_async_context(self.agent.scope())
        self._means = wired(means, self.shared)
        self._steps.equip(self.agent.table, self._means)

    async def _close(self) -> None:
        try:
            await self._steps.performer.aclose()
        finally:
            self._tell()
            self.shared.narration.end(self.added())

    # -- turn after turn ----------------------------------------------------------------------------------------------

    async def _turns(self) -> None:
        while True:
            view = transitions.begin(self.memory)
            if view is not None:
                self._tell()
                await self._turn(view)
            elif not await self._more():
                return
            if self._stopped or (self._steps.aborted and not self._to_close()):
                return

    def _to_close(self) -> bool:
        """Tell whether an abort found a turn that is still to be closed; one that waits is woken for that."""
        memory = self.memory
        return bool(memory.turn) and (memory.state == "ready" or memory.request_cancel())

    async def _more(self) -> bool:
        """Bring in what is left to do, though no turn is due; tell whether there was anything."""
        shared, memory = self.shared, self.memory
        if not self._halted and memory.state == "idle" and take(shared.steering, memory):
            return True
        outside = Outside(memory, shared.narration, self._means, self._steps.stoppable)
        if await outside.work() or await self._decided():
            return True
        bodies = outside.bodies()
        if memory.next_due_ms is not None or bodies:
            await self._wait(memory.next_due_ms, bodies)
            if self._steps.aborted:
                await outside.stop()
            return True
        return not self._halted and memory.state == "idle" and take(shared.follow_ups, memory)

    async def _decided(self) -> bool:
        """Ask the owner, once each, about calls that wait for approval; tell whether one was decided."""
        decides = self.shared.options.on_approval
        if decides is None:
            return False
        before = len(self._asked)
        for one in parked_of(self.memory):
            if one.call in self._asked or (one.request or {}).get("kind") != "allow_deny":
                continue
            said = await self._steps.stoppable(asked(partial(decides, one), None))
            if said is None or self._steps.aborted:
                continue
            self._asked.add(one.call)
            decide(self.memory, one, Decision("allow" if said else "deny", "") if isinstance(said, bool) else said)
        return len(self._asked) > before

    async def _wait(self, due_ms: int | None, bodies: Sequence[asyncio.Future[Any]]) -> None:
        """Wait until it is time for something, a body beside the turn has ended, or the run is to end."""
        clock = self.memory.clock
        delay_s = _EVER_S if due_ms is None else max(0, due_ms - clock.now_ms()) / 1000
        self._delay = delay = asyncio.ensure_future(clock.sleep(delay_s))
        try:
            await self._steps.stoppable(asyncio.wait({delay, *bodies}, return_when=asyncio.FIRST_COMPLETED))
        finally:
            self._delay = None
            delay.cancel()
        if not self._steps.aborted:
            self.memory.expire()

    async def _turn(self, view: TurnView) -> None:
        with self._steps.performer.span("turn", session=view.session, turn=view.turn):
            await self._take_steps(view)

    async def _take_steps(self, view: TurnView) -> None:
        while not view.ended:
            done, result = await self._steps.step(view)
            change = self._steps.commit_after(view, done, result)
            before, view = view, await self._commit(view, change)
            if isinstance(result, ModelAnswer):
                self._count(before, result)

    # -- between two requests -----------------------------------------------------------------------------------------

    async def _commit(self, view: TurnView, change: Commit) -> TurnView:
        """Make a transition and tell of it. What waits is taken in only after the turn of the run that it ends is told."""
        if change.failure is not None or change.closing:
            self.error = dict(change.failure or _CANCELLED)
        after = transitions.commit(self.memory, view, replace(change, claim=False))
        self._tell(of=view.turn if change.ending == "finish" else None)
        if change.ending == "finish":
            self._halted = self._halted or change.failure is not None or change.closing or _closed(self.memory, view.turn)
            self.shared.narration.end_turn()
            self._tell()
        goes_on = change.claim or (change.ending == "finish" and not self._halted)
        if not goes_on or after.ended or self._steps.aborted:
            return after
        return await self._between(after)

    async def _between(self, view: TurnView) -> TurnView:
        """Ask the owner how to go on, then take in what waits."""
        options, narration = self.shared.options, self.shared.narration
        done, narration.last_turn = narration.last_turn, None
        if done is not None and done.results:
            stop = options.should_stop_after_turn
            if stop is not None and await self._steps.stoppable(asked(lambda: stop(done), otherwise=False)) and not self._steps.aborted:
                return self._stop(view)
            await self._prepare_next(done)
        if self._steps.aborted:
            return view
        take(self.shared.steering, self.memory)
        if not self.memory.inbox:
            return view
        view = transitions.commit(self.memory, view, Commit(claim=True))
        self._tell()
        return view

    async def _prepare_next(self, done: TurnDone) -> None:
        prepare = self.shared.options.prepare_next_turn
        settings = await self._steps.stoppable(asked(lambda: prepare(done, self.settings), None)) if prepare is not None else None
        if settings is not None and settings != self.settings and not self._steps.aborted:
            await self._equip(settings)

    def _stop(self, view: TurnView) -> TurnView:
        """End the turn though the model has not answered; what waits stays where it is."""
        self._halted = self._stopped = True
        view = transitions.commit(self.memory, view, Commit(ending="finish"))
        if not view.ended and view.code == "OK":
            view = transitions.commit(self.memory, view, Commit(ending="yield"))
        return view

    # -- outside a turn -----------------------------------------------------------------------------------------------

    async def condense(self) -> Compaction | None:
        """Have what is older than the newest messages summarised; None when that would gain nothing, or was aborted.

        Raises:
            ModelError: there is no summary; nothing is changed.
        """
        async with self._stack:
            await self._equip(self.settings)
            self._seen = self.memory.last_seq
            more = True
            while more and (done := await self._steps.stoppable(self._steps.performer.condense(idle_view(self.memory)))) is not None:
                fold, summary = done
                if isinstance(summary, Failure):
                    raise ModelError(f"nothing was summarised: {summary.message}", retryable=summary.retryable, code=summary.code)
                put_summary(self.memory, fold, summary)
                self._tell()
                more = fold.more
        return self.compactions[-1] if self.compactions else None

    # -- what is told -------------------------------------------------------------------------------------------------

    def _tell(self, *, of: str | None = None) -> None:
        """Tell what was written since the last time, as far as it is of the turn `of` if that is given."""
        new = [record for record in takewhile(lambda r: r.seq > self._seen, reversed(self.memory.log)) if of in (None, record.turn)]
        new.reverse()
        self._seen = new[-1].seq if new else self._seen
        for record in new:
            if record.type == COMPACTION:
                self._compacted(record)
        self.shared.narration.tell([record for record in new if record.is_entry])

    def _compacted(self, record: LogRecord) -> None:
        done = compaction_of(record)
        self.compactions.append(done)
        told(self.shared.options.on_compaction, done)
        self.shared.bus.emit(Compacted(done))

    def _count(self, view: TurnView, answer: ModelAnswer) -> None:
        self.shared.active = answer.active_tokens or estimate_tokens(messages_of(view.entries))
        told(self.shared.options.on_usage, self.shared.usage())


def take(queue: MessageQueue, memory: MemorySession) -> bool:
    """Bring in what a queue gives out; tell whether there was anything."""
    bodies = queue.drain()
    for body in bodies:
        memory.accept(body)
    return bool(bodies)


def _closed(memory: MemorySession, turn: str) -> bool:
    """Tell whether a tool of this turn ended it."""
    of_turn = takewhile(lambda r: r.turn == turn, dropwhile(lambda r: r.turn != turn, reversed(memory.log)))
    return any(r.type == RESULT and not r.aside and r.body.get("closes") for r in of_turn)
