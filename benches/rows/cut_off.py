"""How long until somebody else has begun the turn of a worker whose host is cut off?

Its processes live and its connections stay open; nothing comes through. Its lease has to run out, and a tick to see it.
"""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet

from benches.far import Far, far_host
from benches.options import Options
from benches.results import Result, median, tidy
from benches.stack import Stack, server, start_worker, wait_for
from benches.stamps import marked
from benches.watch import running, start_turn

NAMES = ("host_cut_recovery_s",)
FAR, NEAR = "far", "near"


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Cut the far worker off, again and again."""
    del wanted
    with far_host() as (far, listening), server(*listening) as stack:
        stack.start("dispatcher", "-m", "dispatcher", "--redis", stack.url)
        seconds = [_cut(stack, far, n) for n in range(options.cuts)]
    more = {"cuts": len(seconds), "p50": tidy(median(seconds)), "least": tidy(min(seconds)), "how": far.how}
    return [Result("host_cut_recovery_s", max(seconds), more=more)]


def _cut(stack: Stack, far: Far, n: int) -> float:
    before = set(stack.live_workers())
    start_worker(stack, FAR, children=1, url=far.url, prefix=far.prefix)
    wait_for(lambda: set(stack.live_workers()) - before, "the far worker", stack)
    holder = start_turn(stack, "slow", f"cut-{n}", marked(n))
    start_worker(stack, NEAR, children=1)
    wait_for(lambda: set(stack.live_workers()) - before - {holder.owner}, "the near worker", stack)
    began = time.monotonic_ns()
    far.cut(stack, FAR)
    _, _, seen = running(stack, f"cut-{n}", after=holder.epoch)
    far.mend(stack, FAR)
    for name in (FAR, NEAR):
        stack.stop(name)
    wait_for(lambda: not stack.live_workers(), "the end of both leases", stack)
    return (seen - began) / 1e9
