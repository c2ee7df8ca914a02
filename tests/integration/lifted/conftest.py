"""Servers, processes, an app and somebody who talks, for the tests of this directory."""

from pathlib import Path

import pytest

from tests.integration.conversation import talk
from tests.integration.sample_app import SampleApp
from tests.processes import roles
from tests.servers import clean, redis_client, redis_url

__all__ = ["clean", "redis_client", "redis_url", "roles", "talk"]


@pytest.fixture
def app(tmp_path: Path) -> SampleApp:
    """The sample app in a directory of its own."""
    return SampleApp(tmp_path)
