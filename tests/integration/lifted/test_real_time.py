"""A lifted worker that goes down at once, with the times that a deployment has by default."""

from __future__ import annotations

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.lifted.later_app import LaterApp, results
from tests.processes import Roles
from turnyard.records.log import RELAYED
from turnyard.testing import wait_until

DEFAULTS = {
    "TURNYARD__TIMING__LEASE_MS": "10000",
    "TURNYARD__TIMING__BEAT_MS": "2000",
    "TURNYARD__TIMING__TICK_MS": "1000",
    "TURNYARD__TIMING__BEGIN_BY_MS": "3000",
}
WITHIN_S = 12.0


@pytest.mark.usefixtures("relays")
async def test_the_call_of_a_lifted_worker_that_is_killed_is_handed_on_within_twelve_seconds_and_injected_once(
    talk: Talk, clean: str, roles: Roles, later: LaterApp
) -> None:
    roles.dispatcher(clean, env=DEFAULTS)
    roles.worker(clean, later.path, "--processes", "1", env=DEFAULTS)
    lifted = roles.worker(clean, later.path, "--processes", "1", role="lifted", env=DEFAULTS)
    job = await talk.say("s1", "render scene", complete_when="settled")
    await wait_until(lambda: later.ran("render") != [], description="the task to run", timeout_s=30)
    lifted.kill_all()

    async def relayed() -> bool:
        return any(r.type == RELAYED for r in await talk.log("s1"))

    await wait_until(relayed, description="the call to be handed on", timeout_s=WITHIN_S)
    roles.worker(clean, later.path, "--processes", "1", role="lifted", env=DEFAULTS)
    await wait_until(lambda: len(later.ran("render")) == 2, description="the task to run again", timeout_s=30)
    later.open("scene")
    assert (await talk.done(job)).state == "succeeded"
    assert await results(talk, "s1") == [("placeholder", None), ("result", "rendered scene")]
    check_log(await talk.log("s1"))
