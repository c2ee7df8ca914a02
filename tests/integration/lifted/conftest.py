"""Servers, processes, an app and somebody who talks, for the tests of this directory."""

from pathlib import Path

import pytest

from tests.integration.conversation import talk
from tests.integration.lifted.later_app import LaterApp, relays
from tests.integration.sample_app import SampleApp
from tests.processes import roles
from tests.servers import clean, redis_client, redis_url

__all__ = ["clean", "redis_client", "redis_url", "relays", "roles", "talk"]


@pytest.fixture
def app(tmp_path: Path) -> SampleApp:
    """The sample app in a directory of its own."""
    return SampleApp(tmp_path)


@pytest.fixture
def later(tmp_path: Path) -> LaterApp:
    """An app whose calls outlast their turns, in a directory of its own."""
    return LaterApp(tmp_path)
