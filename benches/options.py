"""How long and how often to measure: a full run for the page, a quick one to see that everything works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The sizes of a run. The defaults are those of the definitions in docs/performance.md."""

    sessions: int = 1000
    seconds: float = 8.0
    warmup_s: float = 2.0
    pairs: int = 3
    latency_s: float = 60.0
    latency_per_s: float = 20.0
    idle_s: float = 5.0
    kills: int = 10
    cuts: int = 3
    stored_sessions: int = 20
    stored_turns: int = 100
    idle_sessions: int = 100_000
    parked_sessions: int = 200
    parked_calls: int = 25
    waiting_calls: int = 10_000
    steady_turns: int = 20_000
    hot_sessions: int = 5_000
    waiting_sessions: int = 100_000
    engine_pairs: int = 15
    rivals: bool = True


# Long enough to go through every line, too short to say anything about speed.
QUICK = Options(
    sessions=50,
    seconds=1.0,
    warmup_s=0.3,
    pairs=1,
    latency_s=3.0,
    idle_s=1.0,
    kills=1,
    cuts=1,
    stored_sessions=5,
    stored_turns=40,
    idle_sessions=1000,
    parked_sessions=20,
    waiting_calls=200,
    steady_turns=600,
    hot_sessions=50,
    waiting_sessions=1_000,
    engine_pairs=2,
)
