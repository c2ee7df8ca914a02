"""Does the server keep the same after twice as many turns?"""

from __future__ import annotations

import pytest

from tests.protocol.scene import DAY_MS, Scene
from tests.protocol.steady import Steady, class_of, grown, kept_bytes
from turnyard.state.keys import LIFETIMES

# Nine days each: longer than an ended job is kept, and a call's row after its deadline.
TURNS = 250


@pytest.mark.spec("I14", "L17", "rival-46")
@pytest.mark.timeout(180)
async def test_at_constant_load_no_class_of_keys_grows(scene: Scene) -> None:
    load = await Steady.start(scene, round_ms=DAY_MS)
    kept = []
    for _ in range(2):
        await load.run(TURNS)
        kept.append(await kept_bytes(scene))
    ratios = grown(*kept, content=0)
    assert {name: ratio for name, ratio in ratios.items() if ratio > 1.02} == {}
    assert {"log", "calls", "head"} <= {name.rpartition(" ")[2] for name in kept[1]}
    # Streams hold what is in flight alone, and nobody keeps a list of what was delivered and not acknowledged.
    home = scene.yard.shards[0]
    assert await scene.ingress() == 0
    assert (await home.redis.xinfo_stream(home.keys.ingress))["groups"] == 0


async def test_a_key_of_no_class_is_found(scene: Scene) -> None:
    assert class_of(scene.yard.shards[0].keys.ingress) in LIFETIMES
    await scene.yard.redis.set("ty:{0}:forgotten", "x")
    assert await scene.leaks() == ["ty:{0}:forgotten"]
    await scene.yard.redis.delete("ty:{0}:forgotten")
