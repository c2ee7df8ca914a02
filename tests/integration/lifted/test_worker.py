"""Lifted calls on real processes: nobody waits for them, and each has one outcome whatever dies."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from platforms.relays import run_relays
from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Role, Roles
from turnyard.clock import SystemClock
from turnyard.records.log import RESULT, SENT
from turnyard.state import ingress
from turnyard.testing import wait_until


async def outcomes(talk: Talk, session: str) -> list[str | None]:
    """The outcomes of a session's results, in order."""
    return [r.outcome for r in await talk.log(session) if r.type == RESULT]


def start(clean: str, roles: Roles, app: SampleApp, *args: str) -> tuple[Role, Role]:
    """Start a dispatcher, a worker and a lifted worker; return the two workers."""
    roles.dispatcher(clean)
    turns = roles.worker(clean, app.path, "--processes", "1")
    return turns, roles.worker(clean, app.path, "--processes", "1", *args, role="lifted")


@pytest.mark.spec("turn-20")
@pytest.mark.usefixtures("relays")
async def test_a_lifted_call_holds_no_slot_and_its_result_comes_back_once(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    start(clean, roles, app)
    job = await talk.say("s1", "render scene", complete_when="settled")
    await wait_until(lambda: app.ran("render") != [], description="the task to run")

    async def idle() -> bool:
        return await talk.state("s1") == "idle"

    await wait_until(idle, description="the turn to end")
    assert await talk.running() == 0
    assert (await talk.job(job)).state == "waiting"
    app.open("scene")
    assert (await talk.done(job)).state == "succeeded"
    assert await outcomes(talk, "s1") == ["placeholder", "result"]
    assert [line for line in await talk.story("s1") if line.startswith("result: rendered")] == ["result: rendered scene"]
    assert len(app.ran("render")) == 1
    await wait_until(talk.quiet, description="nothing to be held")
    check_log(await talk.log("s1"))


@pytest.mark.spec("L01", "I6")
@pytest.mark.usefixtures("relays")
async def test_a_lifted_task_whose_process_is_killed_runs_again_if_it_may(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    start(clean, roles, app)
    job = await talk.say("s1", "render scene", complete_when="settled")
    await wait_until(lambda: app.ran("render") != [], description="the task to run")
    os.kill(app.ran("render")[0], signal.SIGKILL)
    await wait_until(lambda: len(app.ran("render")) == 2, description="the task to run again")
    app.open("scene")
    assert (await talk.done(job)).state == "succeeded"
    assert await outcomes(talk, "s1") == ["placeholder", "result"]
    # both attempts said it
    assert [record.body["text"] for record in await talk.log("s1") if record.type == SENT] == ["rendering scene"]


@pytest.mark.spec("trap-23")
@pytest.mark.usefixtures("relays")
async def test_a_lifted_task_that_must_not_run_again_is_reported_as_unknown(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    start(clean, roles, app)
    job = await talk.say("s1", "burn wood", complete_when="settled")
    await wait_until(lambda: app.ran("burn") != [], description="the task to run")
    os.kill(app.ran("burn")[0], signal.SIGKILL)
    app.open("wood")
    assert (await talk.done(job)).state == "succeeded"
    assert await outcomes(talk, "s1") == ["placeholder", "unknown"]
    assert len(app.ran("burn")) == 1


@pytest.mark.usefixtures("relays")
async def test_when_the_whole_lifted_worker_is_killed_another_one_is_given_the_task(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    _, lifted = start(clean, roles, app)
    job = await talk.say("s1", "render scene", complete_when="settled")
    await wait_until(lambda: app.ran("render") != [], description="the task to run")
    lifted.kill_all()
    roles.worker(clean, app.path, "--processes", "1", role="lifted")
    await wait_until(lambda: len(app.ran("render")) == 2, description="the task to run again")
    app.open("scene")
    assert (await talk.done(job)).state == "succeeded"


@pytest.mark.spec("L06")
@pytest.mark.usefixtures("relays")
async def test_a_stopped_lifted_worker_gives_its_task_the_time_to_end(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    _, lifted = start(clean, roles, app)
    job = await talk.say("s1", "burn wood", complete_when="settled")
    await wait_until(lambda: app.ran("burn") != [], description="the task to run")
    lifted.process.send_signal(signal.SIGTERM)
    await wait_until(lambda: lifted.events("draining") != [], description="the drain to begin")
    app.open("wood")
    assert lifted.process.wait(20) == 0
    assert (await talk.done(job)).state == "succeeded"
    assert await outcomes(talk, "s1") == ["placeholder", "result"]


@pytest.mark.usefixtures("relays")
async def test_a_task_that_outlives_the_grace_is_left_for_another_worker(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    _, lifted = start(clean, roles, app, "--grace", "1")
    job = await talk.say("s1", "render scene", complete_when="settled")
    await wait_until(lambda: app.ran("render") != [], description="the task to run")
    lifted.process.send_signal(signal.SIGTERM)
    assert lifted.process.wait(20) == 0
    roles.worker(clean, app.path, "--processes", "1", role="lifted")
    await wait_until(lambda: len(app.ran("render")) == 2, description="the task to run again")
    app.open("scene")
    assert (await talk.done(job)).state == "succeeded"


@pytest.mark.usefixtures("relays")
async def test_a_cancelled_job_stops_its_lifted_task(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    start(clean, roles, app)
    job = await talk.say("s1", "burn wood", complete_when="settled")
    await wait_until(lambda: app.ran("burn") != [], description="the task to run")
    await ingress.cancel_job(talk.yard, job, tenant=TENANT)
    assert (await talk.done(job)).state == "cancelled"
    await wait_until(talk.quiet, description="the task to be let go")


@pytest.mark.spec("trap-22")
async def test_a_call_parked_while_no_relay_lives_is_relayed_by_the_next_one(
    talk: Talk, clean: str, plain_url: str, monkeypatch: pytest.MonkeyPatch, roles: Roles, app: SampleApp
) -> None:
    monkeypatch.setenv("TURNYARD__REDIS__LIFTED_URL", plain_url)
    start(clean, roles, app)
    job = await talk.say("s1", "render scene", complete_when="settled")

    async def waiting() -> bool:
        return (await talk.job(job)).state == "waiting"

    await wait_until(waiting, description="the turn to end")
    app.open("scene")
    assert app.ran("render") == []
    drain = asyncio.Event()
    task = asyncio.create_task(run_relays(talk.yard, drain, clock=SystemClock(), lifted_url=plain_url))
    assert (await talk.done(job)).state == "succeeded"
    drain.set()
    await task
