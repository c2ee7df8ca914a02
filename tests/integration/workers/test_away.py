"""A worker whose server has gone: told to stop, it stops; its app is opened once, however long that takes."""

from __future__ import annotations

import signal

import pytest

from tests.integration.conversation import Talk
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from tests.servers import private_server
from turnyard.state.yard import Yard
from turnyard.testing import wait_until


@pytest.mark.parametrize("role", ["worker", "lifted"])
async def test_told_to_stop_after_its_lease_ran_out_without_a_server_it_stops(roles: Roles, app: SampleApp, role: str) -> None:
    with private_server() as url:
        yard = await Yard.open(url)
        worker = roles.worker(url, app.path, role=role, health=True)
        await Talk(yard).enrolled(2, role=role)
        await yard.aclose()
    await wait_until(lambda: worker.answers("/readyz") == 503, description="its leases to run out", timeout_s=20)
    worker.process.send_signal(signal.SIGTERM)
    worker.process.wait(30)
