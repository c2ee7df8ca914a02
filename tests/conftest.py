"""What every test has: the report of proven rows, and how hard property tests try."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import clean, plain_url, redis_client, redis_url
from tests.spec_report import SpecReport

__all__ = ["clean", "plain_url", "redis_client", "redis_url"]

ROOT = Path(__file__).resolve().parent.parent

# deadline=None: on a busy machine a slow example says nothing about the code
settings.register_profile("quick", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure(config: pytest.Config) -> None:
    json_path = os.environ.get("JSON")
    report = SpecReport(
        ROOT / "docs" / "acceptance.md",
        json_path=Path(json_path) if json_path and not hasattr(config, "workerinput") else None,
        show_missing=bool(os.environ.get("SPEC")),
    )
    config.pluginmanager.register(report, "spec-report")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of an `xdist_group` in one process: xdist 3.8 writes the group where pytest 9.2 does not read it."""
    for item in items:
        grouped = vars(item).get("_nodeid")
        if grouped and grouped != item.nodeid and hasattr(item, "_id"):
            item._id = type(item._id).parse(grouped)  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
