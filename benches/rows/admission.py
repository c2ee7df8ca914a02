"""What does it cost to admit one session behind many that may not run, because their tenant is at its cap?

The server's own time and the commands inside the one script call that admits, behind a hundred, behind ten thousand and behind all
of them. The machine takes the server off its core now and then, so the time is the lower quartile; the commands are exact.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import uvloop

from benches.options import Options
from benches.results import Result, percentile, tidy
from benches.stack import server
from tests.protocol.scene import Scene
from turnyard.state.flows import dispatch, set_limits

NAMES = ("admit_at_cap_growth",)
SAMPLES = 60
CAPPED, FREE = "capped", "free"


@dataclass(frozen=True, slots=True)
class Cost:
    """What admitting one session took behind `waiting` others."""

    waiting: int
    us: float
    commands: int


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Fill a capped tenant's flow in three steps, and admit another tenant's sessions at each."""
    del wanted
    logging.disable(logging.WARNING)
    most = options.waiting_sessions
    with server() as stack:
        costs = uvloop.run(_costs(stack.url, (most // 1000, most // 10, most)))
    first, last = costs[0], costs[-1]
    broken = (
        ""
        if last.commands <= first.commands
        else f"{last.commands} commands behind {last.waiting}, {first.commands} behind {first.waiting}"
    )
    more = {f"behind_{c.waiting}": f"{tidy(c.us)} us, {c.commands} commands" for c in costs}
    return [Result("admit_at_cap_growth", last.us / first.us, more=more, broken=broken)]


async def _costs(url: str, sizes: tuple[int, ...]) -> list[Cost]:
    scene = await Scene.open(url)
    shard = scene.yard.shards[0]
    await set_limits(shard, tenants={CAPPED: 1}, max_concurrent_turns=1000)
    owner = await scene.worker(capacity=1000)
    found: list[Cost] = []
    filled = 0
    for size in sizes:
        while filled < size:
            numbers = range(filled, min(filled + 200, size))
            await asyncio.gather(*(scene.say(session=f"c{i}", tenant=CAPPED) for i in numbers))
            await scene.dispatch()
            filled = numbers.stop
        found.append(await _cost(scene, owner, filled))
    await scene.yard.aclose()
    return found


async def _cost(scene: Scene, owner: str, waiting: int) -> Cost:
    us: list[float] = []
    commands: list[int] = []
    for i in range(SAMPLES):
        await scene.say(session=f"f{i}", tenant=FREE)
        await scene.yard.redis.config_resetstat()
        admitted = (await dispatch(scene.yard.shards[0])).admitted
        assert admitted == 1, f"{admitted} admitted behind {waiting}"
        us.append((await scene.yard.redis.info("commandstats"))["cmdstat_fcall"]["usec"])
        commands.append(await scene.commands())
        view = await scene.begin(owner, f"f{i}", tenant=FREE)
        assert view is not None
        await scene.reply(view)
        await scene.dispatch()
    return Cost(waiting, percentile(us, 0.25), max(commands))
