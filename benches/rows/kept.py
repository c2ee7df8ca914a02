"""Does the server keep the same after twenty thousand turns as after ten thousand?

The load of `tests/protocol/steady.py`: turns that go every way a turn can go, at script level, over weeks of held time, in sessions
that are the same from the first to the last. The row is the class of keys that grew most.
"""

from __future__ import annotations

import logging
from collections.abc import Set as AbstractSet

import uvloop

from benches.options import Options
from benches.results import Result, tidy
from benches.stack import server
from tests.protocol.scene import Scene
from tests.protocol.steady import Steady, grown, kept_bytes

NAMES = ("kept_after_twice_the_turns",)
# The first half is longer than anything is kept by time alone: a week, and a deadline before it.
HALF_MS = 12 * 86_400_000
TURNS_PER_ROUND = 28


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Run the load twice and compare."""
    del wanted
    logging.disable(logging.WARNING)
    with server() as stack:
        ratios, turns = uvloop.run(_ratios(stack.url, options.steady_turns // 2))
    worst = max(ratios, key=lambda name: ratios[name])
    more = {"turns": turns, "class": worst, "classes": len(ratios)}
    return [Result("kept_after_twice_the_turns", ratios[worst], more=more | {"least": tidy(min(ratios.values()))})]


async def _ratios(url: str, half: int) -> tuple[dict[str, float], int]:
    scene = await Scene.open(url)
    load = await Steady.start(scene, round_ms=HALF_MS * TURNS_PER_ROUND // half)
    await load.run(half)
    first = await kept_bytes(scene)
    await load.run(half)
    ratios = grown(first, await kept_bytes(scene), content=0)
    await scene.close()
    return ratios, load.turns
