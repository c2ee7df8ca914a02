"""Servers, scenes, processes, an app and somebody who talks, for tests of what users of comparable systems reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conversation import talk
from tests.integration.sample_app import SampleApp
from tests.processes import roles
from tests.protocol.conftest import scene, three_shards
from tests.servers import clean, redis_client, redis_url

__all__ = ["clean", "redis_client", "redis_url", "roles", "scene", "talk", "three_shards"]


@pytest.fixture
def app(tmp_path: Path) -> SampleApp:
    """The sample app in a directory of its own."""
    return SampleApp(tmp_path)
