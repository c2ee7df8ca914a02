"""Whether the process we once started is still that process.

A pid alone is not an identity: it is reused. A mark is a pid together with the moment the kernel says it started,
so a signal meant for our process never reaches a stranger. A zombie counts as gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Mark:
    """One process for ever: `started` is opaque text, compared for equality only."""

    pid: int
    started: str


def mark_of(pid: int) -> Mark | None:
    """Return the mark of the process that has `pid` now, or None when there is none."""
    stat = Path(f"/proc/{pid}/stat")
    started = _started_in_proc(stat) if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    return Mark(pid, started) if started else None


def is_alive(mark: Mark) -> bool:
    """Tell whether the marked process still runs."""
    return mark_of(mark.pid) == mark


def send(mark: Mark, number: signal.Signals) -> bool:
    """Send a signal to the marked process and no other; False when it is gone."""
    if not is_alive(mark):
        return False
    try:
        os.kill(mark.pid, number)
    except ProcessLookupError:
        return False
    return True


def poll_until(done: Callable[[], bool], *, timeout_s: float) -> bool:
    """Block this thread until `done()`; False when it is still not so after `timeout_s`. Never call it in an event loop."""
    deadline = time.monotonic() + timeout_s
    never = threading.Event()
    while not done():
        if time.monotonic() > deadline:
            return False
        never.wait(POLL_S)
    return True


def wait_gone(mark: Mark, *, timeout_s: float) -> bool:
    """Block until the marked process is gone; False when it still runs after `timeout_s`."""
    return poll_until(lambda: not is_alive(mark), timeout_s=timeout_s)


def stop(mark: Mark, *, grace_s: float) -> bool:
    """End the marked process: ask, wait `grace_s`, then kill. False when it was gone already."""
    if not send(mark, signal.SIGTERM):
        return False
    if not wait_gone(mark, timeout_s=grace_s):
        send(mark, signal.SIGKILL)
        wait_gone(mark, timeout_s=grace_s)
    return True


def _started_in_proc(stat: Path) -> str | None:
    try:
        text = stat.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name may hold spaces and brackets; the fields after its last bracket are plain.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def _started_by_ps(pid: int) -> str | None:
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
