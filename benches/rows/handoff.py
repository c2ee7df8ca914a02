"""How long until another worker goes on with the turn of one that was told to stop?

A turn goes from step to step, each model call taking a fifth of a second. Its worker gets SIGTERM, finishes the step in
hand, and hands the turn back. Counted from the end of that step, as the model stamped it, to the next begin.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Set as AbstractSet

from benches.options import Options
from benches.results import Result, median, tidy
from benches.stack import Stack, start_worker, wait_for, yard
from benches.stamps import marked, read_stamps
from benches.watch import running, start_turn

NAMES = ("sigterm_handoff_s",)
STEPS_FIRST = 2


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Stop the worker that has the turn, as often as asked."""
    del wanted
    with yard(workers=2, children=1) as stack:
        seconds = [_handoff(stack, n) for n in range(options.kills)]
    more = {"stops": len(seconds), "p100": tidy(max(seconds)), "least": tidy(min(seconds))}
    return [Result("sigterm_handoff_s", median(seconds), more=more)]


def _handoff(stack: Stack, n: int) -> float:
    session = f"handoff-{n}"
    holder = start_turn(stack, "stepping", session, marked(n))
    wait_for(lambda: len(_ends(stack, n, holder.pid)) >= STEPS_FIRST, "some steps", stack)
    name = next(name for name, process in stack.processes.items() if process.pid == holder.supervisor_pid)
    told = time.monotonic_ns()
    os.kill(holder.supervisor_pid, signal.SIGTERM)
    _, _, seen = running(stack, session, after=holder.epoch)
    step_ended = max(told, *(at for at in _ends(stack, n, holder.pid) if at <= seen))
    stack.stop(name)
    start_worker(stack, name, children=1)
    wait_for(lambda: len([o for o in stack.live_workers() if o != holder.owner]) >= 2, "another worker", stack)
    return (seen - step_ended) / 1e9


def _ends(stack: Stack, message: int, pid: int) -> list[int]:
    return [s.at_ns for s in read_stamps(stack.stamps) if s.message == message and s.pid == pid and s.what == "end"]
