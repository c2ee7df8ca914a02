"""What a child leaves behind when it ends: whatever its tools started in its session, in groups of their own or not."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_PROCESSES = Path("/proc")
_ROUNDS = 3
_AFTER_NAME = 3  # state, parent, group and then session follow the name, which may hold anything but its closing bracket last


def end_session(session: int, *, spare: int | None = None) -> None:
    """Kill every process of a session but `spare`, at once; where there is no /proc, those of its first group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if spare is None:
            os.killpg(session, signal.SIGKILL)
    for _ in range(_ROUNDS):  # one that forks is not done with at the first look
        left = [pid for pid in _members(session) if pid != spare]
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return


def _members(session: int) -> list[int]:
    try:
        pids = [int(entry.name) for entry in _PROCESSES.iterdir() if entry.name.isdigit()]
    except OSError:
        return []
    return [pid for pid in pids if _session_of(pid) == session]


def _session_of(pid: int) -> int | None:
    try:
        stat = (_PROCESSES / str(pid) / "stat").read_text(errors="replace")
        return int(stat.rpartition(")")[2].split()[_AFTER_NAME])
    except (OSError, ValueError, IndexError):
        return None  # it has ended meanwhile
