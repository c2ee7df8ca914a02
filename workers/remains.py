"""What a child leaves behind when it ends: whatever its tools started, in groups and sessions of their own or not.

Each child is started with a mark in its environment, which all that it starts inherits; who has the mark is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

MARK = "TURNYARD_FAMILY"
_PROCESSES = Path("/proc")
_ROUNDS = 3


def end_family(mark: str, *, leader: int | None = None) -> None:
    """Kill whoever has this mark but this process, at once; where there is no /proc, the group of `leader`."""
    if leader is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
    for _ in range(_ROUNDS):  # one that forks is not done with at the first look
        left = _marked(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return


def _marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    try:
        pids = [int(entry.name) for entry in _PROCESSES.iterdir() if entry.name.isdigit()]
    except OSError:
        return []
    return [pid for pid in pids if pid != os.getpid() and wanted in _environment(pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended meanwhile, or is somebody else's
