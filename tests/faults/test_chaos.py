"""A short run of chaos, and what makes long ones worth anything: a schedule that the seed alone decides."""

from __future__ import annotations

from pathlib import Path

from tests.faults.chaos import run_seed
from tests.faults.nemesis import schedule

SEED, SECONDS = 3, 9.0


def test_the_same_seed_strikes_the_same_roles_at_the_same_times() -> None:
    assert schedule(7, 120) == schedule(7, 120)
    assert schedule(7, 120) != schedule(8, 120)
    assert schedule(7, 60) == [strike for strike in schedule(7, 120) if strike.at_s < 59]


def test_nothing_is_lost_doubled_torn_overlapped_leaked_or_reordered_while_processes_and_the_server_die(tmp_path: Path) -> None:
    outcome = run_seed(SEED, SECONDS, tmp_path)
    assert outcome.good, outcome.report()
    assert outcome.messages > 20
    assert outcome.faults > 3
