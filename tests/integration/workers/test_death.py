"""Workers that die: who goes on, what is run again, and what a dead one can still do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.state import upkeep
from turnyard.testing import wait_until


@pytest.mark.spec("L33")
async def test_a_killed_child_is_replaced_and_another_finishes_its_turn(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    slow = {"TURNYARD__TIMING__LEASE_MS": "60000"}
    roles.dispatcher(clean, env=slow)
    worker = roles.worker(clean, app.path, env=slow)
    await talk.enrolled(2)
    before = worker.children()
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: app.ran("again") != [], description="the tool to run")
    [killed] = app.ran("again")
    epoch = (await talk.log("s1"))[-1].epoch
    os.kill(killed, signal.SIGKILL)
    await wait_until(lambda: len(app.ran("again")) == 2, description="another worker to run the tool again")
    app.open("gate")
    ended = await talk.done(job)
    assert ended.output is not None
    assert ended.output["text"] == "then: gate is open"
    records = await talk.log("s1")
    check_log(records)
    assert records[-1].epoch > epoch
    assert len([line for line in await talk.story("s1") if line.startswith("assistant: then")]) == 1
    assert len(app.ran("again")) == 2
    await talk.enrolled(2)
    assert killed in before
    assert killed not in worker.children()


@pytest.mark.spec("I5")
async def test_a_tool_that_is_not_idempotent_is_reported_as_unknown_and_never_run_twice(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "once gate")
    await wait_until(lambda: app.ran("once") != [], description="the tool to run")
    os.kill(app.ran("once")[0], signal.SIGKILL)
    app.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert len(app.ran("once")) == 1
    assert [r.outcome for r in await talk.log("s1") if r.type == "tool/result"] == ["unknown"]
    check_log(await talk.log("s1"))


@pytest.mark.spec("I12", "runner-3")
async def test_when_a_whole_worker_is_killed_its_turns_go_on_elsewhere(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    first = roles.worker(clean, app.path)
    await talk.enrolled(2)
    jobs = [await talk.say(f"s{i}", "again gate") for i in range(6)]
    await wait_until(lambda: len(app.ran("again")) == 6, description="all tools to run")
    first.kill_all()
    roles.worker(clean, app.path)
    app.open("gate")
    for job in jobs:
        assert (await talk.done(job)).state == "succeeded"
    for i in range(6):
        check_log(await talk.log(f"s{i}"))
    assert len(app.ran("again")) == 12
    await wait_until(talk.quiet, description="all slots to be free")
    await talk.enrolled(2)


async def test_a_whole_worker_that_is_killed_is_missed_long_before_its_lease_ends(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    slow = {"TURNYARD__TIMING__LEASE_MS": "60000"}
    roles.dispatcher(clean, env=slow)
    first = roles.worker(clean, app.path, env=slow)
    await talk.enrolled(2)
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: app.ran("again") != [], description="the tool to run")
    first.kill_all()
    roles.worker(clean, app.path, env=slow)
    app.open("gate")
    assert (await talk.done(job)).state == "succeeded"


async def test_a_worker_whose_connections_were_cut_keeps_its_turns(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    dispatcher = roles.dispatcher(clean)
    roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "once gate")
    await wait_until(lambda: app.ran("once") != [], description="the tool to run")
    names = [w.worker for w in await talk.workers()]
    for _ in range(3):
        await talk.yard.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert (await talk.done(await talk.say("s2", "add 1 1"))).state == "succeeded"
    app.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert len(app.ran("once")) == 1
    assert sorted(w.worker for w in await talk.workers()) == sorted(names)
    assert dispatcher.process.poll() is None


async def test_a_turn_that_keeps_killing_its_workers_fails_and_its_session_lives_on(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path, "--processes", "2")
    await talk.enrolled(2)
    job = await talk.done(await talk.say("s1", "kill"), timeout_s=50)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["code"] == "poisoned"
    assert (await talk.done(await talk.say("s1", "add 1 1"))).state == "succeeded"
    check_log(await talk.log("s1"))


async def test_children_of_a_killed_supervisor_hand_their_turns_back_at_once(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    slow = {"TURNYARD__TIMING__LEASE_MS": "60000"}
    roles.dispatcher(clean, env=slow)
    first = roles.worker(clean, app.path, env=slow)
    await talk.enrolled(2)
    children = first.children()
    first.process.kill()
    first.process.wait()
    await wait_until(lambda: not any(_alive(pid) for pid in children), description="the children to end")
    await talk.enrolled(0)
    roles.worker(clean, app.path, env=slow)
    assert (await talk.done(await talk.say("s1", "add 1 1"))).state == "succeeded"


@pytest.mark.spec("L14", "rival-31", "trap-20")
async def test_a_tool_that_blocks_its_process_gets_it_killed_and_the_turn_goes_on(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path, "--max-block", "1")
    await talk.enrolled(2)
    job = await talk.say("s1", "block 600")
    other = [await talk.say(f"o{i}", "add 1 1") for i in range(4)]
    assert (await talk.done(job)).state == "succeeded"
    assert len(app.ran("block")) == 1
    for each in other:
        assert (await talk.done(each)).state == "succeeded"
    check_log(await talk.log("s1"))


@pytest.mark.spec("rival-32", "turn-53")
async def test_a_child_that_was_frozen_past_its_lease_writes_nothing_more(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    first = roles.worker(clean, app.path, "--processes", "1")
    await talk.enrolled(1)
    [child] = [worker.pid for worker in await talk.workers()]
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: app.ran("again") == [child], description="the tool to run")
    os.kill(first.process.pid, signal.SIGSTOP)
    os.kill(child, signal.SIGSTOP)
    roles.worker(clean, app.path, "--processes", "1")
    await wait_until(lambda: len(app.ran("again")) == 2, description="another worker to take over")
    app.open("gate")
    ended = await talk.done(job)
    records = await talk.log("s1")
    os.kill(first.process.pid, signal.SIGCONT)
    os.kill(child, signal.SIGCONT)
    await talk.enrolled(2)
    assert await talk.log("s1") == records
    check_log(records)
    assert ended.state == "succeeded"
    assert (await talk.done(await talk.say("s1", "hi"))).state == "succeeded"


async def test_an_expelled_child_registers_anew_and_works_on(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path, "--processes", "1")
    await talk.enrolled(1)
    [before] = await talk.workers()
    await upkeep.tick(talk.yard.shards[0], dead=(before.worker,), lease_ms=1000, tick_ms=100)

    async def renamed() -> bool:
        return [w.worker for w in await talk.workers()] not in ([], [before.worker])

    await wait_until(renamed, description="the child to take a new name")
    assert {w.pid for w in await talk.workers()} == {before.pid}
    assert (await talk.done(await talk.say("s1", "add 1 1"))).state == "succeeded"


def _alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_a_process_that_was_ready_beforehand_takes_the_place_of_a_child_that_died(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    worker = roles.worker(clean, app.path, "--processes", "1")
    await wait_until(lambda: len(worker.children()) == 2, timeout_s=20, description="the child and its spare")
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: app.ran("again") != [], description="the tool to run")
    [killed] = app.ran("again")
    [spare] = set(worker.children()) - {killed}
    os.kill(killed, signal.SIGKILL)
    await wait_until(lambda: len(app.ran("again")) == 2, description="the tool to run again")
    assert app.ran("again")[1] == spare
    app.open("gate")
    assert (await talk.done(job)).state == "succeeded"
