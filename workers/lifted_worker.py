"""How a child runs lifted calls that arq hands it.

A task's first act is to take its call's row under this child's lease; whoever is refused there runs nothing. Its last
act is to tell the row what came of it, until the row has answered. In between nothing is stored: when the child dies,
the row says whether the call is relayed again or ends as unknown.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.lifted import LiftedTask, LiftRunner
from turnyard.state import calls, fleet
from turnyard.tools.later import NotYet

from .bench import Wires
from .reports import Reports
from .telling import Errand, Teller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnyard.ports import Clock
    from turnyard.state.calls import RowStart
    from turnyard.state.yard import Shard, Yard
    from turnyard.tools.runtime import ToolOutcome

    from .lease import Lease

log = logging.getLogger("turnyard.workers")

_BLOCK_MS = 1000
_RENAMED_S = 0.05
_READ_AGAIN_S = (0.5, 2.0)
_CANCELLED_TEXT = "the call was cancelled while it ran"


class Bench(Protocol):
    """Does the calls of this child's apps."""

    async def run(self, task: LiftedTask, start: RowStart, wires: Wires) -> ToolOutcome | NotYet:
        """Do what the row asks for; never raises but for cancellation."""
        ...

    async def stop(self, task: LiftedTask, start: RowStart) -> None:
        """Have a call's tool stop what the call left going elsewhere; never raises but for cancellation."""
        ...


