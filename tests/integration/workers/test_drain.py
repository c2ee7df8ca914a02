"""Being told to stop: before, during and after everything."""

from __future__ import annotations

import signal

import pytest

from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.state import ingress
from turnyard.testing import wait_until


@pytest.mark.spec("runner-47", "rival-58")
async def test_a_stopped_worker_ends_its_step_and_hands_the_turn_on(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    slow = {"TURNYARD__TIMING__LEASE_MS": "60000"}
    roles.dispatcher(clean, env=slow)
    first = roles.worker(clean, app.path, env=slow)
    await talk.enrolled(2)
    job = await talk.say("s1", "once gate")
    await wait_until(lambda: app.ran("once") != [], description="the tool to run")
    first.process.send_signal(signal.SIGTERM)
    await wait_until(lambda: first.events("draining") != [], description="the drain to begin")
    roles.worker(clean, app.path, env=slow)
    app.open("gate")
    assert first.process.wait(20) == 0
    ended = await talk.done(job)
    assert ended.output is not None
    assert ended.output["text"] == "then: gate is open"
    assert len(app.ran("once")) == 1
    records = await talk.log("s1")
    check_log(records)
    assert records[-1].epoch > records[0].epoch
    await talk.enrolled(2)


@pytest.mark.spec("rival-35")
async def test_a_stopped_worker_runs_no_step_of_what_comes_later(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    worker = roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "once gate")
    await wait_until(lambda: app.ran("once") != [], description="the tool to run")
    worker.process.send_signal(signal.SIGTERM)
    await wait_until(lambda: worker.events("draining") != [], description="the drain to begin")

    async def one_left() -> bool:
        return sum(w.role == "worker" for w in await talk.workers()) == 1

    await wait_until(one_left, description="the idle child to leave")
    later = await talk.say("s2", "add 1 1")
    app.open("gate")
    assert worker.process.wait(20) == 0
    assert app.ran("add") == []
    assert not (await talk.job(later)).done
    roles.worker(clean, app.path)
    assert (await talk.done(later)).state == "succeeded"
    assert (await talk.done(job)).state == "succeeded"


@pytest.mark.spec("trap-35")
async def test_stopped_twice_it_loses_nothing(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    first = roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "once gate")
    await wait_until(lambda: app.ran("once") != [], description="the tool to run")
    for _ in range(2):
        first.process.send_signal(signal.SIGTERM)
    await wait_until(lambda: first.events("draining") != [], description="the drain to begin")
    first.process.send_signal(signal.SIGTERM)
    app.open("gate")
    assert first.process.wait(20) == 0
    roles.worker(clean, app.path)
    assert (await talk.done(job)).state == "succeeded"
    assert len(app.ran("once")) == 1
    check_log(await talk.log("s1"))


@pytest.mark.spec("trap-35")
async def test_stopped_while_it_starts_it_ends_with_0_and_leaves_nothing(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    worker = roles.worker(clean, app.path)
    await wait_until(lambda: worker.children() != [], description="the first child to be started")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(20) == 0
    assert await talk.workers() == []


@pytest.mark.spec("trap-35")
async def test_stopped_between_begin_and_the_first_step_the_turn_goes_on_elsewhere(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    first = roles.worker(clean, app.path, "--processes", "1")
    await talk.enrolled(1)
    jobs = [await talk.say(f"s{i}", "add 1 1") for i in range(30)]
    # Admitted and told to stop at the same moment: some turns are begun, some are not, some are in their first step.
    roles.dispatcher(clean)

    async def some_begun() -> bool:
        return await talk.running() > 0

    await wait_until(some_begun, description="turns to be admitted")
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(20) == 0
    roles.worker(clean, app.path)
    for job in jobs:
        assert (await talk.done(job)).state == "succeeded"
    for i in range(30):
        check_log(await talk.log(f"s{i}"))
    assert len(app.ran("add")) == 30


async def test_a_thread_that_nobody_waits_for_does_not_hold_up_the_end(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    worker = roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "sleepy 600")
    await wait_until(lambda: app.ran("sleepy") != [], description="the tool to run")
    await ingress.accept_control(talk.yard, tenant=TENANT, session="s1", control="cancel", event="e1")
    assert (await talk.done(job)).state == "cancelled"
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(20) == 0


async def test_a_step_that_outlives_the_grace_is_left_to_another(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    first = roles.worker(clean, app.path, "--grace", "1")
    await talk.enrolled(2)
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: app.ran("again") != [], description="the tool to run")
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(20) == 0
    app.open("gate")
    roles.worker(clean, app.path)
    assert (await talk.done(job)).state == "succeeded"
    assert len(app.ran("again")) == 2
