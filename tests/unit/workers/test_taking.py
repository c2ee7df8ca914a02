"""A child takes no more turns than it has room for, however many shards it takes them from."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnyard.clock import SystemClock
from turnyard.state import fleet
from turnyard.state.fleet import Assignment, Registration
from workers.beside import Beside
from workers.board import Board
from workers.lease import Lease
from workers.turns import Turns

SHARDS = tuple(SimpleNamespace(n=n) for n in range(3))


async def test_shards_that_all_have_work_fill_a_child_once(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Board.create(1).line(0)
    line.valid_until = SystemClock().monotonic() + 60
    lease = Lease(line, SystemClock())
    lease.hold("one")
    drain, over = asyncio.Event(), asyncio.Event()
    most_at_once = 0

    async def take(shard: Any, lists: Any, *, free: int, block_ms: int) -> list[Assignment]:
        await asyncio.sleep(0)
        if not free or over.is_set():
            await drain.wait()
            return []
        return [Assignment(f"s{shard.n}-{i}", 1) for i in range(free)]

    async def run(turn: Any) -> bool:
        nonlocal most_at_once
        most_at_once = max(most_at_once, work.running)
        asyncio.get_running_loop().call_later(0.05, over.set)
        await over.wait()
        return True

    monkeypatch.setattr(fleet, "take", take)
    work = Turns(
        cast("Any", SimpleNamespace(shards=SHARDS)),
        cast("Any", SimpleNamespace(run=run)),
        lease,
        SystemClock(),
        seats=Board.create(1).line(0).seats,
        most=90,
        beside=Beside(cast("Any", SimpleNamespace(shards=SHARDS)), lease, SystemClock()),
    )
    work.enrol(Registration("one", "worker", "h", 1, 1, ("default",), {"bot": 0}, 90))
    serving = asyncio.create_task(work.serve(drain))
    await over.wait()
    drain.set()
    async with asyncio.timeout(10):
        assert await serving
    assert most_at_once == 90
