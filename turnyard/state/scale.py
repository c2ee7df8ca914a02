"""How much of a pool is wanted: the number an autoscaler asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnyard.state.agents import read_agents
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.state.yard import Shard, Yard

_FLOWS = 1000


@dataclass(frozen=True, slots=True)
class Scale:
    """A pool's demand. `oldest_ready_s` is 0 when nothing waits; `desired_turns` counts turns running and ready to run."""

    pool: str
    ready: int
    running: int
    oldest_ready_s: float
    desired_turns: int


async def scale(yard: Yard, pool: str) -> Scale:
    """Return the demand of a pool over all shards.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    agents = {name for name, manifest in (await read_agents(yard)).items() if manifest.pool == pool}
    ready = running = 0
    oldest_s = 0.0
    for shard in yard.shards:
        r, age = await _ready(shard, agents)
        ready, oldest_s = ready + r, max(oldest_s, age)
        with reading(f"pool {pool}"):
            for level in ("", "!1", "!2"):  # suspects run apart, on the same workers
                running += await shard.redis.scard(f"{shard.keys.prefix}run:p/{pool}{level}")
    return Scale(pool, ready, running, round(oldest_s, 3), ready + running)


async def _ready(shard: Shard, agents: set[str]) -> tuple[int, float]:
    with reading(f"flows of shard {shard.n}"):
        names = [text(f) for f in await shard.redis.zrange(shard.keys.prefix + "flows", 0, _FLOWS)]
        for resource in await shard.redis.smembers(shard.keys.prefix + "blocked"):
            names += [text(f) for f in await shard.redis.smembers(f"{shard.keys.prefix}blocked:{text(resource)}")]
        seconds, micros = await shard.redis.time()
        now_ms = seconds * 1000 + micros // 1000
        count, oldest_ms = 0, now_ms
        for name in names:
            if name.partition("/")[2].partition("!")[0] not in agents:
                continue
            key = f"{shard.keys.prefix}f:{name}"
            count += await shard.redis.zcard(key)
            for sid in await shard.redis.zrange(key, 0, 0):
                since = await shard.redis.hget(shard.keys.head(text(sid)), "rs")
                oldest_ms = min(oldest_ms, int(float(since)) if since else now_ms)
    return count, (now_ms - oldest_ms) / 1000
