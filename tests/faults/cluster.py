"""A whole deployment as processes behind the proxy, which can be killed, stopped and started one by one.

Whatever ends is started again, as Kubernetes would; the server keeps its file, so it may be killed, too. Every process
is tied to this one and leads a session of its own.
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

from tests.faults.history import DIRECTORY
from tests.faults.proxy import Proxy
from tests.processes import FAST, ROOT, descendants, free_port
from tests.servers import leash, start_durable
from turnyard.state.keys import Keys, shard_tags
from turnyard.state.scripts import Library

CAP, TENANT_CAP = 8, 4
# So little room that sessions wait for each other, and a share so short that turns are given back for others.
ROOM = {
    "TURNYARD__LIMITS__MAX_CONCURRENT_TURNS": str(CAP),
    "TURNYARD__TENANTS__ACME__MAX_CONCURRENT_TURNS": str(TENANT_CAP),
    "TURNYARD__TIMING__QUANTUM_MS": "1500",
}
SKEWED = """local function now()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000) + tonumber(call('GET', P .. 'test:skew') or 0)
end
"""


@dataclass
class Cluster:
    """The server, the proxy before it and the roles; `directory` holds their data, logs and histories."""

    directory: Path
    seed: int
    seconds: float
    roles: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])
    stopped: set[int] = field(default_factory=set[int])
    stalled: bool = False

    def __post_init__(self) -> None:
        self.socket = self.directory / "s"
        self.direct_url = f"unix://{self.socket}"
        self.proxy = Proxy(self.socket, self.directory / "p")
        self.peek: Any = redis.Redis.from_url(self.direct_url, socket_timeout=1)
        self.keys = Keys(shard_tags(1)[0])
        self.commands = self._commands(self.proxy.url, free_port())

    def _commands(self, url: str, port: int) -> dict[str, list[str]]:
        app = f"{Path(__file__).with_name('app.py')}:app"
        self.http_url = f"http://127.0.0.1:{port}"
        worker = ["workers", "worker", "--redis", url, "--app", app, "--processes", "2"]
        load = ["tests.faults.load", url, self.http_url, str(self.seed), str(self.seconds)]
        return {
            "dispatcher-0": ["dispatcher", "--redis", url],
            "dispatcher-1": ["dispatcher", "--redis", url],
            "worker-0": worker,
            "worker-1": worker,
            "lifted-0": ["workers", "lifted", "--redis", url, "--app", app, "--processes", "2"],
            "platform-0": ["platforms", "http", "--redis", url, "--port", str(port)],
            "sender-0": ["tests.faults.fake_sender", url, str(self.directory / "delivered")],
            "bare-0": ["tests.faults.bare_worker", url],
            "load-0": [*load, "0", "2"],
            "load-1": [*load, "1", "2"],
        }

    def __enter__(self) -> Cluster:
        (self.directory / "orders").mkdir()
        self.start_server()
        self.proxy.__enter__()
        self.load_skewed()
        # What nobody began is relayed again soon, or no run would come to rest in time.
        self.ask("HSET", self.keys.limits, "relay", 1000)
        self.heal()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.roles):
            self.kill(name)
        self.proxy.__exit__()
        self.peek.close()
        self.server.kill()
        self.server.wait()

    # -- the server

    def start_server(self) -> None:
        """Start the server on the data it left, and wait until it answers."""
        self.server = start_durable(self.directory, self.socket, lambda: self.ask("PING") is not None)

    def ask(self, *command: Any) -> Any:
        """Ask the server directly; None when it does not answer."""
        try:
            return self.peek.execute_command(*command)
        except (redis.RedisError, OSError):
            return None

    def load_skewed(self) -> None:
        """Give the server the product's scripts under their own names, with a clock that adds what the test says.

        A process that finds them missing loads those without; then there is no skew until this is called again.
        """
        product, skewed = Library(), Library(clock_lua=SKEWED)
        self.ask("FUNCTION", "LOAD", "REPLACE", skewed.source.replace(skewed.version, product.version))

    def skew(self, ms: int) -> None:
        """Let the scripts' clock be that far ahead."""
        self.load_skewed()
        self.ask("SET", self.keys.prefix + "test:skew", ms)

    # -- processes

    def start(self, name: str) -> None:
        """Start one role."""
        environment = {**os.environ, **FAST, **ROOM, "PYTHONPATH": str(ROOT), DIRECTORY: str(self.directory)}
        environment["TURNYARD__PLATFORMS__HTTP__PUBLIC_URL"] = self.http_url
        command = [*leash(), sys.executable, "-m", *self.commands[name]]
        with (self.directory / f"{name}.log").open("ab") as log:
            self.roles[name] = subprocess.Popen(
                command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def pids(self, name: str) -> list[int]:
        """Return the processes of a role, those that it started first."""
        pid = self.roles[name].pid
        return [*descendants(pid), pid]

    def children(self, name: str) -> list[int]:
        """Return what a role started, sorted."""
        return sorted(descendants(self.roles[name].pid))

    def kill(self, name: str) -> None:
        """Kill a role with all that it started."""
        for pid in self.pids(name):
            send(pid, signal.SIGKILL)
        self.roles[name].wait()

    def stop(self, pids: list[int]) -> None:
        """Freeze processes."""
        for pid in pids:
            send(pid, signal.SIGSTOP)
            self.stopped.add(pid)

    def go_on(self, pids: list[int]) -> None:
        """Thaw them."""
        for pid in pids:
            send(pid, signal.SIGCONT)
            self.stopped.discard(pid)

    def heal(self) -> None:
        """Start what does not run, but for a load that is done."""
        if self.server.poll() is not None:
            self.start_server()
        for name in self.commands:
            process = self.roles.get(name)
            if process is not None and process.poll() is None:
                continue
            if not (self.directory / f"{name}.done").exists() and not (name.startswith("load") and process is not None):
                self.start(name)

    def calm(self) -> None:
        """End all faults: nothing is held, delayed or frozen, and everything runs."""
        self.go_on(list(self.stopped))
        self.go_on([self.server.pid])
        self.proxy.delay_s = 0.0
        self.proxy.release()
        self.heal()
        self.skew(0)

    def loads(self) -> set[int]:
        """Return the processes of the load."""
        return {process.pid for name, process in self.roles.items() if name.startswith("load")}

    def ready(self) -> bool:
        """Tell whether the load can begin: its processes are there, and so are a worker and its agent."""
        loads = all((self.directory / f"{name}.ready").exists() for name in self.commands if name.startswith("load"))
        return loads and bool(self.ask("EXISTS", self.keys.prefix + "serve:default:bot", self.keys.prefix + "serve:bare:bare") == 2)

    def loaded(self) -> bool:
        """Tell whether the load has said and heard all it has to."""
        return all((self.directory / f"{name}.done").exists() for name in self.commands if name.startswith("load"))


def send(pid: int, number: int) -> None:
    """Send a signal, if the process is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
