"""`python -m tests.faults.fake_sender URL FILE`: deliver replies from the lane `fake` into a file, one JSON line each.

It is what a platform's sender will be: it takes what is due, sends each reply under an id made of where it stands in
the log, and then moves the cursor. Who drops repeated ids sees each reply once and in order.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

from turnyard.clock import SystemClock
from turnyard.errors import StoreUnavailable
from turnyard.records.log import ASSISTANT, LogRecord
from turnyard.state.lanes import LaneItem, sent, take_lane
from turnyard.state.yard import Shard, Yard

LANE = "fake"
_LOAN_MS = int(os.environ.get("TURNYARD__TIMING__LEASE_MS", "10000")) * 3
_PAUSE_S = 0.05


def delivery_id(session: str, seq: int, part: int) -> str:
    """Return the id under which one part of one reply is sent, however often."""
    return hashlib.blake2b(f"{session} {seq} {part}".encode(), digest_size=12).hexdigest()


def parts(record: LogRecord) -> list[str]:
    """Return what of a record is sent: a reply in two messages, so that one can be missing."""
    text = str(record.body.get("text") or "") if record.type == ASSISTANT else ""
    first, _, rest = text.partition(": ")
    return [part for part in (first, rest) if part]


async def deliver(shard: Shard, item: LaneItem, file: Path) -> None:
    """Send what an item holds and note that it is sent."""
    for record in item.records:
        for part, text in enumerate(parts(record)):
            line = {"id": delivery_id(item.store, record.seq, part), "store": item.store, "seq": record.seq, "part": part, "text": text}
            with file.open("a") as out:
                out.write(json.dumps(line) + "\n")
    await sent(shard, LANE, item)


async def main(url: str, file: Path) -> None:
    """Deliver until killed."""
    clock = SystemClock()
    yard = await Yard.open(url)
    while True:
        try:
            for shard in yard.shards:
                for item in await take_lane(shard, LANE, lease_ms=_LOAN_MS):
                    await deliver(shard, item, file)
        except StoreUnavailable:
            pass  # what was taken is due again
        await clock.sleep(_PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
