"""How the limits of a deployment reach its shards: who may say so, and what a shard answers.

One process at a time holds the coordinator's lease; each time it changes hands the version of the plan goes up, and a
shard that heard a version refuses older ones. So whoever takes over first tells every shard its version, and from then
on knows that nobody else changes their parts. Nothing is kept but that version: what the parts are is asked of the shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from turnyard.state.keys import COORDINATOR, PLAN
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnyard.state.yard import Shard, Yard

ALL = "all"  # the limit of the whole deployment, beside those of tenants (t/) and pools (p/)
_LEAVE = -1

# Renewing finds the lease taken, or takes it and, when it is new, makes a new version that no shard has heard.
_HOLD = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local version = tonumber(redis.call('HGET', KEYS[2], 'version') or 0)
if holder and version > tonumber(ARGV[3]) then return version end
version = math.max(version, tonumber(ARGV[3])) + 1
redis.call('HSET', KEYS[2], 'version', version)
return version
"""
_LEAVE_OFF = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


@dataclass(frozen=True, slots=True)
class Use:
    """One resource on one shard: its part (None: it was never given one), what is used, how many sessions wait for it."""

    part: int | None
    used: int
    waiting: int


class Deposed(Exception):
    """A shard has heard a newer plan, whose version is `heard`: somebody else is the coordinator, or the plan was lost."""

    def __init__(self, heard: int) -> None:
        super().__init__(heard)
        self.heard = heard


async def hold(yard: Yard, owner: str, *, lease_ms: int, above: int = 0) -> int | None:
    """Take or renew the coordinator's lease; return the version of the plan, None when another holds it.

    `above` is a version that a shard was found to have heard: the plan goes on after it.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading("the coordinator's lease"):
        version = int(await yard.redis.eval(_HOLD, 2, COORDINATOR, PLAN, owner, lease_ms, above))
    return version or None


async def let_go(yard: Yard, owner: str) -> None:
    """Give the lease up, so that another need not wait for its end."""
    with reading("the coordinator's lease"):
        await yard.redis.eval(_LEAVE_OFF, 1, COORDINATOR, owner)


async def share(shard: Shard, version: int, parts: Mapping[str, int | None]) -> dict[str, Use]:
    """Give a shard its part of each resource (None: leave it as it is); return what it has and uses then.

    Raises:
        Deposed: it has heard a newer plan, and nothing was changed.
        StoreUnavailable: the shard did not answer; it may have changed.
    """
    args = [word for res, part in parts.items() for word in (res, _LEAVE if part is None else part)]
    code, *uses = await shard.run("share", version, *args)
    if code == b"STALE":
        raise Deposed(int(uses[0]))
    return {res: Use(None if part < 0 else part, used, waiting) for res, (part, used, waiting) in zip(parts, uses, strict=True)}


async def publish(yard: Yard, wholes: Mapping[str, int], parts: Mapping[str, Sequence[int]]) -> None:
    """Leave word of the plan for people; nobody acts on it."""
    with reading("the plan"):
        await yard.redis.hset(PLAN, mapping={"wholes": orjson.dumps(wholes), "parts": orjson.dumps(parts)})


async def read_plan(yard: Yard) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return each limit as a whole, and its part on each shard, as last planned; empty where nothing is divided."""
    with reading("the plan"):
        wholes, parts = await yard.redis.hmget(PLAN, ["wholes", "parts"])
    return orjson.loads(text(wholes) or "{}"), orjson.loads(text(parts) or "{}")


async def has_part(shard: Shard) -> bool:
    """Tell whether a shard was ever told what it may run."""
    with reading(f"limits of shard {shard.n}"):
        return bool(await shard.redis.hexists(shard.keys.limits, "max"))
