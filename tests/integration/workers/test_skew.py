"""Workers and dispatchers whose own clocks are wrong by minutes: nothing that is decided asks them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import ROOT, Roles
from turnyard.clock import SystemClock
from turnyard.records.ids import session_key
from turnyard.records.live import Live
from turnyard.state import ingress
from turnyard.state.feed import Feed
from turnyard.testing import wait_until

# Python runs a module of this name at its start, so children are as wrong as the process that started them.
WRONG = """
import os, time
real, real_ns, off_s = time.time, time.time_ns, int(os.environ["OFF_S"])
time.time = lambda: real() + off_s
time.time_ns = lambda: real_ns() + off_s * 10**9
"""


def off(directory: Path, seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock is wrong by so much."""
    (directory / "sitecustomize.py").write_text(WRONG)
    return {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}", "OFF_S": str(seconds)}


@pytest.mark.spec("rival-45")
@pytest.mark.parametrize("minutes", [-10, 10])
async def test_a_wrong_clock_neither_costs_a_worker_its_lease_nor_lets_a_dead_one_keep_it(
    talk: Talk, clean: str, roles: Roles, app: SampleApp, tmp_path: Path, minutes: int
) -> None:
    roles.dispatcher(clean, env=off(tmp_path, -60 * minutes))
    first = roles.worker(clean, app.path, env=off(tmp_path, 60 * minutes))
    await talk.enrolled(2)
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: app.ran("again") != [], description="the tool to run")
    await past_a_lease(talk)
    assert len(app.ran("again")) == 1
    second = roles.worker(clean, app.path, env=off(tmp_path, 60 * minutes))
    first.kill_all()
    await wait_until(lambda: len(app.ran("again")) == 2, description="the other worker to run it again")
    app.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    check_log(await talk.log("s1"))
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(20) == 0


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_who_follows_hears_the_pieces_from_a_worker_whose_clock_is_wrong(
    talk: Talk, clean: str, roles: Roles, app: SampleApp, tmp_path: Path, minutes: int
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path, env=off(tmp_path, 60 * minutes))
    await talk.enrolled(2)
    feed = await Feed.start(talk.yard)
    job = await talk.say("s1", "slowly")
    await ingress.follow(talk.yard, session_key(TENANT, "s1"), 30)
    pieces: list[str] = []
    async for item in feed.follow(session_key(TENANT, "s1")):
        if isinstance(item.record, Live):
            pieces.append(item.record.text)
        elif item.record.type == "turn/end":
            break
    assert "three" in "".join(pieces)
    assert (await talk.done(job)).state == "succeeded"
    await feed.aclose()


async def past_a_lease(talk: Talk) -> None:
    """Wait until every lease that stands now would have lapsed, had nobody renewed it."""
    began = SystemClock().monotonic()
    await wait_until(lambda: SystemClock().monotonic() - began > 1.5, description="a lease and a half to pass")
    assert len(await talk.workers()) == 2
