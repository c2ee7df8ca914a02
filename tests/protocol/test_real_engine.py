"""The engine that ships keeps every invariant of the protocol, whatever crashes, is lost or arrives meanwhile."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.actors import actions
from tests.protocol.configs import CONFIGS
from tests.protocol.real_engine import RealEngine
from tests.protocol.search import Walk, search
from turnyard.engine import batch, turn
from turnyard.records.commit import CallKind, Commit

WALKS = 4000 if os.environ.get("THOROUGH") else 600

KINDS: list[tuple[CallKind, int]] = [("child", 8), ("callback", 2), ("callback", 1)]


def first_violation(engine: RealEngine, monkeypatch: pytest.MonkeyPatch, walks: int) -> Walk | None:
    monkeypatch.setattr(actions, "plan", engine.plan)
    return next((walk for seed in range(walks) if (walk := Walk(seed).run()).bad), None)


@pytest.mark.parametrize(("outside", "parallel"), KINDS)
def test_random_walks_of_the_engine_that_ships_break_no_invariant(
    outside: CallKind, parallel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = RealEngine(outside, parallel)
    found = first_violation(engine, monkeypatch, WALKS)
    assert found is None, f"seed {found.seed}: {found.bad} after {found.path}"
    assert all(engine.effects.get(kind, 0) > WALKS // 10 for kind in ("AskModel", "RunTool", "RunBatch", "NoEffect"))


def _without(**change: Any) -> Any:
    real = turn.commit_after

    def changed(*args: Any, **kwargs: Any) -> Commit:
        return replace(real(*args, **kwargs), **change)

    return changed


MUTATIONS: dict[str, Any] = {
    "a cancelled turn that leaves its calls open": ("tests.protocol.real_engine.commit_after", _without(closing=False)),
    "a call that waits without being parked": ("tests.protocol.real_engine.commit_after", _without(park=())),
    "a yield that keeps its marks": ("tests.protocol.real_engine.commit_after", _without(unstart=())),
    "a worker that runs what another one started": (batch.Batch, "mine", lambda self, call: True),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_taken_out_of_the_engine_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[name])
    engine = RealEngine("child", 8)
    monkeypatch.setattr(actions, "plan", engine.plan)
    worlds = (CONFIGS[world] for world in ("two", "cancel", "await", "steer3"))
    assert any(search(world, max_states=3000, drain_every=5).bad for world in worlds)
