"""The bodies of calls that run longer than their tool may hold a turn: they go on here, beside their turns.

A body is this child's business twice over: before the commit that parks its call it belongs to the turn, and ends with it;
afterwards the call's row is this task's, as a lifted task's is, whoever has the turn by then. Nothing runs a second time
while this child lives.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .telling import Errand, Teller

if TYPE_CHECKING:
    from turnyard.engine.beside import Detached
    from turnyard.ports import Clock
    from turnyard.records.commit import Commit
    from turnyard.state.yard import Yard

    from .executor import Turn
    from .lease import Lease

log = logging.getLogger("turnyard.workers")

_CANCELLED_TEXT = "the call was cancelled while it ran"


@dataclass(slots=True, eq=False)
class _Body:
    """One body, and whose it is. `parked` is set once the row is this task's."""

    errand: Errand
    detached: Detached
    turn: Turn
    parked: asyncio.Event = field(default_factory=asyncio.Event)
    follower: asyncio.Task[None] | None = None


class Beside:
    """The bodies that go on beside the turns of one child."""

    def __init__(self, yard: Yard, lease: Lease, clock: Clock) -> None:
        self._lease = lease
        self._teller = Teller(yard, lease, clock)
        self._bodies: dict[str, _Body] = {}
        self._strays: set[asyncio.Task[None]] = set()
        self._all_settled = True

    def held(self) -> dict[str, list[str]]:
        """Return the calls whose rows are ours, per shard number."""
        held: dict[str, list[str]] = {}
        for body in self._bodies.values():
            if body.parked.is_set():
                held.setdefault(str(body.errand.shard), []).append(body.errand.call)
        return held

    def errand_of(self, call: str) -> Errand | None:
        """Return under what name the row of a call is told of it, None while that is its turn's business."""
        body = self._bodies.get(call)
        return body.errand if body is not None and body.parked.is_set() else None

    def take(self, turn: Turn, detached: Detached) -> str:
        """Keep a body running that its turn waits for no longer; return the name of its task, for the row."""
        store = turn.view.store if turn.view is not None else ""
        task = f"{detached.call}:beside:{detached.attempt}"
        errand = Errand(turn.shard.n, store, detached.call, self._lease.owner, task)
        body = self._bodies[detached.call] = _Body(errand, detached, turn)
        body.follower = asyncio.create_task(self._follow(body))
        return task

    def committed(self, change: Commit) -> None:
        """Take note of a commit that was taken: the rows of the calls it parks for tasks of ours are ours."""
        for park in change.park:
            if park.task is not None and park.call in self._bodies:
                self._bodies[park.call].parked.set()

    def left(self, turn: Turn) -> None:
        """Stop the bodies that a turn leaves without having parked their calls: their rows are the turn's."""
        for body in [b for b in self._bodies.values() if b.turn is turn and not b.parked.is_set()]:
            self._drop(body)

    def cancel(self, call: str) -> None:
        """Stop a body whose call has an outcome."""
        if call in self._bodies:
            self._bodies[call].detached.stop()

    def drop(self) -> None:
        """Stop everything at once: the rows may be somebody else's already."""
        for body in list(self._bodies.values()):
            self._drop(body)

    def disown(self, shard: int, store: str, call: str, task: str) -> None:
        """Let go of a row that the server counts to this child and nobody runs here: it is repeated if it may be, else unknown."""
        if call in self._bodies:
            return
        stray = asyncio.create_task(self._disown(Errand(shard, store, call, self._lease.owner, task)))
        self._strays.add(stray)
        stray.add_done_callback(self._strays.discard)

    async def finish(self) -> bool:
        """Wait until all bodies have ended and told so; False when a row could not be told."""
        while self._bodies or self._strays:
            followers = [b.follower for b in self._bodies.values() if b.follower is not None]
            await asyncio.wait([*followers, *self._strays])
        return self._all_settled

    # -- inside -------------------------------------------------------------------------------------------------------

    def _drop(self, body: _Body) -> None:
        body.detached.stop()
        if body.follower is not None:
            body.follower.cancel()

    async def _disown(self, errand: Errand) -> None:
        said = await self._teller.put_off(errand, 0)
        if said is not None and said.code == "conflict":  # it may not be repeated
            await self._teller.tell(errand, "unknown", {})

    async def _follow(self, body: _Body) -> None:
        """See a body to its end, and tell its row; not before the row is its own, or its outcome would be taken for the turn's."""
        call = body.errand.call
        try:
            await body.parked.wait()
            await asyncio.wait({body.detached.body})
            outcome, said = _outcome(body.detached)
            self._all_settled = await self._teller.tell(body.errand, outcome, said) and self._all_settled
        finally:
            if self._bodies.get(call) is body:
                del self._bodies[call]


def _outcome(detached: Detached) -> tuple[str, dict[str, Any]]:
    try:
        result = detached.result
    except Exception as error:
        log.exception("a call beside its turn failed", extra={"call": detached.call, "reason": str(error)})
        return "unknown", {}
    if result is None:
        return "cancelled", {"content": _CANCELLED_TEXT, "is_error": True}
    return ("error" if result.is_error else "result"), result.body
