"""Commands that lifted tools run: whatever ends the call ends them, with all that they started."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.conversation import TENANT, Talk
from tests.integration.lifted.later_app import LaterApp, results
from tests.processes import Role, Roles
from turnyard.state import ingress
from turnyard.testing import wait_until

pytestmark = pytest.mark.usefixtures("relays")


@pytest.fixture
def lifted(clean: str, roles: Roles, later: LaterApp) -> Role:
    """A dispatcher, a worker and a lifted worker; the lifted worker."""
    roles.dispatcher(clean)
    roles.worker(clean, later.path, "--processes", "1")
    return roles.worker(clean, later.path, "--processes", "1", role="lifted")


def alive(pid: int) -> bool:
    """Tell whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def started(later: LaterApp, *, children: int = 1) -> list[int]:
    """Wait for the command of a call and what it starts; return their numbers."""

    def there() -> bool:
        return len(later.ran("command")) == 1 and len(later.ran("child")) == children

    await wait_until(there, description="the command to run", timeout_s=30)
    return later.ran("command") + later.ran("child")


async def gone(pids: list[int]) -> None:
    await wait_until(lambda: not any(map(alive, pids)), description="the command and its children to be gone")


@pytest.mark.spec("runner-31")
async def test_a_cancelled_job_ends_the_command_of_its_lifted_call_and_what_that_started(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    job = await talk.say("s1", "build it", complete_when="settled")
    pids = await started(later)
    await ingress.cancel_job(talk.yard, job, tenant=TENANT)
    await gone(pids)
    assert (await talk.done(job)).state == "cancelled"
    assert all(map(alive, later.ran("build")))


@pytest.mark.spec("runner-31")
async def test_a_lifted_call_over_its_time_says_so_and_its_command_is_ended(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    job = await talk.say("s1", "late it", complete_when="settled")
    pids = await started(later, children=0)
    await gone(pids)
    assert (await talk.done(job)).state == "succeeded"
    outcome, content = (await results(talk, "s1"))[-1]
    assert (outcome, content) in (("error", "late timed out after 0.5 s; its effect is unknown"), ("timeout", None))
    assert all(map(alive, later.ran("late")))


async def test_a_child_that_dies_at_once_takes_the_commands_of_its_calls_along(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    job = await talk.say("s1", "build it", complete_when="settled")
    pids = await started(later)
    os.kill(later.ran("build")[0], signal.SIGKILL)
    await gone(pids)
    assert (await talk.done(job)).state == "succeeded"
    assert [outcome for outcome, _ in await results(talk, "s1")] == ["placeholder", "unknown"]


async def test_a_stopped_lifted_worker_ends_the_commands_that_outlive_its_grace(
    talk: Talk, clean: str, roles: Roles, later: LaterApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, later.path, "--processes", "1")
    lifted = roles.worker(clean, later.path, "--processes", "1", "--grace", "1", role="lifted")
    await talk.say("s1", "build it", complete_when="settled")
    pids = await started(later)
    lifted.process.send_signal(signal.SIGTERM)
    assert lifted.process.wait(20) == 0
    await gone(pids)


async def test_when_the_supervisor_dies_its_child_leaves_no_command_behind(talk: Talk, clean: str, roles: Roles, later: LaterApp) -> None:
    roles.dispatcher(clean)
    worker = roles.worker(clean, later.path, "--processes", "1")
    await talk.say("s1", "compile it", complete_when="settled")
    pids = await started(later)
    worker.process.kill()
    await gone([*pids, *later.ran("compile")])
