"""Real MCP servers for a test: where their programs are, how one is started, and what it wrote down."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import free_port
from tests.servers import leash

HERE = Path(__file__).resolve().parent
SDK = str(HERE / "sdk_server.py")
RAW = str(HERE / "raw_server.py")


@dataclass(frozen=True)
class Place:
    """The files of one server: the names of its tools, and what it was called with."""

    directory: Path

    @property
    def env(self) -> dict[str, str]:
        return {"TOOLS_FILE": str(self.directory / "tools"), "JOURNAL": str(self.directory / "journal")}

    def has(self, *names: str) -> None:
        """Let these be its tools from now on."""
        fresh = self.directory / "tools.new"
        fresh.write_text("\n".join(names))
        fresh.rename(self.directory / "tools")

    def said(self, **wanted: Any) -> list[dict[str, Any]]:
        """What it wrote down, of those lines that say this."""
        path = self.directory / "journal"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]

    def raw(self, mode: str) -> list[str]:
        """The command of a server that starts at once."""
        return [sys.executable, "-S", "-E", RAW, mode]


@contextmanager
def http_server(
    place: Place, program: str = SDK, *words: str, python: str = sys.executable, env: dict[str, str] | None = None, port: int = 0
) -> Generator[str]:
    """Run a server that speaks HTTP for the length of the block, and give its URL."""
    port = port or free_port()
    with (place.directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*leash(), python, program, "http", str(port), *words],
            env={**place.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        until = time.monotonic() + 30
        while not _answers(url):
            assert process.poll() is None, (place.directory / "log").read_text()
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        with error:
            return True
    except OSError:
        return False
