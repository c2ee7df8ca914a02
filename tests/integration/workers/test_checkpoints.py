"""What a commit keeps: a turn goes on behind its last one, on whichever worker it is by then."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.records.log import RESULT
from turnyard.testing import wait_until

NAPS = 4
IMPATIENT = {"TURNYARD__TIMING__QUANTUM_MS": "100", "TURNYARD__LIMITS__MAX_CONCURRENT_TURNS": "1"}


@pytest.mark.spec("turn-42", "L31")
async def test_after_a_crash_another_worker_goes_on_with_the_second_tool_and_the_first_is_not_run_again(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "two gate")
    await wait_until(lambda: app.ran("again") != [], description="the second tool to run")
    [killed] = app.ran("again")
    os.kill(killed, signal.SIGKILL)
    await wait_until(lambda: len(app.ran("again")) == 2, description="another worker to run the second tool")
    app.open("gate")
    ended = await talk.done(job)
    assert ended.output is not None
    assert ended.output["text"] == "then: gate is open"
    assert app.ran("add") == [killed]
    assert app.ran("again")[1] != killed
    records = await talk.log("s1")
    check_log(records)
    assert [r.body["content"] for r in records if r.type == RESULT] == ["2", "gate is open"]


@pytest.mark.spec("turn-43")
async def test_turns_that_change_their_worker_after_each_step_end_right(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean, env=IMPATIENT)
    roles.worker(clean, app.path, env=IMPATIENT)
    await talk.enrolled(2)
    # One slot for three sessions: whoever has it gives it up after a step, and two workers take what comes by turns.
    names = [f"s{i}" for i in range(3)]
    jobs = [await talk.say(name, "naps 0.1") for name in names]
    for job in jobs:
        ended = await talk.done(job)
        assert ended.output is not None
        assert ended.output["text"] == "well rested"
    epochs: list[int] = []
    for name in names:
        records = await talk.log(name)
        check_log(records)
        assert [r.body["content"] for r in records if r.type == RESULT] == ["woke up"] * NAPS
        epochs.append(len({r.epoch for r in records if r.epoch}))
    assert max(epochs) > NAPS
    assert len(app.ran("sleepy")) == NAPS * len(names)
    assert len(set(app.ran("sleepy"))) == 2
