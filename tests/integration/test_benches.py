"""Do the benches run, and do they write what their readers expect? Nothing here says how fast anything is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benches.catalogue import NAMES
from benches.results import GOALS, Result, percentile

ROWS = ("commands_sent_per_plain_turn", "bytes_per_plain_turn")
PROMISED = {
    *("plain_turns_per_s", "tool_turns_per_s", "accepted_to_model_p50_ms", "accepted_to_model_p99_ms", "round_trips_per_step"),
    *("commands_sent_per_plain_turn", "commands_counted_per_plain_turn", "bytes_per_plain_turn", "cpu_s_per_1000_plain_turns"),
    *("child_kill_recovery_s", "worker_kill_recovery_s", "sigterm_handoff_s", "script_blocked_p999_ms"),
    *("host_cut_recovery_s", "hot_tenant_delay_slots", "admit_at_cap_growth", "kept_after_twice_the_turns"),
    *("idle_session_bytes", "parked_call_bytes"),
}


def benches(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in {"JSON", "ONLY", "QUICK", "SPEC"}}
    command = [sys.executable, "-m", "benches", *words]
    return subprocess.run(command, cwd=root, env=env | environment, capture_output=True, text=True, check=False, timeout=170)


@pytest.mark.timeout(180)
def test_a_quick_run_writes_the_rows_that_were_asked_for(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = benches(root, "--quick", "--sessions", "10", "--seconds", "0.5", "--idle-s", "0.5", ONLY=",".join(ROWS), JSON=str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())
    assert [row["name"] for row in rows] == list(ROWS)
    for row in rows:
        assert {"name", "value", "unit", "goal", "floor"} <= set(row)
        assert row["value"] > 0
        assert row["floor"] > 0
        assert row["name"] in done.stdout


def test_a_row_that_does_not_exist_is_refused_with_those_that_do(root: Path) -> None:
    done = benches(root, "--only", "turns_per_fortnight")
    assert done.returncode != 0
    assert "turns_per_fortnight" in done.stderr
    assert "plain_turns_per_s" in done.stderr


def test_every_promised_row_has_a_goal_and_somebody_who_measures_it() -> None:
    assert set(NAMES) >= PROMISED
    assert set(NAMES) == set(GOALS)


def test_every_row_stands_on_the_page(root: Path) -> None:
    page = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"| `{name}` |" not in page] == []


def test_a_row_is_met_on_the_good_side_of_its_goal_unless_something_is_broken() -> None:
    assert Result("plain_turns_per_s", 2600).met
    assert not Result("plain_turns_per_s", 2400).met
    assert Result("bytes_per_plain_turn", 500).met
    assert not Result("bytes_per_plain_turn", 500, broken="a bound was passed").met


def test_the_last_percentile_is_the_greatest_value_and_nothing_has_none() -> None:
    assert percentile([3, 1, 2], 1.0) == 3
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([], 0.5) == 0
