"""A dispatcher as a process, on a real server."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from tests.processes import Roles
from turnyard.records.ids import body_hash, new_job_id, session_key
from turnyard.records.messages import UserMessage
from turnyard.state import fleet, ingress, sessions
from turnyard.state.flows import set_limits
from turnyard.state.yard import Yard
from turnyard.testing import wait_until


@pytest.fixture
async def yard(clean: str) -> AsyncIterator[Yard]:
    yard = await Yard.open(clean)
    yield yard
    await yard.aclose()


async def say(yard: Yard, session: str, text: str = "hi") -> str:
    job = new_job_id(yard.shard_for(session_key("default", session)).n)
    body = {"text": text}
    await ingress.accept_message(yard, UserMessage("default", session, "hello", body, job, body_hash(text.encode())))
    return job


async def state(yard: Yard, session: str) -> str:
    view = await sessions.read_session(yard, tenant="default", session=session)
    return view.state if view else "none"


async def worker(yard: Yard, owner: str = "a" * 32, *, lease_ms: int = 60_000) -> fleet.Registration:
    reg = fleet.Registration(owner, "worker", "h", 1, 1, ("default",), {"hello": 1}, 100)
    await fleet.register(yard.shards[0], reg, lease_ms=lease_ms)
    return reg


async def test_an_accepted_message_is_admitted_to_a_live_worker(yard: Yard, clean: str, roles: Roles) -> None:
    roles.dispatcher(clean)
    registration = await worker(yard)
    await say(yard, "s1")
    [assigned] = await fleet.take(yard.shards[0], fleet.Lists(registration), free=1, block_ms=10_000)
    assert isinstance(assigned, fleet.Assignment)
    assert (assigned.session, assigned.agent) == (session_key("default", "s1"), "hello")


async def test_a_cap_that_is_no_longer_set_holds_nobody_up(yard: Yard, clean: str, roles: Roles) -> None:
    await set_limits(yard.shards[0], tenants={"default": 0}, pools={"default": 0})
    registration = await worker(yard)
    await say(yard, "s1")
    roles.dispatcher(clean)
    [assigned] = await fleet.take(yard.shards[0], fleet.Lists(registration), free=1, block_ms=10_000)
    assert isinstance(assigned, fleet.Assignment)


@pytest.mark.spec("trap-6", "trap-38")
async def test_an_assignment_that_nobody_begins_is_given_out_again(yard: Yard, clean: str, roles: Roles) -> None:
    roles.dispatcher(clean, env={"TURNYARD__TIMING__BEGIN_BY_MS": "200", "TURNYARD__TIMING__TICK_MS": "50"})
    lists = fleet.Lists(await worker(yard))
    await say(yard, "s1")
    [first] = await fleet.take(yard.shards[0], lists, free=1, block_ms=10_000)
    [second] = await fleet.take(yard.shards[0], lists, free=1, block_ms=10_000)
    assert isinstance(first, fleet.Assignment)
    assert isinstance(second, fleet.Assignment)
    assert second.session == first.session
    assert second.epoch > first.epoch


async def test_any_number_of_dispatchers_admit_each_turn_once(yard: Yard, clean: str, roles: Roles) -> None:
    for _ in range(3):
        roles.dispatcher(clean)
    lists = fleet.Lists(await worker(yard))
    for i in range(50):
        await say(yard, f"s{i}")
    taken: list[str] = []
    while len(taken) < 50:
        found = await fleet.take(yard.shards[0], lists, free=10, block_ms=10_000)
        assert found
        taken += [item.session for item in found if isinstance(item, fleet.Assignment)]
    assert sorted(taken) == sorted(session_key("default", f"s{i}") for i in range(50))


@pytest.mark.spec("trap-2")
async def test_a_dispatcher_that_is_killed_loses_nothing_of_what_was_accepted(yard: Yard, clean: str, roles: Roles) -> None:
    first = roles.dispatcher(clean)
    await worker(yard)
    await say(yard, "s0")
    await wait_until(lambda: _is(yard, "s0", "ready"), description="the first session to be admitted")
    first.process.kill()
    first.process.wait()
    for i in range(1, 20):
        await say(yard, f"s{i}")
    roles.dispatcher(clean)
    await wait_until(lambda: _all(yard, 20), description="all sessions to be admitted")


async def _is(yard: Yard, session: str, wanted: str) -> bool:
    return await state(yard, session) == wanted


async def _all(yard: Yard, count: int) -> bool:
    return await yard.shards[0].redis.zcard(yard.shards[0].keys.prefix + "running") == count


async def test_the_limits_of_the_settings_are_those_of_the_server(yard: Yard, clean: str, roles: Roles) -> None:
    roles.dispatcher(clean, env={"TURNYARD__LIMITS__MAX_CONCURRENT_TURNS": "3"})
    await worker(yard)
    for i in range(10):
        await say(yard, f"s{i}")
    await wait_until(lambda: _all(yard, 3), description="three turns to be admitted")


async def test_times_that_scripts_need_follow_from_the_settings(yard: Yard, clean: str, roles: Roles) -> None:
    roles.dispatcher(clean)
    shard = yard.shards[0]

    async def told() -> bool:
        return await shard.redis.hmget(shard.keys.limits, "begin_by", "quantum", "relay") == [b"1000", b"30000", b"3000"]

    await wait_until(told, description="begin-by, quantum and three leases for a relay")


async def test_told_to_stop_it_ends_with_0(yard: Yard, clean: str, roles: Roles) -> None:
    one = roles.dispatcher(clean, health=True)
    await wait_until(lambda: one.answers("/readyz") == 200, description="it to be ready")
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(10) == 0


async def test_a_server_that_is_away_at_the_start_is_waited_for(roles: Roles) -> None:
    one = roles.dispatcher("unix:///nowhere/redis.sock", health=True)
    await wait_until(lambda: one.answers("/readyz") == 503, description="it to say that it is not ready")
    assert one.process.poll() is None
    await wait_until(lambda: "waiting for the server" in one.log(), description="it to say what it waits for")
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(10) == 0


async def test_without_a_server_it_says_what_to_set_and_ends_with_3(roles: Roles) -> None:
    one = roles.start("dispatcher", env={"REDIS_URL": ""})
    assert one.process.wait(20) == 3
    assert "--redis URL or set REDIS_URL" in one.log()


@pytest.mark.spec("L22")
async def test_a_server_that_forgot_its_scripts_and_kept_its_data_is_worked_with(
    yard: Yard, clean: str, roles: Roles, redis_client: Redis
) -> None:
    roles.dispatcher(clean)
    lists = fleet.Lists(await worker(yard))
    await say(yard, "s1")
    assert await fleet.take(yard.shards[0], lists, free=1, block_ms=10_000)
    await redis_client.script_flush()
    await say(yard, "s2")
    assert await fleet.take(yard.shards[0], lists, free=1, block_ms=10_000)
