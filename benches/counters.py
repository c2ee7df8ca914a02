"""What a deployment has used so far: commands, by what sent them, and processor time.

A server counts a command that a script runs like one that a client sent. The scripts' own sources say which commands
they use; whatever they do not use was sent by a client. A client that sends a command which scripts use too is missed
here: a submitter looks after a job that takes longer than a second by one HGET. `round_trips_per_step` sees everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from benches.stack import Stack, cpu_s, descendants

# What only the benches send.
OWN = re.compile(r"(info|config|client\|(list|id)|slowlog|commandlog|memory|command|latency|scan|dbsize|debug)\b")


def inner_commands() -> frozenset[str]:
    """Return the commands that the scripts run, in small letters."""
    found: set[str] = set()
    for path in (files("turnyard.state") / "lua").iterdir():
        for file in path.iterdir() if path.is_dir() else (path,):
            found.update(name.lower() for name in re.findall(r"call\('([A-Z]+)'", file.read_text()))
    return frozenset(found)


INNER = inner_commands()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts since the server's start."""

    commands: dict[str, int]
    server_cpu_s: float
    roles_cpu_s: float

    @property
    def sent(self) -> int:
        """Commands that clients sent: those that no script uses."""
        return sum(n for name, n in self.commands.items() if name.partition("|")[0] not in INNER)

    @property
    def counted(self) -> int:
        """Commands that the server counted, those inside scripts included."""
        return sum(self.commands.values())


@dataclass(frozen=True, slots=True)
class Used:
    """What was used between two snapshots."""

    sent: float
    counted: float
    server_cpu_s: float
    roles_cpu_s: float


def snapshot(stack: Stack) -> Snapshot:
    """Count now."""
    stats: dict[str, Any] = stack.redis.info("commandstats")  # type: ignore[assignment]
    commands = {name.removeprefix("cmdstat_"): facts["calls"] for name, facts in stats.items()}
    roles = [pid for process in stack.processes.values() for pid in (process.pid, *descendants(process.pid))]
    return Snapshot(
        {name: n for name, n in commands.items() if not OWN.match(name)},
        cpu_s([stack.server.pid]),
        cpu_s(roles),
    )


def used(before: Snapshot, after: Snapshot) -> Used:
    """Return the difference."""
    return Used(
        after.sent - before.sent,
        after.counted - before.counted,
        after.server_cpu_s - before.server_cpu_s,
        after.roles_cpu_s - before.roles_cpu_s,
    )
