"""How many turns per second, and how much processor time a thousand of them take?

Ours and the bare loop alternate, each time on a fresh server; a row is the median of its runs.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import uvloop

from benches.arq_load import VARIANTS, arq_closed_loop, arq_yard
from benches.measured import Speed, speed
from benches.options import Options
from benches.results import Result, median, tidy
from benches.stack import floor, yard

STEPS = {"plain": 1, "tool": 3}
NAMES = tuple(name for agent in STEPS for name in (f"{agent}_turns_per_s", f"cpu_s_per_1000_{agent}_turns"))


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Measure the agents of which a row is wanted."""
    found: list[Result] = []
    for agent in STEPS:
        names = {f"{agent}_turns_per_s", f"cpu_s_per_1000_{agent}_turns"} & wanted
        if names:
            found += [row for row in _agent(options, agent, rivals=f"{agent}_turns_per_s" in names) if row.name in names]
    return found


def _agent(options: Options, agent: str, *, rivals: bool) -> list[Result]:
    ours: list[Speed] = []
    bare: list[Speed] = []
    for _ in range(options.pairs):
        with floor(agent) as stack:
            bare.append(speed(stack, agent, options))
        with yard() as stack:
            ours.append(speed(stack, agent, options))
    rival = {name: _arq(options, agent, variant) for name, variant in VARIANTS.items()} if rivals and options.rivals else {}
    runs = {"runs": [tidy(s.per_s) for s in ours], "floor_runs": [tidy(s.per_s) for s in bare]}
    server = {"server_cpu_s": tidy(median(s.used.server_cpu_s * 1000 / s.turns for s in ours))}
    return [
        Result(f"{agent}_turns_per_s", median(s.per_s for s in ours), median(s.per_s for s in bare), rival, runs),
        Result(
            f"cpu_s_per_1000_{agent}_turns", median(s.cpu_s_per_1000 for s in ours), median(s.cpu_s_per_1000 for s in bare), more=server
        ),
    ]


def _arq(options: Options, agent: str, variant: str) -> float:
    with arq_yard(variant) as stack:
        return uvloop.run(
            arq_closed_loop(stack.url, steps=STEPS[agent], sessions=options.sessions, seconds=options.seconds, warmup_s=options.warmup_s)
        )
