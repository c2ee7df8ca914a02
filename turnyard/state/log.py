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

__all__ = ["Feed", "FeedId", "FeedItem", "Live", "read_log"]


async def read_log(shard: Shard, store: str, *, after: int = 0, limit: int = 100) -> list[LogRecord]:
    """Return up to `limit` records after seq `after`, oldest first; an unknown store has none.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading(f"log of {store}"):
        page = await shard.redis.execute_command("XRANGE", shard.keys.log(store), f"({after}-0", "+", "COUNT", limit)
    return [parse_record(eid, flat(fields)) for eid, fields in page]
