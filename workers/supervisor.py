"""Who keeps the workers of this machine alive and honest.

The supervisor runs no user code, so it always answers: it starts the children, renews the lease of each, tells the
server at once when one died, and kills one whose loop no longer comes round. A child's `valid_until` is only ever the
moment before a renewal was sent, plus the lease, less a margin: when renewals stop, children stop in time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.state.upkeep import Suspects

from .board import Board
from .children import Child, Spare
from .options import CHILDREN, Options
from .spares import Spares

if TYPE_CHECKING:
    from turnyard.lifecycle import Life

    from .leases import Leases

log = logging.getLogger("turnyard.workers")

EXIT_CONFIG, EXIT_UNSUPPORTED = 3, 4
_SETTLED_S = 5.0  # a child that lived this long did not die of its start
_WATCH_S = 0.5
_COMPARE_EVERY = 30  # beats; the answer names all turns of a busy child, so it is asked for when there is doubt, else rarely


class Supervisor:
    """The children of one worker, from the first start to the last exit."""

    def __init__(self, options: Options, leases: Leases, life: Life) -> None:
        self._options = options
        self._timing = options.timing
        self._leases = leases
        self._life = life
        self._clock = life.clock
        self._board = Board.create(options.lines, seats=options.seats)
        self._children: dict[int, Child] = {}
        self._isolating: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self._spares = Spares(options, self._board, life.clock)
        self._draining = asyncio.Event()
        self._ever_ready = False
        self._unusable = False
        self._lagging = Backoff()
        self._group = asyncio.TaskGroup()

    @property
    def ready(self) -> bool:
        """Tell whether every child is registered and its lease stands, so that it may take turns."""
        now, children = self._clock.monotonic(), [c for c in self._children.values() if not c.isolation]
        return len(children) == self._options.processes and all(c.enrolled and c.line.valid_until > now for c in children)

    async def run(self) -> int:
        """Supervise until the process is told to stop and all children are gone; return the exit code."""
        try:
            async with self._group as group:
                keepers = [group.create_task(self._keep(slot)) for slot in range(self._options.processes)]
                aides = [group.create_task(job) for job in (self._beats(), self._watch(), self._pass_on(), self._spares.keep())]
                try:
                    await asyncio.gather(*keepers)
                    while self._isolating:
                        await asyncio.wait([keeper for _, keeper in self._isolating.values()])
                finally:
                    for aide in aides:
                        aide.cancel()
        finally:
            self._spares.close()
            for child in self._children.values():
                child.kill()
            self._board.close()
        return EXIT_CONFIG if self._unusable else 0

    async def _pass_on(self) -> None:
        """Hand the request to stop on to the children, and end those that do not heed it in time."""
        await self._life.drain.wait()
        self._draining.set()
        log.info("draining", extra={"children": len(self._children)})
        self._stop_all()
        await self._clock.sleep(self._timing.grace_s)
        for child in self._children.values():
            log.warning("child outlived the grace and is killed", extra={"pid": child.process.pid, "worker": child.owner})
            child.kill()

    async def _keep(self, slot: int) -> None:
        """Keep one child running; another takes its place as soon as it is gone."""
        backoff = Backoff(first_s=0.1, most_s=10.0)
        while not self._draining.is_set():
            child = await self._spawn(self._options, slot, self._spares.take())
            if child is None:
                await self._clock.sleep(backoff.next_s())
                continue
            code = await self._see_out(child)
            if code == EXIT_UNSUPPORTED or (code == EXIT_CONFIG and not self._ever_ready):
                self._unusable = True
                self._draining.set()
                self._stop_all()
            elif not self._draining.is_set():
                await self._pause(child, backoff)

    async def _spawn(self, options: Options, slot: int, spare: Spare | None) -> Child | None:
        try:
            spare = spare or await Spare.start(options, self._board)
        except OSError as error:
            log.error("no child can be started", extra={"reason": str(error)})  # noqa: TRY400 - the reason says it all
            return None
        child = spare.become(options, self._board, slot=slot, now_s=self._clock.monotonic())
        self._children[slot] = child
        if self._draining.is_set():
            child.terminate()
        return child

    async def _see_out(self, child: Child) -> int:
        """Be there for a child until it is gone; return its exit code."""
        code = await self._follow(child)
        del self._children[child.slot]
        self._bury(child, code)
        return code

    def _able(self) -> tuple[int, ...]:
        """Return the levels of isolation for which another child may be started."""
        levels = [level for level, _ in self._isolating.values()]
        return () if self._draining.is_set() else tuple(level for level, most in CHILDREN.items() if levels.count(level) < most)

    def _isolate(self, level: int) -> None:
        """Start another child for suspects, if there may be one; it leaves when it has had nothing to do for a while."""
        if level in self._able():
            slot = next(n for n in range(self._options.processes, self._options.lines) if n not in self._isolating)
            # A suspect waits for this one child, the others' turns go on elsewhere: so it is first to have the spare.
            keeper = self._group.create_task(self._keep_isolated(level, slot, self._spares.take()))
            self._isolating[slot] = (level, keeper)

    async def _keep_isolated(self, level: int, slot: int, spare: Spare | None) -> None:
        log.info("a child is started for turns that may have killed theirs", extra={"isolation": level})
        try:
            child = await self._spawn(self._options.isolated(level), slot, spare)
            if child is not None:
                await self._see_out(child)
        finally:
            del self._isolating[slot]

    def _stop_all(self) -> None:
        for child in self._children.values():
            child.terminate()

    async def _pause(self, child: Child, backoff: Backoff) -> None:
        """Wait before the next start only when the last one came to nothing."""
        if child.ready or self._clock.monotonic() - child.born_s > _SETTLED_S:
            backoff.reset()
            return
        delay = asyncio.ensure_future(self._clock.sleep(backoff.next_s()))
        drained = asyncio.ensure_future(self._draining.wait())
        await asyncio.wait((delay, drained), return_when=asyncio.FIRST_COMPLETED)
        delay.cancel()
        drained.cancel()

    async def _follow(self, child: Child) -> int:
        """Listen to a child until it is gone; return its exit code, negative when a signal ended it."""
        ears = self._group.create_task(self._listen(child))
        try:
            return await child.process.wait()
        finally:
            # What it said last is already in the socket; a process that inherited the other end must not hold us up.
            await asyncio.wait((ears,), timeout=0.2)
            ears.cancel()
            child.link.close()

    async def _listen(self, child: Child) -> None:
        while (message := await child.link.receive()) is not None:
            child.hear(message)
            self._ever_ready = self._ever_ready or child.ready

    def _bury(self, child: Child, code: int) -> None:
        child.kill()  # what its tools started
        orderly = code == 0 and child.left
        level = logging.INFO if orderly or self._draining.is_set() else logging.WARNING
        # A child that was told to stop did not die of its turns, however it ended.
        suspects = Suspects() if self._draining.is_set() else child.line.seats.suspects()
        fields = {"pid": child.process.pid, "worker": child.owner, "exit_code": code}
        log.log(level, "child gone", extra=fields if orderly else fields | {"suspects": len(suspects.sessions)})
        if orderly:
            return
        self._group.create_task(self._tick_out(child.owner, suspects))
        if not child.isolation:
            # Their small children start while the server is told.
            for _ in range(0, len(suspects.sessions), self._options.isolated(1).turns):
                self._isolate(1)

    async def _tick_out(self, owner: str, suspects: Suspects) -> None:
        """Tell the server that an incarnation is dead, so that its turns need not wait for the lease to lapse."""
        backoff = Backoff()
        until = self._clock.monotonic() + self._timing.lease_s
        while self._clock.monotonic() < until:
            try:
                await self._leases.bury(owner, suspects)
            except StoreUnavailable:
                await self._clock.sleep(backoff.next_s())
            else:
                return

    async def _beats(self) -> None:
        while True:
            started = self._clock.monotonic()
            self._life.progress.tick("beat")
            await asyncio.gather(*(self._beat(child) for child in list(self._children.values()) if child.enrolled))
            await self._clock.sleep(max(0.0, self._timing.beat_s - (self._clock.monotonic() - started)))

    async def _beat(self, child: Child) -> None:
        owner = child.owner
        child.beats += 1
        compare = child.line.doubt or child.beats % _COMPARE_EVERY == 0
        child.line.doubt = False
        able = () if child.isolation else self._able()
        try:
            renewal = await self._leases.beat(owner, held=child.held if compare else None, able=able, capacity=child.capacity)
        except StoreUnavailable as error:
            if not self._lagging.failing:
                log.warning(
                    "a beat was not answered; children stop when their lease runs out", extra={"worker": owner, "reason": str(error)}
                )
            self._lagging.next_s()
            child.line.doubt = child.line.doubt or compare
            return
        self._lagging.reset()
        if owner != child.owner or not child.enrolled:
            return
        if renewal.lost:
            log.warning(
                "the lease is lost; the child drops its turns and registers anew", extra={"worker": owner, "pid": child.process.pid}
            )
            child.rename()
            return
        for level in renewal.wanted:
            self._isolate(level)
        child.line.valid_until = renewal.sent_s + self._timing.lease_s - self._timing.margin_s
        if renewal.news:
            child.link.send(**renewal.news)

    async def _watch(self) -> None:
        """Kill a child whose loop does not come round: it can neither stop in time nor hand anything back."""
        while True:
            await self._clock.sleep(_WATCH_S)
            self._life.progress.tick("watch")
            now = self._clock.monotonic()
            for child in self._children.values():
                if child.line.tick and now - child.line.tick > self._timing.max_block_s:
                    log.error(
                        "child does not come round and is killed: a tool or hook blocks its event loop; make it async, a plain def, or lift it",
                        extra={"pid": child.process.pid, "worker": child.owner, "blocked_s": round(now - child.line.tick, 1)},
                    )
                    child.line.tick = 0.0
                    child.kill()
