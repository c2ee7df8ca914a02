"""How long from just before a message is sent until its model call starts, when little goes on?"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import uvloop

from benches.arq_load import VARIANTS, arq_open_loop, arq_yard
from benches.load import open_loop
from benches.options import Options
from benches.results import Result, Unmeasured, percentile, tidy
from benches.stack import Stack, floor, yard
from benches.stamps import read_stamps

QUANTILES = {"accepted_to_model_p50_ms": 0.5, "accepted_to_model_p99_ms": 0.99}
NAMES = tuple(QUANTILES)


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Measure ours, the bare loop and arq, one after the other."""
    with floor("stamped") as stack:
        bare = _by_the_clock(stack, options)
    with yard() as stack:
        ours = _by_the_clock(stack, options)
    rivals: dict[str, list[float]] = {}
    for name, variant in VARIANTS.items() if options.rivals else ():
        with arq_yard(variant) as stack:
            sent = uvloop.run(arq_open_loop(stack.url, per_s=options.latency_per_s, seconds=options.latency_s))
            rivals[name] = _waited_ms(stack, sent)
    more = {"messages": len(ours), "max_ms": tidy(max(ours)), "floor_max_ms": tidy(max(bare))}
    return [
        Result(name, percentile(ours, q), percentile(bare, q), {rival: percentile(ms, q) for rival, ms in rivals.items()}, more)
        for name, q in QUANTILES.items()
        if name in wanted
    ]


def _by_the_clock(stack: Stack, options: Options) -> list[float]:
    sent = uvloop.run(open_loop(stack.url, "stamped", per_s=options.latency_per_s, seconds=options.latency_s))
    return _waited_ms(stack, sent)


def _waited_ms(stack: Stack, sent: dict[int, int]) -> list[float]:
    started = {stamp.message: stamp.at_ns for stamp in read_stamps(stack.stamps) if stamp.what == "start"}
    missing = [n for n in sent if n not in started]
    if missing or not sent:
        raise Unmeasured(f"{len(missing)} of {len(sent)} messages have no stamp of their model call in {stack.stamps}")
    return [(started[n] - at_ns) / 1e6 for n, at_ns in sent.items()]
