"""What a supervisor says to the server for its children, on all shards at once."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from turnyard.errors import StoreUnavailable
from turnyard.state import fleet, upkeep

from .rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from turnyard.state.yard import Shard, Yard

    from .options import Timing


_UNCOMPARED = -1
_Answer = tuple[float, fleet.Beat]  # when the beat was sent, and what was said to it


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a beat answered. `news` is for the child, as it is sent to it; empty when there is none.

    `sent_s` is when the oldest beat that it counts was sent, by the monotonic clock: the lease runs from there. `wanted`
    are the levels of isolation for which suspects wait somewhere.
    """

    lost: bool
    sent_s: float = 0.0
    wanted: frozenset[int] = frozenset()
    news: dict[str, Any] = field(default_factory=dict[str, Any])


class Leases:
    """The leases of one supervisor's children. They are this process' own: a fork of it has none of them."""

    def __init__(self, yard: Yard, timing: Timing) -> None:
        self._yard = yard
        self._pid = os.getpid()
        self._lease_ms = round(timing.lease_s * 1000)
        self._lists: dict[str, dict[str, list[str]]] = {}
        self._beat_s = timing.beat_s
        self._flights: dict[tuple[str, int], tuple[float, asyncio.Task[fleet.Beat]]] = {}
        self._rooms: dict[str, Rooms] = {}
        self._parts: dict[str, list[int]] = {}

    async def beat(
        self, owner: str, *, held: Mapping[str, Sequence[str]] | None, able: Sequence[int] = (), capacity: int | None = None
    ) -> Renewal:
        """Renew one incarnation everywhere; `held` is what it runs, per shard number, None not to compare it.

        `able` are the levels of isolation for which another child could be started. `capacity` is how many turns it can
        run; with several shards it is divided among them.

        Raises:
            StoreUnavailable: a shard did not answer; the lease is as old as the last beat that was answered.
        """
        if os.getpid() != self._pid:
            return Renewal(lost=True)
        rooms = self._rooms_of(owner, capacity)
        asked = rooms.ask() if rooms else [None] * len(self._yard.shards)
        answers = await self._all(owner, partial(self._beat, owner=owner, held=held, able=able), asked)
        beats = [beat for _, beat in answers]
        if any(b.lost for b in beats):
            self._forget(owner)
            return Renewal(lost=True)
        if len(beats) < len(self._yard.shards):
            raise StoreUnavailable(
                f"{len(self._yard.shards) - len(beats)} of {len(self._yard.shards)} shards did not answer a beat in time"
            )
        news: dict[str, Any] = {}
        if rooms:
            before = self._parts.get(owner)
            rooms.heard(beats)
            if rooms.parts != before:
                news["rooms"] = self._parts[owner] = rooms.parts
        lists = {str(n): list(b.lists) for n, b in enumerate(beats)}
        if lists != self._lists.get(owner, {n: [] for n in lists}):
            news["lists"] = self._lists[owner] = lists
        turns = [(n, s.session, s.epoch) for n, b in enumerate(beats) for s in b.strangers if isinstance(s, fleet.Assignment)]
        rows = [(n, s.store, s.call, s.task) for n, b in enumerate(beats) for s in b.strangers if isinstance(s, fleet.RowRef)]
        wanted = frozenset(level for b in beats for level in b.wanted)
        news |= ({"turns": turns} if turns else {}) | ({"rows": rows} if rows else {})
        return Renewal(lost=False, sent_s=min((sent_s for sent_s, _ in answers), default=0.0), wanted=wanted, news=news)

    async def _all(self, owner: str, beat: Callable[..., Coroutine[Any, Any, fleet.Beat]], asked: Sequence[int | None]) -> list[_Answer]:
        """Have a beat on its way to every shard, and return what was answered before the next is due.

        A shard that is slow keeps its one beat in flight, to be counted when it lands; one that does not answer keeps
        the others from nothing: their leases go on.
        """
        now = self._yard.clock.monotonic()
        flights = [(owner, shard.n) for shard in self._yard.shards]
        for flight, shard, room in zip(flights, self._yard.shards, asked, strict=True):
            if flight not in self._flights:
                task = asyncio.create_task(beat(shard, room=room))
                task.add_done_callback(_heard)
                self._flights[flight] = (now, task)
        if flights:
            await asyncio.wait([self._flights[flight][1] for flight in flights], timeout=self._beat_s)
        landed = [self._flights.pop(flight) for flight in flights if flight in self._flights and self._flights[flight][1].done()]
        return [(sent_s, task.result()) for sent_s, task in landed if not isinstance(task.exception(), StoreUnavailable)]

    async def _beat(
        self, shard: Shard, *, owner: str, held: Mapping[str, Sequence[str]] | None, able: Sequence[int], room: int | None
    ) -> fleet.Beat:
        here = _UNCOMPARED if held is None else held.get(str(shard.n), ())
        return await fleet.beat(shard, owner, held=here, lease_ms=self._lease_ms, able=able, room=room)

    def _rooms_of(self, owner: str, capacity: int | None) -> Rooms | None:
        shards = len(self._yard.shards)
        if capacity is None or shards == 1:
            return None
        if owner not in self._rooms:
            self._rooms[owner] = Rooms(capacity, shards, owner)
        return self._rooms[owner]

    def _forget(self, owner: str) -> None:
        self._lists.pop(owner, None)
        self._rooms.pop(owner, None)
        self._parts.pop(owner, None)
        for flight in [flight for flight in self._flights if flight[0] == owner]:
            self._flights.pop(flight)[1].cancel()

    async def bury(self, owner: str, suspects: upkeep.Suspects) -> None:
        """Declare one incarnation dead: what it ran is for others to take, now, and the suspects apart from all others.

        Raises:
            StoreUnavailable: a shard did not answer; say it again.
        """
        self._forget(owner)
        for shard in self._yard.shards:
            # A tick hands over a hundred turns at a time, in whatever order; the rest is as dead as the first.
            while (await upkeep.tick(shard, dead=(owner,), suspects=suspects, who="supervisor", lease_ms=self._lease_ms)).expelled >= 100:
                pass


def _heard(task: asyncio.Task[fleet.Beat]) -> None:
    """Take note of an error, which whoever counts the beat is told of, if anybody does."""
    if not task.cancelled():
        task.exception()
