"""Out lanes: what a store's log owes to the outside, sent in order from a cursor.

A lane holds which stores are due and when; the content is the log. Taking a store lends it for a while; only who holds
the loan may move its cursor, and only forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from turnyard.records.ids import store_session
from turnyard.records.log import LogRecord, parse_record
from turnyard.state.reads import text
from turnyard.state.turns import flat

if TYPE_CHECKING:
    from turnyard.state.yard import Shard

LEASE_MS = 30_000
PAGE = 100  # records of one store that are lent at once
MAX_AGE_MS = 24 * 3_600_000
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 1_000, 3_600_000


@dataclass(frozen=True, slots=True)
class LaneItem:
    """A store on loan: what its log holds after the cursor. `lease` names the loan; `last_seq` is where the records end.

    `parts` is how many parts of the next record that is to be sent went out already. `taken_ms` is the server's time of the loan, by which the age of a record is told.
    """

    store: str
    session: str
    lease: str
    cursor: int
    records: tuple[LogRecord, ...]
    taken_ms: int = 0
    parts: int = 0

    @property
    def last_seq(self) -> int:
        """Return the seq up to which this item was read."""
        return self.records[-1].seq if self.records else self.cursor


async def take_lane(shard: Shard, lane: str, *, limit: int = 20, lease_ms: int = LEASE_MS) -> list[LaneItem]:
    """Take stores that are due in a lane; each must be given back with `sent`, or comes back when its loan ends."""
    reply = await shard.run("take", lane, limit, lease_ms)
    items: list[LaneItem] = []
    for store, lease, cursor, raw, parts in reply:
        records = tuple(parse_record(eid, flat(fields)) for eid, fields in raw)
        items.append(
            LaneItem(text(store), store_session(text(store)), text(str(lease)), int(cursor), records, int(lease) - lease_ms, int(parts))
        )
    return items


async def sent(shard: Shard, lane: str, item: LaneItem, *, upto: int | None = None, parts: int = 0, delay_ms: int = 0) -> bool:
    """Note that all up to seq `upto` (None: all of `item`) is sent; the rest is due after `delay_ms`.

    `parts` is how many parts of what comes next are sent, too: a long message may go out in several.

    False: the loan had ended and somebody else sends; what this sender sent twice carries the same ids.
    """
    reply = await shard.run("sent", lane, item.store, item.lease, item.last_seq if upto is None else upto, delay_ms, "", "", parts)
    return bool(reply)


async def put_off(shard: Shard, lane: str, item: LaneItem, record: LogRecord, *, parts: int = 0, at_least_ms: int = 0) -> bool:
    """Say that `record` could not be sent yet; all before it and `parts` of it are sent, the rest and all behind it wait.

    The wait grows with the record's age, from a second to an hour; `at_least_ms` is what the receiver asked for. A record
    older than a day is given up. False: as of `sent`.
    """
    age_ms = item.taken_ms - record.at_ms
    if age_ms > MAX_AGE_MS:
        return await give_up(shard, lane, item, record, reason=f"not delivered within {MAX_AGE_MS // 3_600_000} hours")
    delay_ms = max(at_least_ms, min(max(_FIRST_WAIT_MS, age_ms), _LONGEST_WAIT_MS))
    return await sent(shard, lane, item, upto=record.seq - 1, parts=parts, delay_ms=delay_ms)


async def give_up(shard: Shard, lane: str, item: LaneItem, record: LogRecord, *, reason: str) -> bool:
    """Send all before `record` as done, and `record` never: it becomes a dead letter, and a notice tells the session.

    What lies behind it is due at once. False: as of `sent`.
    """
    told = f"A message of this session could not be delivered by {lane}: {reason}"
    body = orjson.dumps({"text": told, "group": "delivery", "key": lane})
    return bool(await shard.run("sent", lane, item.store, item.lease, record.seq, 0, reason, body, 0))
