"""Servers, scenes, processes, an app and somebody who talks, for tests of what users of comparable systems reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.conversation import Talk, talk
from tests.integration.sample_app import SampleApp
from tests.processes import roles
from tests.protocol.conftest import scene, three_shards
from tests.reports.deployment import Deployment, deployed_in
from tests.servers import clean, redis_client, redis_url
from turnyard.state.yard import Yard

__all__ = ["clean", "redis_client", "redis_url", "roles", "scene", "talk", "three_shards"]


@pytest.fixture
def app(tmp_path: Path) -> SampleApp:
    """The sample app in a directory of its own."""
    return SampleApp(tmp_path)


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One deployment for all tests of the group `deployment`; sessions and gates are named by who uses them."""
    with deployed_in(tmp_path_factory.mktemp("deployment")) as deployment:
        yield deployment


@pytest.fixture
async def visitor(deployment: Deployment, request: pytest.FixtureRequest) -> AsyncIterator[Talk]:
    """Somebody who talks to the shared deployment, past the proxy, once it is well; it is left undisturbed."""
    yard = await Yard.open(deployment.url)
    visitor = Talk(yard)
    await visitor.enrolled(2)
    yield visitor
    deployment.calm()
    await yard.aclose()
    for role in (*deployment.dispatchers, *deployment.workers):
        request.node.add_report_section("call", f"log of {role.log_path.stem}", role.log()[-3000:])