class LiftedTasks:
    """The lifted tasks of one child."""

    def __init__(self, yard: Yard, bench: Bench, lease: Lease, clock: Clock) -> None:
        self._yard = yard
        self._bench = bench
        self._lease = lease
        self._clock = clock
        self._teller = Teller(yard, lease, clock)
        self._reports = Reports(yard, clock)
        self._running: dict[str, tuple[LiftedTask, asyncio.Task[Any]]] = {}
        self._cancelled: set[str] = set()
        self._lists: dict[int, fleet.Lists] = {}
        self._drain = asyncio.Event()
        self._strays: set[asyncio.Task[None]] = set()
        self._all_settled = True

    @property
    def running(self) -> int:
        """How many tasks are in hand."""
        return len(self._running)

    def held(self) -> dict[str, list[str]]:
        """Return the calls in hand, per shard number."""
        held: dict[str, list[str]] = {}
        for task, _ in self._running.values():
            held.setdefault(str(task.shard), []).append(task.call)
        return held

    def enrol(self, registration: fleet.Registration) -> None:
        """Run tasks under this name from now on."""
        self._lists = {shard.n: fleet.Lists(registration) for shard in self._yard.shards}

    def drop(self) -> None:
        """Let go of everything at once: it may have been relayed to another already."""
        for _, running in self._running.values():
            running.cancel()

    def news(self, message: dict[str, Any]) -> None:
        """Take in what the supervisor heard: rows that are ours without our knowing."""
        for n, store, call, job in message.get("rows", ()):
            if call not in self._running and not self._drain.is_set():
                stray = asyncio.create_task(self.run(LiftedTask(n, store, call), job))
                self._strays.add(stray)
                stray.add_done_callback(self._strays.discard)

    async def serve(self, drain: asyncio.Event, runners: Sequence[LiftRunner]) -> bool:
        """Run tasks until `drain` is set and those in hand are done; False when a row could not be told its outcome."""
        async with asyncio.TaskGroup() as group:
            ears = [group.create_task(self._hear(shard)) for shard in self._yard.shards]
            serving = [group.create_task(runner.serve(drain)) for runner in runners]
            await drain.wait()
            self._drain.set()
            await asyncio.wait([*serving, *self._strays])
            for ear in ears:
                ear.cancel()
        return self._all_settled

    async def _hear(self, shard: Shard) -> None:
        """Hear of calls that were cancelled or timed out while they run."""
        while True:
            await self._lease.name(lambda: False)
            try:
                for item in await fleet.take(shard, self._lists[shard.n], free=0, block_ms=_BLOCK_MS):
                    if isinstance(item, fleet.Cancelled) and item.call in self._running:
                        self._cancelled.add(item.call)
                        self._running[item.call][1].cancel()
            except StoreUnavailable:
                await self._clock.sleep(1.0)

    async def run(self, task: LiftedTask, job: str) -> None:
        """Run one relayed call, if its row is still for the taking."""
        shard = self._yard.shard(task.shard)
        current = asyncio.current_task()
        if shard is None or current is None or task.call in self._running:
            return
        owner, start = await self._take(shard, task, job)
        if start is not None and start.code == "OFF":
            await self._bench.stop(task, start)
            return
        if start is None or start.code not in ("OK", "ALREADY") or task.call in self._running:
            return
        self._running[task.call] = (task, current)
        try:
            # The lease may have run out while the row was taken: then its call is somebody else's to run.
            if await self._lease.wait(lambda: owner != self._lease.owner) and owner == self._lease.owner:
                errand = Errand(task.shard, task.store, task.call, owner, job)
                told = await self._tell(errand, start, await self._work(task, start, errand))
                self._all_settled = self._all_settled and told
        finally:
            del self._running[task.call]
            self._cancelled.discard(task.call)

    async def _take(self, shard: Shard, task: LiftedTask, job: str) -> tuple[str, RowStart | None]:
        """Take the row under a name that stands: what was refused to one that is gone is asked for again under the next."""
        while True:
            owner = await self._lease.name(self._drain.is_set)
            start = await self._begin(shard, task, owner=owner, job=job)
            if self._drain.is_set() or (start is not None and start.code != "LOST"):
                return owner, start
            while owner == self._lease.owner and not self._drain.is_set():
                await self._clock.sleep(_RENAMED_S)

    async def _begin(self, shard: Shard, task: LiftedTask, *, owner: str, job: str) -> RowStart | None:
        """Take the row; None when the server stayed away and the relay after this one has to do it."""
        backoff = Backoff(first_s=0.1)
        while not self._drain.is_set() and owner == self._lease.owner:
            try:
                return await calls.begin_row(shard, task.store, task.call, owner=owner, task=job)
            except StoreUnavailable:
                self._lease.doubt()
                await self._clock.sleep(backoff.next_s())
        if backoff.failing:
            self._all_settled = False  # the row may be ours
        return None

    async def _work(self, task: LiftedTask, start: RowStart, errand: Errand) -> tuple[str, dict[str, Any]] | NotYet:
        fields = {"session": start.session, "call": task.call, "tool": start.name, "attempt": start.attempt, "mode": start.mode}
        log.info("lifted call begun", extra=fields)
        try:
            done = await self._done(task, start, errand)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.call not in self._cancelled or current is None:
                raise
            current.uncancel()
            # The row has its outcome; telling it anyway makes the server count this task to nobody.
            return "cancelled", {"content": _CANCELLED_TEXT, "is_error": True}
        return done if isinstance(done, NotYet) else (("error" if done.is_error else "result"), done.body)

    async def _done(self, task: LiftedTask, start: RowStart, errand: Errand) -> ToolOutcome | NotYet:
        """Do what the row asks for. An answer that could not be read is read again soon; then it is passed over."""

        async def report(fraction: float, note: str) -> None:
            self._reports.say(errand, fraction, note)

        wires = Wires(report, lambda: task.call in self._cancelled)
        done = await self._bench.run(task, start, wires)
        for pause_s in _READ_AGAIN_S if start.mode == "resolve" else ():
            if not (isinstance(done, NotYet) and done.failed):
                break
            await self._clock.sleep(pause_s)
            done = await self._bench.run(task, start, wires)
        return done

    async def _tell(self, errand: Errand, start: RowStart, done: tuple[str, dict[str, Any]] | NotYet) -> bool:
        if isinstance(done, NotYet):
            again, request = done.again, done.request
            wanted = again.poll_ms if again is not None else (start.request or {}).get("poll_ms")
            return await self._teller.put_off(errand, wanted, request) is not None
        outcome, body = done
        return await self._teller.tell(errand, outcome, body)
