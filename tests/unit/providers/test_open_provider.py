"""Which provider a spec names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnyard.errors import ConfigError
from turnyard.providers import open_provider
from turnyard.testing import ManualClock


@pytest.fixture(autouse=True)
def _no_openai_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def opened(spec: str, **settings: Any) -> tuple[Any, str]:
    return open_provider(spec, base_dir=Path(), settings=settings, clock=ManualClock())


@pytest.mark.parametrize("spec", ["mystery:x", "openai", "openai:", "", "gpt-5"])
def test_an_unknown_spec_is_refused_with_the_known_ones(spec: str) -> None:
    with pytest.raises(ConfigError, match="openai:NAME, scripted:FILE"):
        opened(spec)


def test_the_name_behind_the_prefix_may_hold_colons() -> None:
    assert opened("openai:ft:gpt:acme", base_url="http://localhost:1/v1")[1] == "ft:gpt:acme"


def test_openai_itself_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        opened("openai:m")
    assert opened("openai:m", api_key="k")


def test_the_environment_says_where_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1/")
    assert opened("openai:m")[0].base_url == "http://localhost:1/v1"
    assert opened("openai:m", base_url="http://other/v1")[0].base_url == "http://other/v1"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"base_ur": "http://x"}, "base_ur"),
        ({"base_url": "localhost:8000"}, "base_url"),
        ({"base_url": "http://"}, "base_url"),
        ({"stall_timeout_s": 0}, "stall_timeout_s"),
        ({"connect_timeout_s": "5"}, "connect_timeout_s"),
        ({"api_key": "sk-\nx"}, "API key"),
        ({"api_key": "sk-…"}, "API key"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        opened("openai:m", **({"api_key": "k"} | settings))
