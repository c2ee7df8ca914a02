"""What a measurement says, and what it is held against.

A goal is what this design set itself; the floor and the rivals were measured in the same run, on the same machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Better = Literal["higher", "lower"]


class Unmeasured(Exception):
    """A row could not be measured: the message says what was missing. Other rows go on."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a row is to reach. `better` says on which side of `value` the good numbers are."""

    value: float
    unit: str
    better: Better = "lower"


GOALS: dict[str, Goal] = {
    "plain_turns_per_s": Goal(2500, "turns/s", "higher"),
    "tool_turns_per_s": Goal(1600, "turns/s", "higher"),
    "accepted_to_model_p50_ms": Goal(1.5, "ms"),
    "accepted_to_model_p99_ms": Goal(6, "ms"),
    "round_trips_per_step": Goal(1, "commands"),
    "commands_sent_per_plain_turn": Goal(4, "commands"),
    "commands_counted_per_plain_turn": Goal(50, "commands"),
    "bytes_per_plain_turn": Goal(600, "bytes"),
    "cpu_s_per_1000_plain_turns": Goal(1.3, "CPU s"),
    "cpu_s_per_1000_tool_turns": Goal(1.3, "CPU s"),
    "child_kill_recovery_s": Goal(0.5, "s"),
    "worker_kill_recovery_s": Goal(2.5, "s"),
    "host_cut_recovery_s": Goal(12, "s"),
    "sigterm_handoff_s": Goal(0.2, "s"),
    "script_blocked_p999_ms": Goal(5, "ms"),
    "hot_tenant_delay_slots": Goal(2, "slot times"),
    "admit_at_cap_growth": Goal(1.5, "times"),
    "kept_after_twice_the_turns": Goal(1.02, "times"),
    "idle_session_bytes": Goal(1200, "bytes"),
    "parked_call_bytes": Goal(1000, "bytes"),
    "parked_worker_cpu_ms_per_s": Goal(2, "ms/s"),
    "completion_to_model_p50_ms": Goal(2, "ms"),
    "completion_to_model_p99_ms": Goal(8, "ms"),
    "idle_commands_per_s": Goal(5, "commands/s"),
    "engine_build_growth": Goal(1.3, "times"),
    "engine_build_again": Goal(0.2, "times"),
    "engine_step_growth": Goal(1.2, "times"),
    "engine_import": Goal(1.3, "times"),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One row. `rival` maps a rival's name to its number; `more` is what explains the number; `broken` what must not be."""

    name: str
    value: float
    floor: float | None = None
    rival: dict[str, float] = field(default_factory=dict[str, float])
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    broken: str = ""

    @property
    def goal(self) -> Goal:
        """What this row is to reach."""
        return GOALS[self.name]

    @property
    def met(self) -> bool:
        """Tell whether the number is on the good side of its goal, and nothing is broken."""
        good = self.value >= self.goal.value if self.goal.better == "higher" else self.value <= self.goal.value
        return good and not self.broken

    @property
    def ratio(self) -> float | None:
        """The number as a part of its floor; None without one."""
        return self.value / self.floor if self.floor else None

    def to_json(self) -> dict[str, Any]:
        """Return the row as it is written: what is unknown is left out."""
        row: dict[str, Any] = {"name": self.name, "value": tidy(self.value), "unit": self.goal.unit, "goal": self.goal.value}
        row |= {"better": self.goal.better, "met": self.met}
        if self.floor is not None:
            row |= {"floor": tidy(self.floor), "ratio_to_floor": tidy(self.ratio or 0.0)}
        if self.rival:
            row["rival"] = {name: tidy(value) for name, value in self.rival.items()}
        if self.more:
            row["more"] = self.more
        return row | ({"broken": self.broken} if self.broken else {})


def tidy(value: float) -> float:
    """Round to what a measurement can know: four digits."""
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)


def median(values: Iterable[float]) -> float:
    """Return the median; 0 of nothing."""
    found = list(values)
    return statistics.median(found) if found else 0.0


def percentile(values: Sequence[float], q: float) -> float:
    """Return the value below which a part `q` of the values lies, by nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0
