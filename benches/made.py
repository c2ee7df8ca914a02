"""Sessions made in bulk by the state functions, without roles: accepted, dispatched, begun and committed here.

What is stored afterwards is what any worker would have left, because the scripts are the same.
"""

from __future__ import annotations

import asyncio

from turnyard.records.commit import Answer, Commit, NewCall, Park, Say
from turnyard.records.ids import call_id, new_job_id, new_owner_id
from turnyard.records.messages import UserMessage
from turnyard.state import fleet, flows, turns
from turnyard.state.ingress import accept_message
from turnyard.state.yard import Shard, Yard

AGENT = "plain"
TEXT = "hello there"
ANSWER = "Well said."
ARGUMENTS = {"where": "there"}
LEASE_MS = 3_600_000
DAY_MS = 86_400_000
BATCH = 500
_SAY = Commit(append=(Say({"text": ANSWER, "finish": "stop", "model": "plain"}),), ending="finish")


class Maker:
    """A whole deployment in one loop."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._shard: Shard = yard.shards[0]
        self._owner = new_owner_id()
        registration = fleet.Registration(self._owner, "worker", "bench", 0, 0, ("default",), {AGENT: 1}, 10 * BATCH)
        self._registration = registration
        self._lists = fleet.Lists(registration)

    async def run(self, sessions: int, *, turns_each: int = 1, park: bool = False) -> None:
        """Give each of `sessions` sessions `turns_each` turns; with `park` each leaves a callback waiting for a day."""
        await flows.set_limits(self._shard, max_concurrent_turns=10 * BATCH)
        await fleet.register(self._shard, self._registration, lease_ms=LEASE_MS)
        for _ in range(turns_each):
            for first in range(0, sessions, BATCH):
                await self._batch([f"m-{n}" for n in range(first, min(sessions, first + BATCH))], park=park)

    async def _batch(self, names: list[str], *, park: bool) -> None:
        await asyncio.gather(*(self._accept(name) for name in names))
        left = True
        while left:
            left = (await flows.dispatch(self._shard)).left
        taken = 0
        while taken < len(names):
            found = await fleet.take(self._shard, self._lists, free=BATCH)
            mine = [item for item in found if isinstance(item, fleet.Assignment)]
            if not mine:
                await flows.dispatch(self._shard)
            taken += len(mine)
            await asyncio.gather(*(self._turn(item, park=park) for item in mine))

    async def _accept(self, name: str) -> None:
        message = UserMessage("default", name, AGENT, {"text": TEXT}, new_job_id(0), "h", complete_when="turn")
        await accept_message(self._yard, message)

    async def _turn(self, item: fleet.Assignment, *, park: bool) -> None:
        view = await turns.begin(self._shard, item.session, epoch=item.epoch, owner=self._owner, serial=1)
        if view is None:
            raise RuntimeError(f"the assignment of {item.session} is void")
        if park:
            call = call_id(view.store, view.turn, view.rev + 1, 0)
            asked = NewCall(call, "callback", {"name": "wait", "args": ARGUMENTS, "provider_id": "call_0"})
            view = await turns.commit(self._shard, view, self._owner, Commit(append=(Say({"text": ""}, (asked,)),), start=(call,)))
            parked = Commit(append=(Answer(call, "placeholder"),), park=(Park(call, DAY_MS, "0" * 32),), claim=True)
            view = await turns.commit(self._shard, view, self._owner, parked)
        await turns.commit(self._shard, view, self._owner, _SAY)


async def make(url: str, sessions: int, *, turns_each: int = 1, park: bool = False) -> None:
    """Make sessions on the server at `url`."""
    yard = await Yard.open(url)
    try:
        await Maker(yard).run(sessions, turns_each=turns_each, park=park)
    finally:
        await yard.aclose()
