"""A server that takes nothing new stops no process that is needed to make room, and says so in words."""

from __future__ import annotations

import pytest

from tests.protocol.scene import Scene
from turnyard.errors import StoreUnavailable
from turnyard.records.live import Live
from turnyard.records.manifest import Manifest
from turnyard.state.agents import publish
from turnyard.state.flows import set_limits
from turnyard.state.ingress import follow
from turnyard.state.turns import write_live
from turnyard.state.yard import Yard


async def test_a_process_that_starts_finds_its_deployment_on_a_full_server(scene: Scene, clean: str) -> None:
    async with scene.full_server():
        yard = await Yard.open(clean)
        assert len(yard.shards) == 1
        await yard.aclose()


async def test_a_server_that_is_full_at_the_very_first_start_is_unavailable(clean: str, scene: Scene) -> None:
    await scene.yard.redis.delete("ty:{ctl}:layout")
    async with scene.full_server():
        with pytest.raises(StoreUnavailable):
            await Yard.open(clean)
    await (await Yard.open(clean)).aclose()


async def test_what_a_full_server_refuses_is_unavailable_for_now(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    shard = scene.shard()
    async with scene.full_server():
        with pytest.raises(StoreUnavailable):
            await set_limits(shard, max_concurrent_turns=7)
        with pytest.raises(StoreUnavailable):
            await publish(scene.yard, Manifest(name="bot", version="1", pool="default"))
        await follow(scene.yard, view.session, 60)  # a control like any other
    await scene.reply(view)


async def test_deltas_that_the_server_refuses_are_dropped_and_later_ones_are_written(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    shard = scene.shard()

    def delta(seq: int) -> list[Live]:
        return [Live(seq, 1, view.turn, 1, "text", 0, "x")]

    async with scene.full_server():
        await write_live(shard, view, delta(5))
    await write_live(shard, view, delta(6))
    await write_live(shard, view, delta(3))  # of a worker that has lost the turn
    await write_live(shard, view, delta(7))
    assert [int(eid.split(b"-")[0]) for eid, _ in await shard.redis.xrange(shard.keys.live(view.store))] == [6, 7]
    await scene.reply(view)
