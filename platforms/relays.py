"""How parked calls reach what works on them.

A commit that parks a lifted call leaves a record in the log and wakes the lane `arq`; a relay reads what is after the
lane's cursor and hands each call to arq under an id made of the call and its relay count, so a call that is relayed
twice by accident is taken once. A relay that dies keeps nothing: its loan ends and another one reads on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.lifted import LiftedTask, LiftQueue, job_id
from turnyard.records.log import PARKED, RELAYED
from turnyard.state import lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnyard.ports import Clock
    from turnyard.records.log import LogRecord
    from turnyard.state.lanes import LaneItem
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.platforms")

LANE = "arq"
_AGAIN_MS = 1000
_BUSY_S = 0.02
_IDLE_S = 0.5  # what a call may wait for its relay, and what an idle relay costs the server


async def run_relays(yard: Yard, drain: asyncio.Event, *, clock: Clock, lifted_url: str, loan_ms: int = lanes.LEASE_MS) -> None:
    """Relay the lifted calls of all shards until `drain` is set.

    `lifted_url` is the server that arq uses; what a relay took and died with is due again after `loan_ms`.
    """
    queue = LiftQueue(lifted_url)
    try:
        async with asyncio.TaskGroup() as group:
            for shard in yard.shards:
                group.create_task(_relay(shard, queue, drain, clock, loan_ms))
    finally:
        await queue.aclose()


async def _relay(shard: Shard, queue: LiftQueue, drain: asyncio.Event, clock: Clock, loan_ms: int) -> None:
    backoff = Backoff()
    pause_s = _BUSY_S
    while not drain.is_set():
        try:
            found = await relay_once(shard, queue, loan_ms=loan_ms, drain=drain)
        except StoreUnavailable as error:
            if not backoff.failing:
                log.warning("lifted calls cannot be relayed; trying until they can", extra={"shard": shard.n, "reason": str(error)})
            await clock.sleep(backoff.next_s())
            continue
        backoff.reset()
        pause_s = _BUSY_S if found else min(pause_s * 1.5, _IDLE_S)
        await clock.sleep(pause_s)


async def relay_once(shard: Shard, queue: LiftQueue, *, loan_ms: int = lanes.LEASE_MS, drain: asyncio.Event | None = None) -> int:
    """Relay what is due now, until `drain` is set; return how many stores were taken.

    Raises:
        StoreUnavailable: a server did not answer; what could not be given back is due again when its loan ends.
    """
    items = await lanes.take_lane(shard, LANE, lease_ms=loan_ms)
    for done, item in enumerate(items):
        try:
            for record in _newest(item):
                if drain is not None and drain.is_set():
                    await _give_back(shard, items[done:], delay_ms=0)
                    return len(items)
                await _enqueue(shard, queue, item, record)
        except StoreUnavailable:
            await _give_back(shard, items[done:], delay_ms=_AGAIN_MS)
            raise
        await lanes.sent(shard, LANE, item)
    return len(items)


def _newest(item: LaneItem) -> list[LogRecord]:
    """Return one record for each call that is to be relayed: of several relays only the last is worth a task."""
    found = {r.call: r for r in item.records if r.type in (PARKED, RELAYED) and r.kind == "lift" and r.call}
    return list(found.values())


async def _give_back(shard: Shard, items: Sequence[LaneItem], *, delay_ms: int) -> None:
    for item in items:
        await lanes.sent(shard, LANE, item, upto=item.cursor, delay_ms=delay_ms)


async def _enqueue(shard: Shard, queue: LiftQueue, item: LaneItem, record: LogRecord) -> None:
    call = record.call or ""
    job = job_id(call, int(record.extra.get("re") or 1))
    fresh = await queue.enqueue(LiftedTask(shard.n, item.store, call), job=job, queue=record.extra.get("qn") or "default")
    log.info("lifted call relayed", extra={"session": item.session, "call": call, "job": job, "fresh": fresh})
