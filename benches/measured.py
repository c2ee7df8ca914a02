"""One speed run of one deployment: turns per second and what each turn used."""

from __future__ import annotations

import time
from dataclasses import dataclass

import uvloop

from benches.counters import Snapshot, Used, snapshot, used
from benches.load import Load, closed_loop
from benches.options import Options
from benches.results import Unmeasured
from benches.stack import Stack


@dataclass(frozen=True, slots=True)
class Idle:
    """What a deployment sends while nothing happens, per second, and how many processes do."""

    sent_per_s: float
    counted_per_s: float
    processes: int


@dataclass(frozen=True, slots=True)
class Speed:
    """What one closed loop showed."""

    turns: int
    seconds: float
    used: Used

    @property
    def per_s(self) -> float:
        """Turns per second."""
        return self.turns / self.seconds

    @property
    def cpu_s_per_1000(self) -> float:
        """Processor seconds of server and roles for a thousand turns; the submitter's own are left out."""
        return (self.used.server_cpu_s + self.used.roles_cpu_s) * 1000 / self.turns

    def sent_per_turn(self, idle: Idle) -> float:
        """Commands that clients sent for one turn."""
        return (self.used.sent - idle.sent_per_s * self.seconds) / self.turns

    def counted_per_turn(self, idle: Idle) -> float:
        """Commands that the server counted for one turn."""
        return (self.used.counted - idle.counted_per_s * self.seconds) / self.turns


def speed(stack: Stack, agent: str, options: Options) -> Speed:
    """Run a closed loop against a deployment."""

    def probe() -> Snapshot:
        return snapshot(stack)

    load: Load[Snapshot] = uvloop.run(
        closed_loop(stack.url, agent, sessions=options.sessions, seconds=options.seconds, warmup_s=options.warmup_s, probe=probe)
    )
    if not load.turns:
        raise Unmeasured(f"no turn of {agent} ended within {options.seconds} s\n" + stack.said())
    return Speed(load.turns, load.seconds, used(load.before, load.after))


def idle(stack: Stack, seconds: float) -> Idle:
    """Watch a deployment do nothing."""
    before, began = snapshot(stack), time.monotonic()
    time.sleep(seconds)
    spent, took = used(before, snapshot(stack)), time.monotonic() - began
    return Idle(spent.sent / took, spent.counted / took, stack.role_processes)
