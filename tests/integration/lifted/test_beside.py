"""Bodies that outlast their turns: they go on where they are, once, and their row has what came of them."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.lifted.later_app import LaterApp, results
from tests.processes import Role, Roles
from turnyard.state import ingress
from turnyard.testing import wait_until


def start(clean: str, roles: Roles, later: LaterApp, *args: str, lifted: bool = False) -> Role:
    """Start a dispatcher, a worker and, if it is asked for, a lifted worker; return the worker."""
    roles.dispatcher(clean)
    if lifted:
        roles.worker(clean, later.path, "--processes", "1", role="lifted")
    return roles.worker(clean, later.path, "--processes", "1", *args)


async def beside(talk: Talk, later: LaterApp, session: str, text: str) -> str:
    """Have a call made whose body outlasts its turn; return the job once the turn is over and the body goes on."""
    job = await talk.say(session, text, complete_when="settled")

    async def over() -> bool:
        return (await talk.job(job)).state == "waiting"

    await wait_until(over, description="the turn to end")
    return job


async def test_a_body_that_takes_long_goes_on_beside_its_turn_without_a_slot_and_runs_once(
    talk: Talk, clean: str, roles: Roles, later: LaterApp
) -> None:
    start(clean, roles, later)
    job = await beside(talk, later, "s1", "long gate")
    assert await talk.running() == 0
    assert [w.running for w in await talk.workers()] == [1]
    later.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert await results(talk, "s1") == [("placeholder", None), ("result", "gate took long")]
    assert len(later.ran("long")) == 1
    await wait_until(talk.quiet, description="nothing to be held")
    check_log(await talk.log("s1"))


async def test_a_turn_may_wait_for_its_long_call_without_a_slot(talk: Talk, clean: str, roles: Roles, later: LaterApp) -> None:
    start(clean, roles, later)
    job = await talk.say("s1", "patient gate", complete_when="settled")

    async def parked() -> bool:
        return await talk.state("s1") == "parked"

    await wait_until(parked, description="the turn to wait")
    assert await talk.running() == 0
    later.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert await results(talk, "s1") == [("result", "gate was worth it")]
    assert len(later.ran("patient")) == 1


async def test_a_newer_message_goes_before_a_long_call_that_its_turn_waits_for(
    talk: Talk, clean: str, roles: Roles, later: LaterApp
) -> None:
    start(clean, roles, later)
    job = await talk.say("s1", "patient gate", complete_when="settled")

    async def parked() -> bool:
        return await talk.state("s1") == "parked"

    await wait_until(parked, description="the turn to wait")
    await talk.done(await talk.say("s1", "add one"))
    later.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert [outcome for outcome, _ in await results(talk, "s1")] == ["placeholder", "result", "result"]
    assert len(later.ran("patient")) == 1


async def test_long_calls_of_one_answer_go_on_side_by_side(talk: Talk, clean: str, roles: Roles, later: LaterApp) -> None:
    start(clean, roles, later)
    job = await beside(talk, later, "s1", "long a once b")
    later.open("b")

    async def one_there() -> bool:
        return ("result", "b was done once") in await results(talk, "s1")

    await wait_until(one_there, description="the second result to come first")
    later.open("a")
    assert (await talk.done(job)).state == "succeeded"
    assert sorted(await results(talk, "s1"), key=str)[2:] == [("result", "a took long"), ("result", "b was done once")]
    assert (len(later.ran("long")), len(later.ran("once"))) == (1, 1)
    check_log(await talk.log("s1"))


@pytest.mark.usefixtures("relays")
async def test_when_its_worker_dies_a_long_call_that_may_run_again_runs_on_a_lifted_worker(
    talk: Talk, clean: str, roles: Roles, later: LaterApp
) -> None:
    start(clean, roles, later, lifted=True)
    job = await beside(talk, later, "s1", "long gate")
    os.kill(later.ran("long")[0], signal.SIGKILL)
    await wait_until(lambda: len(later.ran("long")) == 2, description="the call to run again")
    later.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert await results(talk, "s1") == [("placeholder", None), ("result", "gate took long")]
    assert len(set(later.ran("long"))) == 2


async def test_when_its_worker_dies_a_long_call_that_must_not_run_again_is_unknown(
    talk: Talk, clean: str, roles: Roles, later: LaterApp
) -> None:
    start(clean, roles, later)
    job = await beside(talk, later, "s1", "once gate")
    os.kill(later.ran("once")[0], signal.SIGKILL)
    assert (await talk.done(job)).state == "succeeded"
    assert [outcome for outcome, _ in await results(talk, "s1")] == ["placeholder", "unknown"]
    assert len(later.ran("once")) == 1


async def test_a_cancelled_job_stops_its_long_call(talk: Talk, clean: str, roles: Roles, later: LaterApp) -> None:
    start(clean, roles, later)
    job = await beside(talk, later, "s1", "long gate")
    await ingress.cancel_job(talk.yard, job, tenant=TENANT)
    assert (await talk.done(job)).state == "cancelled"
    await wait_until(lambda: later.ran("stopped") != [], description="the body to be stopped")
    await wait_until(talk.quiet, description="nothing to be held")


@pytest.mark.spec("runner-31")
async def test_a_long_call_over_its_time_says_so(talk: Talk, clean: str, roles: Roles, later: LaterApp) -> None:
    start(clean, roles, later)
    job = await beside(talk, later, "s1", "slow gate")
    assert (await talk.done(job)).state == "succeeded"
    assert (await results(talk, "s1"))[-1] == ("error", "slow timed out after 0.5 s; its effect is unknown")


async def test_a_drain_waits_for_a_long_call(talk: Talk, clean: str, roles: Roles, later: LaterApp) -> None:
    worker = start(clean, roles, later)
    job = await beside(talk, later, "s1", "once gate")
    worker.process.send_signal(signal.SIGTERM)
    await wait_until(lambda: worker.events("draining") != [], description="the drain to begin")
    later.open("gate")
    assert worker.process.wait(20) == 0
    roles.worker(clean, later.path, "--processes", "1")
    assert (await talk.done(job)).state == "succeeded"
    assert await results(talk, "s1") == [("placeholder", None), ("result", "gate was done once")]


@pytest.mark.usefixtures("relays")
async def test_a_long_call_that_outlives_the_grace_is_left_for_a_lifted_worker(
    talk: Talk, clean: str, roles: Roles, later: LaterApp
) -> None:
    worker = start(clean, roles, later, "--grace", "1", lifted=True)
    job = await beside(talk, later, "s1", "long gate")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(20) == 0
    roles.worker(clean, later.path, "--processes", "1")
    await wait_until(lambda: len(later.ran("long")) == 2, description="the call to run again")
    later.open("gate")
    assert (await talk.done(job)).state == "succeeded"
