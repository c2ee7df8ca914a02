"""Which rows there are, in the order of the page, and who measures each."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from types import ModuleType

from benches.options import Options
from benches.results import GOALS, Result, Unmeasured
from benches.rows import (
    admission,
    blocked,
    commands,
    cut_off,
    engine,
    handoff,
    hot,
    kept,
    latency,
    recovery,
    round_trips,
    sessions,
    speed,
    stored,
    waiting,
)

MODULES: tuple[ModuleType, ...] = (
    speed,
    latency,
    round_trips,
    commands,
    stored,
    recovery,
    cut_off,
    handoff,
    blocked,
    hot,
    admission,
    sessions,
    kept,
    waiting,
    engine,
)
NAMES = tuple(name for name in GOALS if any(name in module.NAMES for module in MODULES))


def measure(options: Options, wanted: AbstractSet[str], *, say: Callable[[str], None]) -> list[Result]:
    """Measure the wanted rows, leaving out those that cannot be; `say` is told what goes on, because it takes minutes."""
    found: list[Result] = []
    for module in MODULES:
        mine = wanted & set(module.NAMES)
        if not mine:
            continue
        began = time.monotonic()
        say(f"measuring {', '.join(name for name in NAMES if name in mine)} …")
        try:
            found += module.measure(options, mine)
        except Unmeasured as reason:
            say(f"  not measured: {reason}")
        except Exception:  # noqa: BLE001 - minutes of other measurements are not thrown away for this one
            say(f"  not measured:\n{traceback.format_exc()}")
        say(f"  {time.monotonic() - began:.0f} s")
    order = list(GOALS)
    return sorted(found, key=lambda row: order.index(row.name))
