"""A store's log, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnyard.records.live import Live
from turnyard.records.log import LogRecord, parse_record
from turnyard.state.feed import Feed, FeedId, FeedItem
from turnyard.state.reads import reading
from turnyard.state.turns import flat

if TYPE_CHECKING:
    from turnyard.state.yard import Shard

__all__ = ["Feed", "FeedId", "FeedItem", "Live", "read_entry", "read_log"]

_MOST_SEQ = 2**63 - 1


async def read_log(shard: Shard, store: str, *, after: int = 0, limit: int = 100) -> list[LogRecord]:
    """Return up to `limit` records after seq `after`, oldest first; an unknown store has none.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading(f"log of {store}"):
        page = await shard.redis.execute_command("XRANGE", shard.keys.log(store), f"({after}-0", "+", "COUNT", limit)
    return [parse_record(eid, flat(fields)) for eid, fields in page]


async def read_entry(shard: Shard, store: str, seq: int) -> LogRecord | None:
    """Return one record by its number, also one that a summary stands for or that was struck; None when there is none.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    if not 0 < seq <= _MOST_SEQ:
        return None  # a model may ask for any number, and the server refuses what cannot be one
    found = await read_log(shard, store, after=seq - 1, limit=1)
    return found[0] if found and found[0].seq == seq else None
