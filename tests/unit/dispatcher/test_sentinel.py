"""When a dispatcher believes what it sees of connections."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dispatcher.sentinel import Sentinel
from turnyard.settings.sections import TimingSection
from turnyard.state import witness
from turnyard.testing import ManualClock

TIMING = TimingSection(lease_ms=10_000, beat_ms=2_000, tick_ms=1_000)


class Server:
    """A server on which the worker `w` is overdue and not connected. `slow_s` is how long its answers take."""

    n = 0

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.slow_s = 0.0
        self.tells = True
        self.next_ms: int | None = None

    async def unwitnessed(self, _shard: object, **_: int) -> witness.Fleet | None:
        """Answer as the server would."""
        if self.slow_s:
            await self.clock.advance(self.slow_s)
        return witness.Fleet(["w"], self.next_ms) if self.tells else None


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(clock)

    async def now(_shard: object) -> int:
        return clock.now_ms()

    monkeypatch.setattr(witness, "unwitnessed", server.unwitnessed)
    monkeypatch.setattr(witness, "server_now_ms", now)
    return server


async def looks(sentinel: Sentinel, clock: ManualClock, count: int) -> list[list[str]]:
    seen: list[list[str]] = []
    for _ in range(count):
        seen.append(await sentinel.dead())
        await clock.advance(sentinel.every_s)
    return seen


async def test_nobody_is_called_dead_before_it_has_looked_for_some_beats(clock: ManualClock, server: Server) -> None:
    seen = await looks(Sentinel(cast("Any", server), TIMING, clock), clock, 20)
    assert seen[:13] == [[]] * 13
    assert seen[13:] == [["w"]] * 7


async def test_after_a_gap_it_starts_over(clock: ManualClock, server: Server) -> None:
    sentinel = Sentinel(cast("Any", server), TIMING, clock)
    await looks(sentinel, clock, 20)
    await clock.advance(5)
    assert await looks(sentinel, clock, 5) == [[]] * 5


async def test_an_answer_of_a_server_that_stood_still_counts_for_nothing(clock: ManualClock, server: Server) -> None:
    sentinel = Sentinel(cast("Any", server), TIMING, clock)
    await looks(sentinel, clock, 20)
    server.slow_s = 1.0
    assert await sentinel.dead() == []


async def test_a_server_that_does_not_tell_is_asked_once(clock: ManualClock, server: Server) -> None:
    sentinel = Sentinel(cast("Any", server), TIMING, clock)
    server.tells = False
    await looks(sentinel, clock, 20)
    server.tells = True
    assert await looks(sentinel, clock, 3) == [[]] * 3


@pytest.mark.parametrize(("next_ms", "wait_ms"), [(None, 500), (499, 500), (200, 220), (0, 20)])
async def test_the_next_look_is_in_the_moment_in_which_a_late_worker_is_overdue(
    clock: ManualClock, server: Server, next_ms: int | None, wait_ms: int
) -> None:
    sentinel = Sentinel(cast("Any", server), TIMING, clock)
    server.next_ms = next_ms
    await sentinel.dead()
    assert round(sentinel.wait_s * 1000) == wait_ms
