"""Values that are read where they are used and shown nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnyard import ConfigError, secret
from turnyard.tools.secrets import all_revealed


def test_a_secret_is_read_anew_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = secret("CRM_TOKEN")
    with pytest.raises(ConfigError, match="set CRM_TOKEN, or CRM_TOKEN_FILE"):
        token.read()
    path = tmp_path / "token"
    monkeypatch.setenv("CRM_TOKEN_FILE", str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        token.read()
    for value in ("one", "two"):
        path.write_text(f"{value}\n")
        assert token.read() == value
    monkeypatch.setenv("CRM_TOKEN", "three")
    assert all_revealed({"Authorization": token, "Accept": "text/html"}) == {"Authorization": "three", "Accept": "text/html"}


def test_a_secret_shows_its_name_and_never_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_TOKEN", "hush")
    assert repr(secret("CRM_TOKEN")) == str(secret("CRM_TOKEN")) == f"{secret('CRM_TOKEN')}" == "secret('CRM_TOKEN')"


@pytest.mark.parametrize("name", ["", "a b", "1A", "Bearer x", "A-B"])
def test_a_value_in_place_of_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="names an environment variable"):
        secret(name)
