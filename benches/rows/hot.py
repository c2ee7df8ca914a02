"""How long does another tenant's single message wait while a hot one has thousands of sessions ready?

Few slots, turns of a tenth of a second, and a backlog of one tenant that outlasts the measurement. Counted from just before the message
is sent to its model call, in slot times, which are the median time between begin and end of the hot tenant's turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Set as AbstractSet

import uvloop

from benches.load import submitter
from benches.options import Options
from benches.results import Result, Unmeasured, median, tidy
from benches.stack import Stack, wait_for, yard
from benches.stamps import Stamp, marked, read_stamps
from turnyard.state.keys import Keys

NAMES = ("hot_tenant_delay_slots",)
AGENT = "steady"
SLOTS = 8
MESSAGES = 10
APART_S = 0.73
FIRST = 1_000_000


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Fill one tenant's flow, then send single messages of another."""
    del wanted
    with yard(max_turns=SLOTS) as stack:
        sent = uvloop.run(_load(stack, options.hot_sessions))
        stamps = list(read_stamps(stack.stamps))
    slot_s = median(_slot_times(stamps))
    entered = {s.message: s.at_ns for s in stamps if s.what == "start"}
    slots = [(entered[n] - at_ns) / 1e9 / slot_s for n, at_ns in sent.items()]
    hot = sum(1 for s in stamps if s.message < FIRST and s.what == "start")
    more = {
        "messages": len(slots),
        "p50": tidy(median(slots)),
        "slot_s": tidy(slot_s),
        "ready": options.hot_sessions,
        "served_meanwhile": hot,
    }
    broken = "" if hot < options.hot_sessions else "the backlog was gone before the last message"
    return [Result("hot_tenant_delay_slots", max(slots), more=more, broken=broken)]


async def _load(stack: Stack, sessions: int) -> dict[int, int]:
    sent: dict[int, int] = {}
    async with submitter(stack.url, AGENT) as submit:
        for first in range(0, sessions, 250):
            numbers = range(first, min(first + 250, sessions))
            await asyncio.gather(*(submit.send(f"hot-{n}", marked(n), tenant="hot") for n in numbers))
        # Accepted is not ready yet: ingress is one queue for all.
        await asyncio.to_thread(wait_for, lambda: stack.redis.xlen(Keys("0").ingress) == 0, "an empty ingress", stack)
        for n in range(MESSAGES):
            sent[FIRST + n] = time.monotonic_ns()
            job = await submit.send(f"quiet-{n}", marked(FIRST + n), tenant="quiet")
            await submit.ended(job)
            await asyncio.sleep(APART_S)
    return sent


def _slot_times(stamps: list[Stamp]) -> list[float]:
    began = {s.message: s.at_ns for s in stamps if s.what == "start"}
    found = [(s.at_ns - began[s.message]) / 1e9 for s in stamps if s.what == "end" and s.message < FIRST and s.message in began]
    if not found:
        raise Unmeasured("no turn of the hot tenant has ended")
    return found
