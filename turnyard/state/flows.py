"""What the dispatcher does with a shard: drain what was accepted, admit who may run, keep the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis import exceptions as rx

from turnyard.errors import StoreUnavailable
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from turnyard.state.yard import Shard

MAX_BATCH = 20  # some 17 commands each: one call stays under 400


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one dispatch did. `left`: more entries wait. `dead`: entries that could not be read, moved to `dead`."""

    applied: int
    admitted: int
    left: bool
    dead: int


async def dispatch(shard: Shard, *, limit: int = MAX_BATCH) -> Dispatched:
    """Apply up to `limit` accepted events in order, then admit."""
    applied, admitted, left, dead = await shard.run("dispatch", min(limit, MAX_BATCH))
    return Dispatched(applied, admitted, bool(left), dead)


async def wait_ingress(shard: Shard, *, block_ms: int = 2000) -> bool:
    """Wait until ingress holds anything, at most `block_ms`; read from its beginning, never from a remembered id."""
    try:
        found = await shard.blocking.xread({shard.keys.ingress: "0"}, count=1, block=block_ms)
    except (TimeoutError, rx.RedisError, OSError) as error:
        raise StoreUnavailable(f"ingress of shard {shard.n} could not be read: {error}") from error
    return bool(found)


async def set_limits(
    shard: Shard,
    *,
    max_concurrent_turns: int | None = None,
    tenants: Mapping[str, int] | None = None,
    agents: Mapping[str, int] | None = None,
    pools: Mapping[str, int] | None = None,
    weights: Mapping[str, float] | None = None,
    begin_by_ms: int | None = None,
    quantum_ms: int | None = None,
    relay_ms: int | None = None,
    overdue_ms: int | None = None,
) -> None:
    """Write limits; what is not named stays. The next tick wakes who has room now.

    `relay_ms` is how long a lifted call may lie with nobody beginning it before it is relayed once more; it doubles.
    `overdue_ms` is how long a worker may leave a cancel unanswered before that turn is taken from it.
    """
    single = {"max": max_concurrent_turns, "begin_by": begin_by_ms, "quantum": quantum_ms, "relay": relay_ms, "overdue": overdue_ms}
    fields: dict[str, float] = {name: value for name, value in single.items() if value is not None}
    for prefix, table in (("l:t/", tenants), ("l:a/", agents), ("l:p/", pools), ("wt:", weights)):
        fields.update({f"{prefix}{name}": value for name, value in (table or {}).items()})
    if fields:
        with reading(f"limits of shard {shard.n}"):
            await shard.redis.hset(shard.keys.limits, mapping=fields)


async def keep_limits(shard: Shard, *, resources: Collection[str], weights: Collection[str]) -> None:
    """Take away caps of tenants and pools (`resources`: t/<tenant>, p/<pool>) and weights that are not named here.

    Who waited for such a cap goes on with the next tick.

    Raises:
        StoreUnavailable: the server did not answer; some may be gone.
    """
    named = {f"l:{res}" for res in resources} | {f"wt:{tenant}" for tenant in weights}
    with reading(f"limits of shard {shard.n}"):
        for pattern in ("l:[tp]/*", "wt:*"):
            found = [text(field) async for field, _ in shard.redis.hscan_iter(shard.keys.limits, match=pattern)]
            if gone := [field for field in found if field not in named]:
                await shard.redis.hdel(shard.keys.limits, *gone)
