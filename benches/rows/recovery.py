"""How long until somebody else has begun the turn of a worker that was killed?

Killed with SIGKILL in the middle of a model call: once a child alone, whose supervisor lives, once a supervisor with all
of its children, whose host lives. Counted from just before the first kill.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Set as AbstractSet

from benches.options import Options
from benches.results import Result, median, tidy
from benches.stack import Stack, start_worker, wait_for, yard
from benches.stamps import marked
from benches.watch import running, start_turn

NAMES = ("child_kill_recovery_s", "worker_kill_recovery_s")
CHILDREN = 2
MOST_S = {"child_kill_recovery_s": 0.5, "worker_kill_recovery_s": 3.5}
# A worker has its spare process a few seconds after its children, and a dispatcher believes what it sees of connections once it has
# looked for some beats without a break.
SETTLE_S = 8.0


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Measure the wanted ones."""
    rows: list[Result] = []
    if "child_kill_recovery_s" in wanted:
        with yard(children=CHILDREN) as stack:
            time.sleep(SETTLE_S)
            rows.append(_row("child_kill_recovery_s", [_child(stack, f"child-{n}") for n in range(options.kills)]))
    if "worker_kill_recovery_s" in wanted:
        with yard(workers=2, children=CHILDREN) as stack:
            time.sleep(SETTLE_S)
            rows.append(_row("worker_kill_recovery_s", [_worker(stack, f"worker-{n}") for n in range(options.kills)]))
    return rows


def _row(name: str, seconds: list[float]) -> Result:
    worst = max(seconds)
    broken = f"one took {tidy(worst)} s, at most {MOST_S[name]} are allowed" if worst > MOST_S[name] else ""
    return Result(name, median(seconds), more={"kills": len(seconds), "p100": tidy(worst), "least": tidy(min(seconds))}, broken=broken)


def _child(stack: Stack, session: str) -> float:
    holder = start_turn(stack, "slow", session, marked(0))
    began = time.monotonic_ns()
    os.kill(holder.pid, signal.SIGKILL)
    _, _, seen = running(stack, session, after=holder.epoch)
    wait_for(lambda: len(_others(stack, holder.owner)) >= CHILDREN, "another child", stack)
    return (seen - began) / 1e9


def _worker(stack: Stack, session: str) -> float:
    holder = start_turn(stack, "slow", session, marked(0))
    name = next(name for name, process in stack.processes.items() if process.pid == holder.supervisor_pid)
    gone = set(stack.live_workers()) & {o for o in stack.live_workers() if stack.supervisor_of(o) == holder.supervisor_pid}
    began = time.monotonic_ns()
    stack.stop(name)
    _, _, seen = running(stack, session, after=holder.epoch)
    start_worker(stack, name, children=CHILDREN)
    wait_for(lambda: len(set(stack.live_workers()) - gone) >= 2 * CHILDREN, "another worker", stack)
    return (seen - began) / 1e9


def _others(stack: Stack, owner: str) -> list[str]:
    return [other for other in stack.live_workers() if other != owner]
