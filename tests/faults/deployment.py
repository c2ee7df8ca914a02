"""A whole deployment behind the proxy: a durable server, every role as a process, and what Kubernetes would do.

A process that ended is started again, at once and as itself. The server keeps its file, so it may be killed, too. All
of it stays up from one run to the next.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.faults import golden_app
from tests.faults.proxy import Proxy
from tests.processes import FAST, ROOT, free_port
from tests.servers import leash, start_durable


def commands(url: str, port: int, directory: Path) -> dict[str, list[str]]:
    """Return the command line of each role, after `python -m`."""
    app = f"{golden_app.__file__}:app"
    return {
        "dispatcher": ["dispatcher", "--redis", url],
        "worker": ["workers", "worker", "--redis", url, "--app", app, "--processes", "1"],
        "lifted": ["workers", "lifted", "--redis", url, "--app", app, "--processes", "1"],
        "platform": ["platforms", "http", "--redis", url, "--port", str(port)],
        "sender": ["tests.faults.fake_sender", url, str(directory / "sent")],
        "submitter": ["tests.faults.fake_platform", url],
    }


@dataclass
class Deployment:
    """The processes and their server; `directory` holds its data, its logs and what the fakes wrote."""

    directory: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])
    starts: dict[str, int] = field(default_factory=dict[str, int])
    _roles: dict[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        self.socket = self.directory / "s"
        self.port = free_port()
        self.proxy = Proxy(self.socket, self.directory / "p")
        self.url = f"unix://{self.socket}"
        self.peek: Any = redis.Redis.from_url(self.url, socket_timeout=2)
        self._commands = commands(self.proxy.url, self.port, self.directory)

    def __enter__(self) -> Deployment:
        self.start_server()
        self.proxy.__enter__()
        self.restart_dead()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            _end(process)
        self.proxy.__exit__()
        self.peek.close()
        _end(self.server)

    def start_server(self) -> None:
        """Start the server on the data it left, and wait until it answers."""
        self.server = start_durable(self.directory, self.socket, self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.peek.ping())
        except (redis.RedisError, OSError):
            return False

    def kill_server(self) -> None:
        """Kill the server; what it acknowledged is in its file."""
        self.server.kill()

    def restart_dead(self) -> None:
        """Start what does not run: roles, and the server."""
        if self.server.poll() is not None:
            self.start_server()
        for name in self._commands:
            process = self.processes.get(name)
            if process is None or process.poll() is not None:
                if process is not None:
                    _end(process)  # what it left behind goes with its container
                self.processes[name] = self._start(name)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **FAST, "PYTHONPATH": str(ROOT), "GOLDEN_DIR": str(self.directory)}
        command = [*leash(), sys.executable, "-m", *self._commands[name]]
        self.starts[name] = self.starts.get(name, 0) + 1
        with (self.directory / f"{name}.log").open("ab") as log, (self.directory / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                command, cwd=self.directory, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=log, start_new_session=True
            )
        self._roles[process.pid] = name
        return process

    def role_of(self, pid: int) -> str | None:
        """Return whose process this is: `worker`, or `worker.child` for one that it started; None for a stranger."""
        if pid not in self._roles:
            parent = _parent(pid)
            if parent not in self._roles:
                return None
            self._roles[pid] = f"{self._roles[parent]}.child"
        return self._roles[pid]

    def submit(self, line: str) -> None:
        """Hand a line to the submitter; it is lost when that one dies."""
        stdin = self.processes["submitter"].stdin
        assert stdin is not None
        with contextlib.suppress(OSError):
            stdin.write(f"{line}\n".encode())
            stdin.flush()

    def submitted(self) -> list[str]:
        """Return what the submitter has answered so far."""
        return (self.directory / "submitter.out").read_text().splitlines()

    def trace(self, marker: str) -> list[str]:
        """Return what the model and the tools of one run noted."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / marker).read_text().splitlines()
        return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL) if os.getpgid(process.pid) == process.pid else process.kill()
    process.wait()
