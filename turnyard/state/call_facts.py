"""What a door has to know of a call before it keeps a long result for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from turnyard.records.ids import store_session
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.state.yard import Yard


@dataclass(frozen=True, slots=True)
class CallFacts:
    """Whose call it is, the hash of its token's secret, and its last result, None while it has none.

    With `resolves` what comes is read by the tool itself, whole.
    """

    tenant: str
    secret_hash: str
    resolves: bool
    body: dict[str, Any] | None


async def read_call_facts(yard: Yard, *, shard: int, store: str, call: str) -> CallFacts | None:
    """Return what is known of a call, None when there is none; nobody is asked for a secret here.

    Raises:
        StoreUnavailable: no answer; ask again.
    """
    home, sid = yard.shard(shard), store_session(store)
    if home is None or call == "_" or ":" in call:
        return None
    with reading(f"call {call}"):
        raw, result, late = await home.redis.hmget(home.keys.calls(store), [call, f"{call}:r", f"{call}:l"])
        tenant = await home.redis.hget(home.keys.head(sid), "tn")
    if raw is None:
        return None
    row: dict[str, Any] = orjson.loads(raw)
    last = late or result
    resolves = row.get("k") == "callback" and bool(row.get("qn"))
    return CallFacts(text(tenant), str(row.get("h") or ""), resolves, orjson.loads(last) if last else None)
