"""Roles as real processes, for tests that kill, stop and restart them.

Their logs go to files that are shown when the test fails. Whatever a test leaves running is killed with all its
children: every process started here leads a session of its own, and so do the children of a worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Death is noticed ten times as fast as by default, so that no test waits for a lease of ten seconds.
FAST = {
    "TURNYARD__TIMING__LEASE_MS": "1000",
    "TURNYARD__TIMING__BEAT_MS": "200",
    "TURNYARD__TIMING__TICK_MS": "100",
    "TURNYARD__TIMING__BEGIN_BY_MS": "1000",
}


def free_port() -> int:
    """Return a TCP port of this machine that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Role:
    """A process of one role."""

    process: subprocess.Popen[bytes]
    log_path: Path

    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text(errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Its log lines of one event."""
        lines = (line for line in self.log().splitlines() if line.startswith("{"))
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def children(self) -> list[int]:
        """The process ids of its children, newest last."""
        return sorted(_children(self.process.pid))

    def answers(self, path: str) -> int | None:
        """The status its health port answers with, None before it has one."""
        port = re.search(r'"event":"health".*?"port":(\d+)', self.log())
        if port is None:
            return None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def kill_all(self) -> None:
        """Kill it and all that it started, at once, as a host does that goes down."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Roles:
    """Starts roles and ends them with the test."""

    directory: Path
    started: list[Role] = field(default_factory=list[Role])

    def start(self, module: str, *args: str, env: dict[str, str] | None = None, health: bool = False) -> Role:
        """Run `python -m MODULE ARGS`."""
        path = self.directory / f"{len(self.started)}-{module.replace('.', '-')}.log"
        command = [sys.executable, "-m", module, *args, *(["--health-port", "0"] if health else [])]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **FAST, **(env or {})}
        with path.open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        role = Role(process, path)
        self.started.append(role)
        return role

    def dispatcher(self, url: str, *, env: dict[str, str] | None = None, health: bool = False) -> Role:
        """Run a dispatcher."""
        return self.start("dispatcher", "--redis", url, env=env, health=health)

    def worker(
        self, url: str, app: Path, *args: str, role: str = "worker", env: dict[str, str] | None = None, health: bool = False
    ) -> Role:
        """Run a worker of one app."""
        return self.start("workers", role, "--redis", url, "--app", f"{app}:app", *args, env=env, health=health)

    def end(self) -> None:
        """Kill all that still runs."""
        for role in self.started:
            role.kill_all()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Return what a process started, the youngest first."""
    return [found for child in _children(pid) for found in [*descendants(child), child]]


@pytest.fixture
def roles(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Roles]:
    """Start roles as processes; they end with the test, and their logs are shown when it fails."""
    started = Roles(tmp_path)
    yield started
    # What children of a killed supervisor log on their own last legs matters to nobody.
    for role in started.started:
        request.node.add_report_section("call", f"log of {role.log_path.stem}", role.log()[-6000:])
    started.end()


@contextlib.contextmanager
def s3_server(port: int) -> Iterator[str]:
    """Run a server that speaks the language of S3, in a process of its own, and give its URL."""
    pytest.importorskip("moto.server")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + 60
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, "the S3 server ended"
            assert time.monotonic() < until, "the S3 server does not answer"
            time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()
