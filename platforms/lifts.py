"""What the lane `arq` carries: parked calls of lifted tools, to the processes that run them.

Each call is handed to arq under an id made of the call and its relay count, so a call that is relayed twice by accident
is taken once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from turnyard.lifted import LiftedTask, LiftQueue, job_id
from turnyard.records.log import CALLED_OFF, PARKED, RELAYED

if TYPE_CHECKING:
    from turnyard.records.log import LogRecord
    from turnyard.state.lanes import LaneItem
    from turnyard.state.yard import Shard

log = logging.getLogger("turnyard.platforms")


class Lifts:
    """Carries lifted calls to arq's queues."""

    lane = "arq"

    def __init__(self, queue: LiftQueue) -> None:
        self._queue = queue

    def wanted(self, item: LaneItem) -> list[LogRecord]:
        """Return one record for each call that is to be relayed: of several relays only the last is worth a task.

        A call that was parked with no relay yet is handed out by a later record, when its time comes. One that was called off is handed
        out for the last time.
        """
        records = (r for r in item.records if r.type in (RELAYED, CALLED_OFF) or (r.type == PARKED and r.kind == "lift" and _relays(r)))
        found = {r.call: r for r in records if r.kind in ("lift", "callback") and r.call}
        return sorted(found.values(), key=lambda r: r.seq)

    async def carry(self, shard: Shard, item: LaneItem, record: LogRecord) -> None:
        """Enqueue one call.

        Raises:
            StoreUnavailable: arq's server did not take it.
        """
        call = record.call or ""
        job = job_id(call, _relays(record))
        fresh = await self._queue.enqueue(LiftedTask(shard.n, item.store, call), job=job, queue=record.extra.get("qn") or "default")
        log.info("lifted call relayed", extra={"session": item.session, "call": call, "job": job, "fresh": fresh})


def _relays(record: LogRecord) -> int:
    return int(record.extra.get("re") or 0)
