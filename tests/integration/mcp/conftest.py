"""One decent server for all tests of a process that only call it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.mcp.places import Place, http_server


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The files of a server of this test's own."""
    directory = tmp_path / "mcp"
    directory.mkdir()
    return Place(directory)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, str]]:
    """A server over HTTP, and its files."""
    place = Place(tmp_path_factory.mktemp("mcp"))
    place.has("get_echo", "set_note", "fail", "get_image", "get_json", "get_progress")
    with http_server(place) as url:
        yield place, url
