"""How a child comes by turns: it takes as many as it has room for, and hears of cancels meanwhile.

A turn in hand is known by session and epoch. What the server counts to this child and the child does not know, it
begins again; what it began and the server gave to somebody else fails at the fence by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.state import fleet
from turnyard.state.shares import first_parts

from .executor import Executor, Turn

if TYPE_CHECKING:
    from turnyard.ports import Clock
    from turnyard.state.yard import Shard, Yard

    from .beside import Beside
    from .board import Seats
    from .lease import Lease

log = logging.getLogger("turnyard.workers")

_BLOCK_MS = 1000  # also how long a drain may take to be noticed by an idle child


class Turns:
    """The turns of one child, at most `most` at a time but for those that it is found to hold already."""

    def __init__(self, yard: Yard, executor: Executor, lease: Lease, clock: Clock, *, seats: Seats, most: int, beside: Beside) -> None:
        self._yard = yard
        self._executor = executor
        self._lease = lease
        self._clock = clock
        self._seats = seats
        self._beside = beside
        self._most = most
        self._free = most
        self._rooms: list[int] = []
        self._here: Counter[int] = Counter()
        self._turns: dict[tuple[str, int], Turn] = {}
        self._lists: dict[int, fleet.Lists] = {}
        self._room = asyncio.Event()
        self._drain = asyncio.Event()
        self._controls: dict[int, asyncio.Task[None]] = {}
        self._confirming = asyncio.TaskGroup()
        self._all_returned = True

    @property
    def running(self) -> int:
        """How many turns are in hand."""
        return len(self._turns)

    def held(self) -> dict[str, list[str]]:
        """Return the sessions in hand, and the calls that go on beside them, per shard number."""
        held = self._beside.held()
        for turn in self._turns.values():
            held.setdefault(str(turn.shard.n), []).append(turn.session)
        return held

    def enrol(self, registration: fleet.Registration) -> None:
        """Take under this name from now on."""
        self._lists = {shard.n: fleet.Lists(registration) for shard in self._yard.shards}
        self._rooms = first_parts(self._most, len(self._yard.shards), registration.owner)

    def drop(self) -> None:
        """Let go of everything at once: another incarnation may have it already."""
        for turn in self._turns.values():
            if turn.task is not None:
                turn.task.cancel()
        self._beside.drop()

    def news(self, message: dict[str, Any]) -> None:
        """Take in what the supervisor heard: further lists to take from, room per shard, turns that are ours without our knowing."""
        if "rooms" in message:
            self._rooms = message["rooms"]
            self._room.set()
        for n, lists in message.get("lists", {}).items():
            if int(n) in self._lists:
                self._lists[int(n)].extra = tuple(lists)
        for n, session, epoch in message.get("turns", ()):
            shard = self._yard.shard(n)
            if shard is not None and not self._drain.is_set():
                self._start(shard, fleet.Assignment(session, epoch))
        for n, store, call, task in message.get("rows", ()):
            self._beside.disown(n, store, call, task)

    async def serve(self, drain: asyncio.Event) -> bool:
        """Take and run turns until `drain` is set and the last one is handed back; False when one could not be."""
        async with self._confirming as group:
            takers = [group.create_task(self._take(shard)) for shard in self._yard.shards]
            await drain.wait()
            self._drain.set()
            self._executor.draining = True
            self._room.set()
            for turn in self._turns.values():
                turn.hurry()
            await asyncio.wait(takers)
            while self._turns:
                await asyncio.wait([turn.task for turn in self._turns.values() if turn.task is not None])
            for control in self._controls.values():
                control.cancel()
            ears = [group.create_task(self._hear_to_the_end(shard)) for shard in self._yard.shards]
            told = await self._beside.finish()
            for ear in ears:
                ear.cancel()
        return self._all_returned and told

    async def _take(self, shard: Shard) -> None:
        backoff = Backoff()
        while not self._drain.is_set():
            if not await self._lease.name(self._drain.is_set):
                return
            try:
                free = self._room_for(shard)
                if free > 0:
                    found = await fleet.take(shard, self._lists[shard.n], free=free, block_ms=_BLOCK_MS)
                else:
                    found = await self._until_room(shard)
            except StoreUnavailable as error:
                if not backoff.failing:
                    log.warning("no turns can be taken", extra={"shard": shard.n, "reason": str(error)})
                await self._clock.sleep(backoff.next_s())
                continue
            backoff.reset()
            for item in found:
                self._heed(shard, item)

    def _room_for(self, shard: Shard) -> int:
        """All shards are asked at the same time, so each may fill its own part and no more."""
        return min(self._free, self._rooms[shard.n] - self._here[shard.n])

    async def _until_room(self, shard: Shard) -> list[fleet.Assignment | fleet.Cancelled]:
        """Wait until another turn may be taken; cancels of those in hand are heard all the while."""
        control = self._controls.get(shard.n)
        if control is None or control.done():
            self._controls[shard.n] = asyncio.create_task(self._hear(shard))
        self._room.clear()
        await self._room.wait()
        return []

    async def _hear(self, shard: Shard) -> None:
        """Hear of cancels while there is no room; a child with room hears of them as it takes."""
        while self._room_for(shard) <= 0 and not self._drain.is_set():
            await self._listen(shard)

    async def _hear_to_the_end(self, shard: Shard) -> None:
        """Hear of cancels of what goes on beside the turns, once those are handed back."""
        while True:
            await self._listen(shard)

    async def _listen(self, shard: Shard) -> None:
        try:
            for item in await fleet.take(shard, self._lists[shard.n], free=0, block_ms=_BLOCK_MS):
                self._heed(shard, item)
        except StoreUnavailable:
            await self._clock.sleep(1.0)

    def _heed(self, shard: Shard, item: fleet.Assignment | fleet.Cancelled) -> None:
        if isinstance(item, fleet.Assignment):
            self._start(shard, item)
        elif item.call is not None:
            self._beside.cancel(item.call)
        elif item.session is not None and item.epoch is not None:
            turn = self._turns.get((item.session, item.epoch))
            if turn is not None:
                self._confirming.create_task(self._executor.confirm(turn))

    def _start(self, shard: Shard, assignment: fleet.Assignment) -> None:
        key = (assignment.session, assignment.epoch)
        if key in self._turns:
            return
        turn = Turn(shard, assignment.session, assignment.epoch, assignment.agent, self._seats.take(assignment.session))
        self._turns[key] = turn
        self._free -= 1
        self._here[shard.n] += 1
        turn.task = asyncio.create_task(self._run(key, turn))

    async def _run(self, key: tuple[str, int], turn: Turn) -> None:
        try:
            if not await self._executor.run(turn):
                self._left_behind()
        except asyncio.CancelledError:
            # Dropped: the name it was begun under is expelled, so there is nothing to hand back. Unless nobody dropped
            # it and the error came out of the app: then the server still counts the turn to this child.
            if turn.task is not None and not turn.task.cancelling():
                self._left_behind()
        except BaseException:
            # Whatever it was: a turn that nobody hands back is held for as long as this process lives.
            self._left_behind()
            log.exception("turn dropped by a defect", extra={"session": turn.session, "epoch": turn.epoch})
        finally:
            self._seats.leave(turn.seat)
            del self._turns[key]
            self._free += 1
            self._here[turn.shard.n] -= 1
            self._room.set()

    def _left_behind(self) -> None:
        self._all_returned = False
        self._lease.doubt()
