"""How whoever did a call's work tells the call's row what came of it: as often as it takes, for as long as it has a name.

A row that has its outcome already is told all the same: then it lets go of this task.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.state import calls, ingress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from turnyard.ports import Clock
    from turnyard.records.messages import Accepted
    from turnyard.state.yard import Yard

    from .lease import Lease

log = logging.getLogger("turnyard.workers")


@dataclass(frozen=True, slots=True)
class Errand:
    """A call's work in the hands of one task: the row is told by (owner, task) alone."""

    shard: int
    store: str
    call: str
    owner: str
    task: str


class Teller:
    """Tells rows what came of their calls, for the incarnation that `lease` names."""

    def __init__(self, yard: Yard, lease: Lease, clock: Clock) -> None:
        self._yard = yard
        self._lease = lease
        self._clock = clock

    async def tell(self, errand: Errand, outcome: str, body: dict[str, Any]) -> bool:
        """Tell an outcome; False when the name it was done under went first: the row is somebody else's by then."""

        async def say() -> Accepted:
            return await ingress.accept_outcome(
                self._yard,
                shard=errand.shard,
                store=errand.store,
                call=errand.call,
                outcome=outcome,
                body=body,
                secret_hash=None,
                owner=errand.owner,
                task=errand.task,
                by="lifted",
            )

        return await self._until_said(errand, outcome, say) is not None

    async def put_off(self, errand: Errand, after_ms: int | None, request: dict[str, Any] | None = None) -> Accepted | None:
        """Let go of a call that has no result yet; see `calls.put_off`. None where `tell` says False."""
        shard = self._yard.shard(errand.shard)
        if shard is None:
            return None

        async def say() -> Accepted:
            more: dict[str, Any] = {"owner": errand.owner, "task": errand.task, "after_ms": after_ms, "request": request}
            return await calls.put_off(self._yard, shard, errand.store, errand.call, **more)

        return await self._until_said(errand, "later", say)

    async def _until_said(self, errand: Errand, what: str, say: Callable[[], Awaitable[Accepted]]) -> Accepted | None:
        backoff = Backoff(first_s=0.1)
        while errand.owner == self._lease.owner:
            try:
                answer = await say()
            except StoreUnavailable:
                await self._clock.sleep(backoff.next_s())
                continue
            log.info("lifted call done", extra={"call": errand.call, "outcome": what, "accepted": answer.code})
            return answer
        return None
