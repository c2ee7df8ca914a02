"""Servers, processes, an app and somebody who talks, for the tests of this directory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from platforms.relays import run_relays
from tests.integration.conversation import Talk, talk
from tests.integration.sample_app import SampleApp
from tests.integration.workers.family_app import FamilyApp
from tests.processes import Roles, roles
from tests.servers import clean, redis_client, redis_url
from turnyard.client import RedisClient
from turnyard.clock import SystemClock
from turnyard.testing import wait_until

__all__ = ["clean", "redis_client", "redis_url", "roles", "talk"]


@pytest.fixture
def app(tmp_path: Path) -> SampleApp:
    """The sample app in a directory of its own."""
    return SampleApp(tmp_path)


@pytest.fixture
def family(tmp_path: Path) -> FamilyApp:
    """The app of parents and children in a directory of its own."""
    return FamilyApp(tmp_path)


@pytest.fixture
async def client(talk: Talk, clean: str, roles: Roles, family: FamilyApp) -> AsyncIterator[RedisClient]:
    """A client of a yard with a dispatcher, a worker of that app, and a relay in this process."""
    roles.dispatcher(clean)
    roles.worker(clean, family.path)
    drain = asyncio.Event()
    relays = asyncio.create_task(run_relays(talk.yard, drain, clock=SystemClock(), lifted_url=clean))
    async with RedisClient(clean) as found:

        async def published() -> bool:
            return await found.edge.manifest("goes") is not None

        await wait_until(published, description="the agents to be published", timeout_s=30)
        yield found
    drain.set()
    await relays
