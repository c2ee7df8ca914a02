"""Agents that work for agents, on real worker processes."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.workers.family_app import FamilyApp
from tests.processes import Roles
from turnyard.client import RedisClient
from turnyard.errors import JobCancelled
from turnyard.records.log import RESOLVED
from turnyard.testing import wait_until


@pytest.mark.spec("turn-56")
async def test_a_parent_of_twenty_children_wakes_once_with_their_answers_in_order_and_what_they_cost(
    client: RedisClient, talk: Talk, family: FamilyApp
) -> None:
    job = await client.submit("waits", "20", session="s1")
    answer = await job.result(timeout=60)
    assert answer["text"] == " ".join(f"echo n{i}" for i in range(20))
    assert (family.asked("waits"), family.asked("kid")) == (2, 20)
    assert (await client.job(job.id)).data["usage"]["model_calls"] == 22
    assert max(r.epoch for r in await talk.log("s1")) == 2
    check_log(await talk.log("s1"))


@pytest.mark.spec("turn-66")
async def test_twenty_children_that_end_during_one_slow_model_call_do_not_repeat_it_and_are_all_heard(
    client: RedisClient, talk: Talk, family: FamilyApp
) -> None:
    job = await client.submit("goes", "20", session="s1")

    async def all_told() -> bool:
        return sum(r.type == RESOLVED for r in await talk.log("s1")) == 20

    await wait_until(all_told, description="all children to be done", timeout_s=30)
    assert family.asked("goes") == 2
    family.open("thought")
    assert (await job.result(timeout=30))["text"] == "heard of 20"
    assert (family.asked("goes"), family.asked("aide")) == (3, 20)
    check_log(await talk.log("s1"))


@pytest.mark.spec("turn-60")
@pytest.mark.parametrize("cascade", [True, False])
async def test_a_cancel_ends_a_waiting_parent_at_once_and_its_running_child_only_when_it_is_told_to(
    client: RedisClient, talk: Talk, family: FamilyApp, cascade: bool
) -> None:
    job = await client.submit("hopes", "go", session="s1")
    await wait_until(lambda: family.asked("stuck") == 1, description="the child to work", timeout_s=30)
    (child,) = [s["id"] for s in await client.sessions() if s["agent"] == "stuck"]
    await job.cancel(cascade=cascade)
    with pytest.raises(JobCancelled):
        await job.result(timeout=30)
    check_log(await talk.log("s1"))
    (work,) = await client.jobs(session=child)
    if not cascade:
        assert work.data["state"] == "running"
        await work.cancel()
    with pytest.raises(JobCancelled):
        await work.result(timeout=30)
    check_log(await talk.log(child))


@pytest.mark.spec("turn-65")
async def test_fifty_clients_that_start_the_same_at_once_make_one_run(client: RedisClient, clean: str, family: FamilyApp) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RedisClient(clean)) for _ in range(50)]
        jobs = await asyncio.gather(*(c.submit("kid", "hello", idempotency_key="k1") for c in clients))
        assert len({job.id for job in jobs}) == 1
        answers = await asyncio.gather(*(job.result(timeout=30) for job in jobs))
        assert [answer["text"] for answer in answers] == ["echo hello"] * 50
    assert family.asked("kid") == 1
    assert len(await client.sessions()) == 1


async def test_children_reach_their_parent_although_the_process_that_relays_is_killed_again_and_again(
    talk: Talk, clean: str, roles: Roles, family: FamilyApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, family.path)
    relay = roles.start("platforms", "http", "--port", "0", "--redis", clean)
    async with RedisClient(clean) as client:

        async def published() -> bool:
            return await client.edge.manifest("waits") is not None

        await wait_until(published, description="the agents to be published", timeout_s=30)
        job = await client.submit("waits", "60", session="s1")
        for seen in (1, 20):
            await wait_until(lambda least=seen: family.asked("kid") >= least, description="children to work", timeout_s=30)
            relay.kill_all()
            relay = roles.start("platforms", "http", "--port", "0", "--redis", clean)
        assert (await job.result(timeout=60))["text"] == " ".join(f"echo n{i}" for i in range(60))
        assert (await client.job(job.id)).data["usage"]["model_calls"] == 62
    assert family.asked("kid") == 60
    check_log(await talk.log("s1"))
