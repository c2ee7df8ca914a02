"""Another host, as far as the network goes: a namespace with one cable to this one, which can be pulled.

Where that needs rights that this process has not, a host that is cut off is one whose processes are all stopped: nothing is
heard from it, and its connections stay open, as those of a host do whose cable was pulled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from benches.stack import Stack, descendants


@dataclass(frozen=True, slots=True)
class Far:
    """Where a worker runs, how it reaches the server, and how it is cut off. `namespace` is empty without one."""

    namespace: str
    url: str
    how: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words in front of a command that is to run there."""
        return ("ip", "netns", "exec", self.namespace) if self.namespace else ()

    def cut(self, stack: Stack, name: str) -> None:
        """Let nothing through any more."""
        if self.namespace:
            _ip("link", "set", self.namespace, "down")
        else:
            self._signal(stack, name, signal.SIGSTOP)

    def mend(self, stack: Stack, name: str) -> None:
        """Let everything through again."""
        if self.namespace:
            _ip("link", "set", self.namespace, "up")
        else:
            self._signal(stack, name, signal.SIGCONT)

    def _signal(self, stack: Stack, name: str, what: signal.Signals) -> None:
        process = stack.processes[name]
        for pid in [process.pid, *descendants(process.pid)]:
            os.kill(pid, what)


@contextlib.contextmanager
def far_host() -> Iterator[tuple[Far, tuple[str, ...]]]:
    """Set up the other host; yield it and what the server's command line needs to be reached from there."""
    here, there, name, port = "10.213.77.1", "10.213.77.2", f"ty{os.getpid() % 100_000}", _free_port()
    listening = ("--port", str(port), "--protected-mode", "no", "--bind", here)
    with contextlib.ExitStack() as undo:
        try:
            undo.enter_context(_namespace(name, here, there))
        except (OSError, subprocess.CalledProcessError):
            yield Far("", f"redis://127.0.0.1:{port}", "SIGSTOP"), (*listening[:-1], "127.0.0.1")
        else:
            yield Far(name, f"redis://{here}:{port}", "link down"), listening


@contextlib.contextmanager
def _namespace(name: str, here: str, there: str) -> Generator[None]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise PermissionError("a network namespace needs root and ip")
    _ip("netns", "add", name)
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", f"{name}p", "netns", name)
        _ip("addr", "add", f"{here}/30", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-n", name, "addr", "add", f"{there}/30", "dev", f"{name}p")
        _ip("-n", name, "link", "set", f"{name}p", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
