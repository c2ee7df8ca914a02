"""A child whose lease is not sure does nothing outside, and stops when it is told to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnyard.clock import SystemClock
from turnyard.errors import StoreUnavailable
from turnyard.lifted import LiftedTask
from turnyard.state import calls
from turnyard.state.calls import RowStart
from turnyard.state.fleet import Assignment
from turnyard.testing import wait_until
from workers.bench import Wires
from workers.beside import Beside
from workers.board import Board, Line
from workers.child import ChildProcess
from workers.lease import Lease
from workers.lifted_worker import LiftedTasks
from workers.options import Options
from workers.turns import Turns

SHARD = SimpleNamespace(n=0)
YARD = cast("Any", SimpleNamespace(shards=(SHARD,), shard=[SHARD].__getitem__))
TASK = LiftedTask(0, "a.0", "call_a")


@pytest.fixture
def line() -> Line:
    return Board.create(1).line(0)


@pytest.fixture
def lease(line: Line) -> Lease:
    lease = Lease(line, SystemClock())
    lease.hold("one")
    return lease


def turns(lease: Lease, executor: object) -> Turns:
    held: dict[str, Any] = {"seats": Board.create(1).line(0).seats, "most": 1, "beside": Beside(YARD, lease, SystemClock())}
    return Turns(YARD, cast("Any", executor), lease, SystemClock(), **held)


async def drained() -> asyncio.Event:
    """Return an event that is set in a moment, when everybody waits for what they wait for."""
    drain = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, drain.set)
    return drain


async def test_turns_are_no_longer_taken_once_the_child_is_told_to_stop(lease: Lease) -> None:
    work = turns(lease, SimpleNamespace(draining=False))
    async with asyncio.timeout(10):
        assert await work.serve(await drained())


async def test_a_lifted_task_that_waits_for_the_lease_is_not_begun_once_the_child_is_told_to_stop(lease: Lease) -> None:
    work = LiftedTasks(YARD, cast("Any", None), lease, SystemClock())

    async def one_task(drain: asyncio.Event) -> None:
        await work.run(TASK, "job")

    runner = cast("Any", SimpleNamespace(serve=one_task))
    async with asyncio.timeout(10):
        assert await work.serve(await drained(), [runner])


@pytest.mark.parametrize("renamed", [True, False])
async def test_a_lifted_task_runs_only_when_the_lease_under_which_it_took_its_call_is_sure(
    line: Line, lease: Lease, monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    line.valid_until = SystemClock().monotonic() + 60
    ran: list[str] = []

    async def begin_row(*_: object, owner: str, **__: object) -> RowStart:
        line.valid_until = 0.0
        return RowStart("OK", name="tool", args={})

    async def run(task: LiftedTask, start: RowStart, wires: Wires) -> Any:
        assert lease.sure
        ran.append(lease.owner)
        raise asyncio.CancelledError

    monkeypatch.setattr(calls, "begin_row", begin_row)
    work = LiftedTasks(YARD, cast("Any", SimpleNamespace(run=run)), lease, SystemClock())
    running = asyncio.create_task(work.run(TASK, "job"))
    await wait_until(lambda: work.running == 1, description="the call to be taken")
    if renamed:
        lease.let_go()
        lease.hold("two")
    line.valid_until = SystemClock().monotonic() + 60
    async with asyncio.timeout(10):
        await asyncio.gather(running, return_exceptions=True)
    assert ran == ([] if renamed else ["one"])
    assert work.running == 0


@pytest.mark.parametrize("code", ["LOST", "StoreUnavailable"])
async def test_a_task_taken_under_a_name_that_is_gone_is_begun_under_the_next_one(
    line: Line, lease: Lease, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    line.valid_until = SystemClock().monotonic() + 60
    asked: list[str] = []
    ran: list[str] = []

    async def begin_row(*_: object, owner: str, **__: object) -> RowStart:
        asked.append(owner)
        if owner == "one" and code != "LOST":
            raise StoreUnavailable("gone")
        return RowStart("LOST" if owner == "one" else "OK", name="tool", args={})

    async def run(task: LiftedTask, start: RowStart, wires: Wires) -> Any:
        ran.append(lease.owner)
        raise asyncio.CancelledError

    monkeypatch.setattr(calls, "begin_row", begin_row)
    work = LiftedTasks(YARD, cast("Any", SimpleNamespace(run=run)), lease, SystemClock())
    running = asyncio.create_task(work.run(TASK, "job"))
    await wait_until(lambda: asked != [], description="the call to be asked for")
    assert ran == []
    lease.hold("two")
    async with asyncio.timeout(10):
        await asyncio.gather(running, return_exceptions=True)
    assert ran == ["two"]


async def test_a_child_that_cannot_open_its_app_for_want_of_a_server_stops_when_told_to(line: Line) -> None:
    async def away(*_: object) -> dict[str, int]:
        raise StoreUnavailable("gone")

    child = cast("Any", ChildProcess(Options(redis="", apps=()), cast("Any", SimpleNamespace(open=away)), line, SystemClock()))
    asyncio.get_running_loop().call_later(0.2, child._drain.set)
    async with asyncio.timeout(10):
        assert await child._live("one", YARD, None, None, [])


@pytest.mark.parametrize("dropped", [True, False])
async def test_a_turn_that_ends_with_a_cancellation_nobody_asked_for_is_looked_for_at_the_server(
    line: Line, lease: Lease, dropped: bool
) -> None:
    async def run(turn: Any) -> bool:
        await asyncio.sleep(60 if dropped else 0)
        raise asyncio.CancelledError

    work = turns(lease, SimpleNamespace(run=run))
    cast("Any", work)._start(cast("Any", SHARD), Assignment("a", 1))
    if dropped:
        await asyncio.sleep(0)
        work.drop()
    await wait_until(lambda: work.running == 0, description="the turn to be gone")
    assert line.doubt is not dropped
