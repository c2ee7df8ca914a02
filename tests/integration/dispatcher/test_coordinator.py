"""The limits of a deployment are divided over its shards, follow what waits, and are exceeded by nobody at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.coordinator import Coordinator, check_limits
from tests.protocol.scene import Scene
from turnyard.errors import ConfigError
from turnyard.records.ids import session_key
from turnyard.settings import Settings
from turnyard.state import plan, upkeep
from turnyard.state.plan import ALL
from turnyard.state.yard import Shard

SHARDS = 16


def settings(most: int, **more: Any) -> Settings:
    return Settings.model_validate({"limits": {"max_concurrent_turns": most}, **more})


@pytest_asyncio.fixture
async def wide(clean: str) -> AsyncIterator[Scene]:
    """An empty deployment of sixteen shards with one roomy worker."""
    scene = await Scene.open(clean, shards=SHARDS)
    await scene.worker(capacity=100)
    yield scene
    await scene.close()


def on_shard(scene: Scene, n: int, count: int, tenant: str = "default") -> list[str]:
    """Return names of sessions that belong to a shard."""
    found: list[str] = []
    i = 0
    while len(found) < count:
        i += 1
        if scene.yard.shard_for(session_key(tenant, f"x{i}")).n == n:
            found.append(f"x{i}")
    return found


async def parts_of(scene: Scene, res: str = "max") -> list[int]:
    return [int(await s.redis.hget(s.keys.limits, res) or 0) for s in scene.yard.shards]


async def used_of(scene: Scene, key: str = "running") -> list[int]:
    count = "zcard" if key == "running" else "scard"
    return [await getattr(s.redis, count)(s.keys.prefix + key) for s in scene.yard.shards]


@pytest.mark.spec("trap-14")
async def test_a_limit_that_is_too_small_for_its_shards_is_refused_with_the_least_that_is_enough() -> None:
    with pytest.raises(ConfigError, match="at least 64"):
        check_limits(settings(3), SHARDS)
    with pytest.raises(ConfigError, match="at least 64"):
        check_limits(settings(63), SHARDS)
    check_limits(settings(64), SHARDS)
    check_limits(settings(3), 1)


async def test_the_parts_are_the_whole_and_no_shard_is_without_one(wide: Scene) -> None:
    assert await Coordinator(wide.yard, settings(70)).look()
    parts = await parts_of(wide)
    assert sum(parts) == 70
    assert min(parts) == 4
    wholes, planned = await plan.read_plan(wide.yard)
    assert (wholes, planned[ALL]) == ({ALL: 70}, parts)


async def test_room_goes_to_the_shard_where_sessions_wait_and_comes_back_when_others_need_it(wide: Scene) -> None:
    coordinator = Coordinator(wide.yard, settings(64))
    await coordinator.look()
    hot = wide.yard.shards[3]
    for name in on_shard(wide, 3, 40):
        await wide.say(session=name)
    await wide.dispatch(hot)
    assert (await used_of(wide))[3] == 4
    for _ in range(3):
        await coordinator.look()
        await wide.dispatch(hot)
    parts, used = await parts_of(wide), await used_of(wide)
    assert sum(parts) == 64
    assert used[3] == 40 <= parts[3]
    assert min(parts) >= 1, "a shard of its own cannot start a turn at once"


@pytest.mark.spec("I10")
async def test_no_more_turns_run_than_the_limit_says_while_it_is_lowered_and_raised_under_load(wide: Scene) -> None:
    loads = [name for n in range(SHARDS) for name in on_shard(wide, n, 8)]
    for name in loads:
        await wide.say(session=name)
    first = Coordinator(wide.yard, settings(64))
    await first.look()
    await first.let_go()
    was = 64
    for step, most in enumerate([64, 64, 100, 70, 70, 128, 64, 64, 64, 64]):
        coordinator = Coordinator(wide.yard, settings(most))
        before = sum(await used_of(wide))
        await asyncio.gather(*(wide.dispatch(s) for s in wide.yard.shards), _look_until_it_is_mine(coordinator))
        between = sum(await used_of(wide))
        assert between <= max(most, was, before), (step, most)
        await asyncio.gather(*(wide.dispatch(s) for s in wide.yard.shards))
        now = sum(await used_of(wide))
        assert now <= max(most, between), (step, most)
        assert sum(await parts_of(wide)) <= most
        await coordinator.let_go()
        was = most
        for shard in wide.yard.shards[step % 2 :: 2]:
            await _end_some(shard)
    assert now <= 64


async def test_a_raise_waits_until_what_was_lowered_is_really_free(wide: Scene) -> None:
    first = Coordinator(wide.yard, settings(64))
    await first.look()
    for name in on_shard(wide, 0, 30):
        await wide.say(session=name)
    for _ in range(3):
        await wide.dispatch(wide.yard.shards[0])
        await first.look()
    await wide.dispatch(wide.yard.shards[0])
    assert (await used_of(wide))[0] == 30
    for n in range(1, SHARDS):
        for name in on_shard(wide, n, 8):
            await wide.say(session=name)
    for _ in range(4):
        for shard in wide.yard.shards:
            await wide.dispatch(shard)
        await first.look()
        assert sum(await used_of(wide)) <= 64
    used, parts = await used_of(wide), await parts_of(wide)
    assert used[0] == 30 > parts[0]
    assert sum(used) == 64


@pytest.mark.spec("trap-14")
async def test_a_cap_smaller_than_the_number_of_shards_holds_and_serves_every_shard_in_turn(wide: Scene) -> None:
    coordinator = Coordinator(wide.yard, settings(64, tenants={"small": {"max_concurrent_turns": 3}}))
    await coordinator.look()
    for n in range(SHARDS):
        (name,) = on_shard(wide, n, 1, "small")
        await wide.say(session=name, tenant="small")
    served: set[int] = set()
    for _ in range(60):
        for shard in wide.yard.shards:
            await wide.dispatch(shard)
        used = await used_of(wide, "run:t/small")
        assert sum(used) <= 3
        assert sum(await parts_of(wide, "l:t/small")) <= 3
        served |= {n for n, count in enumerate(used) if count}
        for shard in wide.yard.shards:
            await _end_some(shard)
        await coordinator.look()
    assert served == set(range(SHARDS))


async def test_one_coordinator_at_a_time_and_the_next_one_when_it_leaves(wide: Scene) -> None:
    first, second = Coordinator(wide.yard, settings(64)), Coordinator(wide.yard, settings(128))
    assert [await first.look(), await second.look(), await first.look()] == [True, False, True]
    assert sum(await parts_of(wide)) == 64
    await first.let_go()
    assert [await second.look(), await first.look()] == [True, False]
    assert sum(await parts_of(wide)) == 128


async def test_a_dead_coordinators_parts_stand_until_its_lease_ends_and_another_one_divides_anew(wide: Scene) -> None:
    dead, heir = Coordinator(wide.yard, settings(64)), Coordinator(wide.yard, settings(128))
    await dead.look()
    assert await heir.look() is False
    assert sum(await parts_of(wide)) == 64
    assert 0 < await wide.yard.redis.pttl("ty:{ctl}:coordinator") <= 10_000
    await wide.yard.redis.delete("ty:{ctl}:coordinator")
    assert [await heir.look(), await dead.look()] == [True, False]
    assert sum(await parts_of(wide)) == 128


async def test_what_a_deposed_coordinator_still_says_is_refused_by_every_shard(wide: Scene) -> None:
    old = await plan.hold(wide.yard, "old", lease_ms=60_000)
    assert old is not None
    await plan.let_go(wide.yard, "old")
    assert await Coordinator(wide.yard, settings(64)).look()
    for shard in wide.yard.shards:
        with pytest.raises(plan.Deposed):
            await plan.share(shard, old, {ALL: 1000})
    assert sum(await parts_of(wide)) == 64


@pytest.mark.spec("trap-7")
async def test_a_plan_that_was_lost_or_rewound_is_made_again_from_the_shards(wide: Scene) -> None:
    coordinator = Coordinator(wide.yard, settings(64))
    for _ in range(3):
        await coordinator.look()
        await coordinator.let_go()
    await wide.yard.redis.delete("ty:{ctl}:plan", "ty:{ctl}:coordinator")
    after = Coordinator(wide.yard, settings(100))
    assert await after.look() is False, "a shard that heard a newer plan took an older one"
    assert await after.look()
    assert sum(await parts_of(wide)) == 100


async def test_a_shard_that_lost_its_part_gets_one_and_the_sum_never_exceeds_the_limit(wide: Scene) -> None:
    coordinator = Coordinator(wide.yard, settings(64))
    await coordinator.look()
    await wide.yard.shards[5].redis.hdel(wide.yard.shards[5].keys.limits, "max", "plan")
    await coordinator.look()
    parts = await parts_of(wide)
    assert sum(parts) == 64
    assert parts[5] >= 1


async def _look_until_it_is_mine(coordinator: Coordinator) -> None:
    while not await coordinator.look():
        pass


async def _end_some(shard: Shard) -> None:
    """Take away what runs there, as turns that end do."""
    prefix = shard.keys.prefix
    for sid in await shard.redis.zrange(prefix + "running", 0, 2):
        await shard.redis.zadd(prefix + "running", {sid: 1})
    await upkeep.tick(shard, who="supervisor", parts="b")


async def test_a_cap_that_is_no_longer_set_keeps_no_shard_from_its_tenant(wide: Scene) -> None:
    capped = Coordinator(wide.yard, settings(64, tenants={"small": {"max_concurrent_turns": 3}}))
    await capped.look()
    without = (await parts_of(wide, "l:t/small")).index(0)
    (name,) = on_shard(wide, without, 1, "small")
    shard = wide.yard.shards[without]
    await wide.say(session=name, tenant="small")
    await wide.dispatch(shard)
    assert await wide.state(name, "small") == "ready"
    await capped.let_go()
    assert await Coordinator(wide.yard, settings(64)).look()
    await wide.tick(shard=shard)
    assert await wide.state(name, "small") == "assigned"
