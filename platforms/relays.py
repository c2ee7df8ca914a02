"""How calls that wait outside reach what works on them.

A commit that parks a lifted call or starts a child leaves a record in the log and wakes a lane; a relay reads what is
after the lane's cursor and carries each record on, in a way that may be repeated. A relay that dies keeps nothing: its
loan ends and another one reads on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.lifted import LiftQueue
from turnyard.state import lanes

from .children import Children
from .lifts import Lifts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnyard.ports import Blobs, Clock
    from turnyard.records.log import LogRecord
    from turnyard.state.lanes import LaneItem
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.platforms")

_AGAIN_MS = 1000
_BUSY_S = 0.02
_IDLE_S = 0.5  # what a call may wait for its relay, and what an idle relay costs the server


class Carrier(Protocol):
    """Carries what one lane owes."""

    @property
    def lane(self) -> str:
        """Return the lane it serves."""
        ...

    def wanted(self, item: LaneItem) -> Sequence[LogRecord]:
        """Return the records of a store that are to be carried, in order."""
        ...

    async def carry(self, shard: Shard, item: LaneItem, record: LogRecord) -> None:
        """Carry one; it may have been carried before. Raises StoreUnavailable where it has to be carried again."""
        ...


async def run_relays(
    yard: Yard, drain: asyncio.Event, *, clock: Clock, lifted_url: str, loan_ms: int = lanes.LEASE_MS, blobs: Blobs | None = None
) -> None:
    """Relay the lifted calls and the child sessions of all shards until `drain` is set.

    `lifted_url` is the server that arq uses; what a relay took and died with is due again after `loan_ms`.
    """
    queue = LiftQueue(lifted_url)
    carriers: tuple[Carrier, ...] = (Lifts(queue), Children(yard, blobs=blobs))
    try:
        async with asyncio.TaskGroup() as group:
            for shard in yard.shards:
                for carrier in carriers:
                    group.create_task(_relay(shard, carrier, drain, clock, loan_ms))
    finally:
        await queue.aclose()


async def _relay(shard: Shard, carrier: Carrier, drain: asyncio.Event, clock: Clock, loan_ms: int) -> None:
    backoff = Backoff()
    pause_s = _BUSY_S
    while not drain.is_set():
        try:
            items = await _round(shard, carrier, loan_ms=loan_ms, drain=drain)
        except StoreUnavailable as error:
            if not backoff.failing:
                fields = {"lane": carrier.lane, "shard": shard.n, "reason": str(error)}
                log.warning("a lane cannot be carried; trying until it can", extra=fields)
            await clock.sleep(backoff.next_s())
            continue
        backoff.reset()
        pause_s = _BUSY_S if items else min(pause_s * 1.5, _IDLE_S)
        # A long log is read on at once: the record that woke the lane stands at its end.
        if not any(len(item.records) >= lanes.PAGE for item in items):
            await clock.sleep(pause_s)


async def relay_once(shard: Shard, carrier: Carrier, *, loan_ms: int = lanes.LEASE_MS, drain: asyncio.Event | None = None) -> int:
    """Relay what is due now, until `drain` is set; return how many stores were taken.

    Raises:
        StoreUnavailable: a server did not answer; what could not be given back is due again when its loan ends.
    """
    return len(await _round(shard, carrier, loan_ms=loan_ms, drain=drain))


async def _round(shard: Shard, carrier: Carrier, *, loan_ms: int, drain: asyncio.Event | None) -> list[LaneItem]:
    items = await lanes.take_lane(shard, carrier.lane, lease_ms=loan_ms)
    for done, item in enumerate(items):
        if drain is not None and drain.is_set():
            await _give_back(shard, carrier.lane, items[done:], delay_ms=0)
            break
        try:
            await _carry(shard, carrier, item, drain)
        except StoreUnavailable:
            await _give_back(shard, carrier.lane, items[done:], delay_ms=_AGAIN_MS)
            raise
    return items


async def _carry(shard: Shard, carrier: Carrier, item: LaneItem, drain: asyncio.Event | None) -> None:
    """Carry what one store owes, and say so. What cannot be carried, whatever the server does, must not hold up the rest for ever."""
    for record in carrier.wanted(item):
        if drain is not None and drain.is_set():
            await _give_back(shard, carrier.lane, [item], delay_ms=0)
            return
        try:
            await carrier.carry(shard, item, record)
        except StoreUnavailable:
            raise
        except Exception as error:
            fields = {"lane": carrier.lane, "session": item.session, "seq": record.seq}
            log.exception("a record cannot be carried; it becomes a dead letter", extra=fields)
            await lanes.give_up(shard, carrier.lane, item, record, reason=f"{type(error).__name__}: {error}")
            return
    await lanes.sent(shard, carrier.lane, item)


async def _give_back(shard: Shard, lane: str, items: Sequence[LaneItem], *, delay_ms: int) -> None:
    for item in items:
        await lanes.sent(shard, lane, item, upto=item.cursor, delay_ms=delay_ms)
