"""`python -m tests.faults.bare_worker URL`: a worker of the pool `bare` made of the engine and the state API alone.

Its agent makes calls that need an approval, parallel batches and retry delays without any of the real workers' code.
Approvals are left as orders for the vendors of the load, who decide them. Now and then a commit is sent again after the next one
was made, as a packet that was under way for long; the fence must tell it apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.faults.app import BOOK, HERE, Player
from turnyard.engine.effects import AskModel, RunTool, ToolFact, ToolResult, ToolTable
from turnyard.engine.runner import Means, Model, Performer
from turnyard.engine.turn import commit_after, next_effect
from turnyard.errors import Diverged, FenceLost, StoreUnavailable
from turnyard.records.commit import Commit, TurnView, Wait
from turnyard.records.ids import new_owner_id
from turnyard.state import turns
from turnyard.state.fleet import Assignment, Lists, Registration, beat, register, take
from turnyard.state.yard import Shard, Yard

FACTS: Mapping[str, ToolFact] = {
    "approve": ToolFact("approval", awaited=True),
    "par": ToolFact(),
    "par_again": ToolFact(idempotent=True),
}
TABLE = ToolTable(FACTS, parallel=2, approval_ms=1500)
LEASE_MS = int(os.environ.get("TURNYARD__TIMING__LEASE_MS", "1000"))
BEAT_S = int(os.environ.get("TURNYARD__TIMING__BEAT_MS", "200")) / 1000


class BareWorker:
    """One incarnation after the other, and the turns that the present one runs."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._rng = random.Random(os.getpid())
        self._delayed: set[str] = set()
        self._performer = Performer(Means((Model(Player(), "player"),), self._run, self._instruct))

    async def run(self) -> None:
        """Serve until killed."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                await self._incarnation(new_owner_id())
            for task in self._turns.values():
                task.cancel()
            await asyncio.gather(*self._turns.values(), return_exceptions=True)
            self._turns.clear()
            await asyncio.sleep(0.1)

    async def _incarnation(self, owner: str) -> None:
        # It has no other child for turns whose worker died, so it runs those, too.
        pools = ("bare", "bare!1", "bare!2")
        registration = Registration(owner, "worker", "bare", os.getpid(), os.getpid(), pools, {"bare": 0}, 20)
        await register(self._shard, registration, lease_ms=LEASE_MS)
        taking = asyncio.create_task(self._take(Lists(registration)))
        try:
            while True:
                said = await beat(self._shard, owner, held=list(self._turns), lease_ms=LEASE_MS)
                if said.lost:
                    return
                for stranger in said.strangers:
                    if isinstance(stranger, Assignment):
                        self._start(owner, stranger)
                await asyncio.sleep(BEAT_S)
        finally:
            taking.cancel()

    async def _take(self, lists: Lists) -> None:
        while True:
            try:
                for found in await take(self._shard, lists, free=20 - len(self._turns), block_ms=500):
                    if isinstance(found, Assignment):
                        self._start(lists.registration.owner, found)
            except StoreUnavailable:
                await asyncio.sleep(0.1)

    def _start(self, owner: str, assignment: Assignment) -> None:
        if assignment.session not in self._turns:
            task = asyncio.create_task(self._turn(owner, assignment))
            self._turns[assignment.session] = task
            task.add_done_callback(lambda _: self._turns.pop(assignment.session, None))

    async def _turn(self, owner: str, assignment: Assignment) -> None:
        try:
            view = await turns.begin(self._shard, assignment.session, epoch=assignment.epoch, owner=owner, serial=0)
            before: tuple[TurnView, Commit] | None = None
            while view is not None and not view.ended:
                self._leave_orders(view)
                change = await self._next(view)
                latest = view
                view = await turns.commit(self._shard, view, owner, change)
                if before is not None and self._rng.random() < 0.1:
                    await self._late_packet(owner, *before)
                before = (latest, change)
        except (FenceLost, Diverged, StoreUnavailable):
            return  # somebody else goes on, or the next beat names it

    async def _next(self, view: TurnView) -> Commit:
        """Return the next commit: what the engine says, or now and then a delay before the model is asked."""
        effect = next_effect(view, TABLE)
        if isinstance(effect, AskModel) and view.turn not in self._delayed and self._rng.random() < 0.3:
            self._delayed.add(view.turn)
            return Commit(wait=(Wait(f"w{view.rev}", self._rng.choice(("retry", "timer")), 300),), ending="park")
        done, result = await self._performer.perform(view, effect)
        return commit_after(view, done, result=result, facts=TABLE)

    async def _late_packet(self, owner: str, view: TurnView, change: Commit) -> None:
        with contextlib.suppress(FenceLost, Diverged):
            await turns.commit(self._shard, view, owner, change)
            BOOK.note("passed", session=view.session, rev=view.rev + 1)

    def _leave_orders(self, view: TurnView) -> None:
        for row in view.rows:
            path = HERE / "orders" / f"{row.call}.json"
            if row.kind == "approval" and not path.exists():
                order = {"call": row.call, "kind": "approval", "store": view.store, "secret": None, "made_s": _now_s(), "park_s": 1.5}
                draft = path.with_suffix(f".{os.getpid()}")
                draft.write_text(json.dumps(order))
                draft.rename(path)

    async def _run(self, view: TurnView, effect: RunTool) -> ToolResult:
        BOOK.note("ran", key=effect.key, tool=effect.name, repeatable=effect.row.idempotent, call=effect.row.call)
        await asyncio.sleep(0.2)
        return ToolResult("done")

    async def _instruct(self, view: TurnView) -> str:
        return "Play your part."


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def main(url: str) -> None:
    """Serve the first shard."""
    while True:
        try:
            yard = await Yard.open(url)
        except StoreUnavailable:
            await asyncio.sleep(0.1)
            continue
        await BareWorker(yard.shards[0]).run()


if __name__ == "__main__":
    (Path(HERE) / "orders").mkdir(exist_ok=True)
    asyncio.run(main(sys.argv[1]))
