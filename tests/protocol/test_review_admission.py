"""Room that is there is used at once, by whoever may use it, and what waits for it is seen by those who hold it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.protocol.scene import Scene
from turnyard.records.commit import Say
from turnyard.state import fleet
from turnyard.state.flows import set_limits


async def test_a_worker_that_joins_takes_what_all_tenants_left_waiting_at_once(scene: Scene) -> None:
    tenants = [f"t{i}" for i in range(6)]
    for tenant in tenants:
        await scene.say(tenant=tenant)
    await scene.dispatch()
    assert await scene.running() == 0
    owner = await scene.worker()
    await scene.tick()
    assert await scene.running() == 6
    for tenant in tenants:
        view = await scene.begin(owner, tenant=tenant)
        assert view is not None
        await scene.reply(view)


async def test_a_raised_limit_lets_in_as_many_as_it_has_room_for_in_one_tick(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    agents = ("one", "two", "three", "four")
    await set_limits(shard, tenants={"default": 1})
    owner = await scene.worker(agents=dict.fromkeys(agents, 0))
    for agent in agents:
        await scene.say(session=agent, agent=agent)
    await scene.dispatch()
    assert await scene.running() == 1
    await set_limits(shard, tenants={"default": 3})
    await scene.tick()
    assert await scene.running() == 3
    await set_limits(shard, tenants={"default": 4})
    await scene.tick()
    for agent in agents:
        view = await scene.begin(owner, agent)
        assert view is not None
        await scene.reply(view)


@pytest.mark.parametrize("limited", ["worker", "tenant", "agent"])
async def test_a_turn_past_its_quantum_yields_to_who_waits_for_any_of_its_resources(scene: Scene, limited: str) -> None:
    shard = scene.yard.shards[0]
    if limited == "tenant":
        await set_limits(shard, tenants={"default": 1})
    if limited == "agent":
        await set_limits(shard, agents={"bot": 1})
    owner = await scene.worker(capacity=1 if limited == "worker" else 10)
    view = await scene.open_turn(owner)
    await scene.say(session="other")
    await scene.dispatch()
    await scene.pass_ms(30_000)
    view = await scene.commit(view, append=(Say({"text": "1"}),))
    assert view.yield_
    await scene.commit(view, ending="yield")
    await scene.dispatch()
    assert (await scene.state("other"), await scene.state()) == ("assigned", "ready")
    other = await scene.begin(owner, "other")
    assert other is not None
    await scene.reply(other)


async def test_no_more_turns_of_an_agent_are_handed_out_than_its_own_workers_can_take(scene: Scene) -> None:
    few = await scene.worker(agents={"rare": 0}, capacity=2)
    many = await scene.worker(agents={"bot": 0}, capacity=10)
    for i in range(6):
        await scene.say(session=f"r{i}", agent="rare")
    await scene.dispatch()
    assert await scene.running() == 2
    view = await scene.begin(few, "r0")
    assert view is not None
    await scene.reply(view)
    await scene.dispatch()
    assert [await scene.state(f"r{i}") for i in range(4)] == ["idle", "assigned", "assigned", "ready"]
    assert await scene.open_turn(many, session="b")


async def test_a_turn_whose_version_nobody_runs_any_more_goes_to_the_next_newer_one(scene: Scene) -> None:
    old, middle, new = await scene.worker(serial=3), await scene.worker(serial=4), await scene.worker(serial=5)
    view = await scene.open_turn(middle)
    await scene.commit(view, ending="yield")
    await scene.tick(middle)
    await scene.dispatch()
    lists = (await fleet.beat(scene.yard.shards[0], new, held=0)).lists
    cast("Any", scene)._lists[new].extra = lists
    assert await scene.take(old) is None
    again = await scene.begin(new)
    assert again is not None
    await scene.reply(again)


async def test_a_list_that_several_workers_share_is_named_once(scene: Scene) -> None:
    await scene.worker(serial=1)
    newest = [await scene.worker(serial=2) for _ in range(5)]
    assert (await fleet.beat(scene.yard.shards[0], newest[0], held=0)).lists == ("default:bot@2",)
