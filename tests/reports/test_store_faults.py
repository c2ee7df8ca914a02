"""Connections that break, freeze or lie, and a server that forgets or goes away: work goes on, each step once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest
from redis import exceptions as rx

from tests.faults.proxy import LOSE, Command, Fault
from tests.integration.conversation import TENANT, Talk, check_log
from tests.reports.deployment import Deployment
from turnyard.errors import StoreUnavailable
from turnyard.records.ids import body_hash, new_job_id
from turnyard.records.messages import UserMessage
from turnyard.state import ingress
from turnyard.testing import wait_until

pytestmark = [pytest.mark.xdist_group("deployment"), pytest.mark.timeout(120)]


async def _well(talk: Talk, name: str, count: int = 10) -> None:
    """New messages are answered, and each of their logs is as it must be."""
    jobs = [await talk.say(f"{name}{i}", f"add {i} 1") for i in range(count)]
    for i, job in enumerate(jobs):
        ended = await talk.done(job, timeout_s=60)
        assert ended.output is not None
        assert ended.output["text"] == f"it is {i + 1}"
        check_log(await talk.log(f"{name}{i}"))


@pytest.mark.spec("L02", "L13")
async def test_processes_whose_connections_are_reset_again_and_again_read_again(deployment: Deployment, visitor: Talk) -> None:
    for _ in range(15):
        await wait_until(lambda: len(deployment.proxy.pids()) >= 4, description="processes to have connected", timeout_s=30)
        deployment.proxy.reset()
    await _well(visitor, "reset")
    assert deployment.alive()

    async def are_well() -> bool:
        # the proxy lives in this loop: whoever blocks it keeps the roles from their server
        roles = (*deployment.dispatchers, *deployment.workers)
        return {await asyncio.to_thread(role.answers, "/healthz") for role in roles} == {200}

    await wait_until(are_well, description="every role to be well", timeout_s=30)


@pytest.mark.spec("L10", "trap-38")
async def test_readers_whose_connections_are_frozen_hold_up_no_message_for_longer_than_a_deadline(
    deployment: Deployment, visitor: Talk
) -> None:
    """One of two dispatchers and the worker that is first in line are connected and hear nothing any more."""
    swallowed = 0
    for attempt in range(6):
        line = _line(deployment)
        await wait_until(lambda line=line: len(set(line)) == 2, description="both workers to wait for work", timeout_s=30)
        frozen = {line[0], deployment.dispatchers[0].process.pid}
        deployment.proxy.hold(frozen.__contains__)
        await _well(visitor, f"frozen{attempt}-")
        swallowed += len([i for i in range(10) if (await visitor.log(f"frozen{attempt}-{i}"))[-1].epoch > 1])
        deployment.proxy.release()
        await visitor.enrolled(2)
        if swallowed:
            break
    assert swallowed, "the frozen reader was never given anything"
    await _well(visitor, "thawed")


def _line(deployment: Deployment) -> list[int]:
    """Return the processes that wait for an assignment, first in line first, as they are from now on."""
    line: list[int] = []

    def hook(command: Command, reply: bytes | None) -> None:
        if command.what == "blmpop" and reply is None:
            line.append(command.pid)
        elif command.what == "blmpop" and command.pid in line:
            line.remove(command.pid)

    deployment.proxy.hook = hook
    return line


async def test_a_worker_that_is_cut_off_with_its_connections_open_loses_its_turn_after_a_lease_and_writes_nothing_late(
    deployment: Deployment, visitor: Talk
) -> None:
    """Nothing passes between one worker and the server, either way, and no connection ends: only its lease tells."""
    before = len(deployment.app.ran("again"))
    job = await visitor.say("cut_off", "again cut_off_gate")
    await wait_until(lambda: len(deployment.app.ran("again")) > before, description="the tool to run", timeout_s=30)
    [holder] = [worker for worker in deployment.workers if deployment.app.ran("again")[-1] in worker.children()]
    cut_off = deployment.members(holder)
    deployment.proxy.hold(cut_off.__contains__)
    await wait_until(lambda: len(deployment.app.ran("again")) > before + 1, description="the other worker to run it", timeout_s=30)
    assert deployment.app.ran("again")[-1] not in cut_off
    deployment.app.open("cut_off_gate")
    assert (await visitor.done(job, timeout_s=30)).state == "succeeded"
    written = await visitor.log("cut_off")
    deployment.proxy.release()
    await visitor.enrolled(2)
    assert await visitor.log("cut_off") == written
    check_log(written)
    assert len(deployment.app.ran("again")) == before + 2


@pytest.mark.spec("rival-44")
async def test_a_commit_whose_answer_is_lost_is_made_again_and_the_step_is_not(deployment: Deployment, visitor: Talk) -> None:
    """The answer of every other commit is lost, of the mark that a tool starts and of its result among them."""
    lost: list[str] = []

    def hook(command: Command, reply: bytes | None) -> Fault | None:
        if command.what == "commit" and reply is not None and len(lost) < 12:
            lost.append(command.what)
            return LOSE if len(lost) % 2 else None
        return None

    before = len(deployment.app.ran("add"))
    deployment.proxy.hook = hook
    for i in range(3):
        ended = await visitor.done(await visitor.say(f"lost{i}", "add 2 3"), timeout_s=60)
        assert ended.output is not None
        assert ended.output["text"] == "it is 5"
        assert await visitor.story(f"lost{i}") == ["user: add 2 3", "assistant: ", "call: add", "result: 5", "assistant: it is 5"]
    assert len(lost) == 12
    assert len(deployment.app.ran("add")) == before + 3


async def test_turns_that_are_cancelled_while_every_answer_is_late_get_nobody_elses_answer(deployment: Deployment, visitor: Talk) -> None:
    deployment.proxy.delay_s = 0.05
    cancelled = [await visitor.say(f"c{i}", "slowly") for i in range(6)]
    others = [await visitor.say(f"o{i}", f"add {i} 100") for i in range(6)]
    for job in cancelled:
        await ingress.cancel_job(visitor.yard, job, tenant=TENANT)
    for i, job in enumerate(others):
        ended = await visitor.done(job, timeout_s=60)
        assert ended.output is not None
        assert ended.output["text"] == f"it is {i + 100}"
    for i, job in enumerate(cancelled):
        assert (await visitor.done(job, timeout_s=60)).done
        assert (await visitor.story(f"c{i}"))[:1] in ([], ["user: slowly"])
        check_log(await visitor.log(f"c{i}"))


@pytest.mark.spec("L22", "trap-37")
async def test_a_server_that_keeps_forgetting_its_scripts_under_load_fails_no_request(deployment: Deployment, visitor: Talk) -> None:
    done = asyncio.Event()

    async def forget() -> int:
        times = 0
        while not done.is_set():
            await visitor.yard.redis.function_flush()
            await visitor.yard.redis.script_flush()
            times += 1
            await wait_until(lambda: _loaded(visitor), description="somebody to load a script", timeout_s=30)
        return times

    forgetting = asyncio.create_task(forget())
    await _well(visitor, "forgotten", 30)
    done.set()
    assert await forgetting > 3
    for role in (*deployment.dispatchers, *deployment.workers):
        assert role.events("turn dropped by a defect") == []


async def _loaded(talk: Talk) -> bool:
    return bool(await talk.yard.redis.function_list())


@pytest.mark.spec("L09", "L12", "rival-33", "rival-25")
async def test_a_call_that_lasts_several_leases_runs_once_while_its_worker_lives(deployment: Deployment, visitor: Talk) -> None:
    before = len(deployment.app.ran("once"))
    job = await visitor.say("long", "once long_gate")
    await wait_until(lambda: len(deployment.app.ran("once")) > before, description="the tool to run", timeout_s=30)
    began_s = (await visitor.yard.redis.time())[0]

    async def long_after() -> bool:
        return (await visitor.yard.redis.time())[0] > began_s + 3

    await wait_until(long_after, description="three leases to pass", timeout_s=30)
    deployment.app.open("long_gate")
    assert (await visitor.done(job)).state == "succeeded"
    assert len(deployment.app.ran("once")) == before + 1
    assert {record.epoch for record in await visitor.log("long")} <= {0, 1}


async def test_a_message_that_comes_as_a_turn_is_resumed_joins_it_or_follows(deployment: Deployment, visitor: Talk) -> None:
    ran = deployment.app.ran
    before = len(ran("again"))
    first = await visitor.say("both", "again both_gate")
    await wait_until(lambda: len(ran("again")) > before, description="the tool to run", timeout_s=30)
    os.kill(ran("again")[-1], signal.SIGKILL)
    second = await visitor.say("both", "add 20 3")
    deployment.app.open("both_gate")
    assert (await visitor.done(first, timeout_s=60)).state == "succeeded"
    assert (await visitor.done(second, timeout_s=60)).state == "succeeded"
    records = await visitor.log("both")
    check_log(records)
    assert [r.body["text"] for r in records if r.type == "user/message"] == ["again both_gate", "add 20 3"]
    assert len(ran("again")) == before + 2
    assert (await visitor.state("both"), await visitor.quiet()) == ("idle", True)


@pytest.mark.spec("L15", "I12")
async def test_what_was_due_while_the_server_was_down_is_done_when_it_is_back(deployment: Deployment, visitor: Talk) -> None:
    job = new_job_id(0)
    due = UserMessage(TENANT, "due", "hello", {"text": "hi"}, job, body_hash(b"hi"), mode="follow_up", delay_ms=500)
    assert (await ingress.accept_message(visitor.yard, due)).code == "accepted"
    with contextlib.suppress(rx.RedisError, OSError):
        await visitor.yard.redis.execute_command("DEBUG", "CRASH-AND-RECOVER", "1000")

    async def ended() -> bool:
        with contextlib.suppress(StoreUnavailable):
            return (await visitor.job(job)).done
        return False

    await wait_until(ended, description="what was due to be done", timeout_s=60)
    assert (await visitor.job(job)).state == "succeeded"
    await visitor.enrolled(2)
    await _well(visitor, "back")
    assert deployment.alive()


@pytest.mark.spec("rival-48")
async def test_a_whole_run_makes_no_consumer_group_and_leaves_nothing_on_the_way(deployment: Deployment, visitor: Talk) -> None:
    """Nothing is claimed in a stream, so there is no consumer to leak, no pending entry to reclaim, nothing to acknowledge."""
    await _well(visitor, "groupless")
    redis, prefix = visitor.yard.redis, visitor.yard.shards[0].keys.prefix
    for key in await redis.keys("*"):
        if await redis.type(key) == b"stream":
            assert await redis.xinfo_groups(key) == []
    group = ("xgroup", "xreadgroup", "xack", "xautoclaim", "xclaim", "xpending", "xtrim")
    assert [name for name in await redis.info("commandstats") if name.removeprefix("cmdstat_").partition("|")[0] in group] == []
    await wait_until(visitor.quiet, description="all to be at rest", timeout_s=30)
    assert await redis.xlen(prefix + "ingress") == 0
