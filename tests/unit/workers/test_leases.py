"""Leases are a process' own, and last from when a beat was sent, however late it is answered."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from turnyard.clock import SystemClock
from turnyard.errors import StoreUnavailable
from turnyard.state import fleet
from workers.leases import Leases
from workers.options import Timing


class NoYard:
    """A yard without shards: every beat is answered."""

    shards: tuple[Any, ...] = ()
    clock = SystemClock()


def exit_code_of_a_forks_beat(leases: Leases) -> int:
    """Beat in a fork of this process; 0: the incarnation is lost to it, 1: it would keep it alive."""
    child = os.fork()
    if child == 0:
        renewal = asyncio.new_event_loop().run_until_complete(leases.beat("a" * 32, held=None))
        os._exit(0 if renewal.lost else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.spec("trap-40")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_of_a_supervisor_cannot_keep_the_incarnations_of_its_parent_alive() -> None:
    leases = Leases(cast("Any", NoYard()), Timing())
    assert exit_code_of_a_forks_beat(leases) == 0
    assert not asyncio.run(leases.beat("a" * 32, held=None)).lost


class SlowYard:
    """A yard of two shards, the first of which answers when it is let."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.shards = (_Shard(0), _Shard(1))


class _Shard:
    def __init__(self, n: int) -> None:
        self.n = n
        self.beats = 0
        self.answers = asyncio.Event()
        if n:
            self.answers.set()


@pytest.fixture
def yard(monkeypatch: pytest.MonkeyPatch) -> SlowYard:
    async def beat(shard: _Shard, owner: str, **_: object) -> fleet.Beat:
        del owner
        shard.beats += 1
        await shard.answers.wait()
        return fleet.Beat(lost=False)

    monkeypatch.setattr(fleet, "beat", beat)
    return SlowYard()


async def test_an_answer_that_comes_after_the_next_beat_was_due_renews_the_lease_from_when_it_was_asked_for(yard: SlowYard) -> None:
    leases = Leases(cast("Any", yard), Timing(beat_s=0.02))
    before = yard.clock.monotonic()
    with pytest.raises(StoreUnavailable, match="1 of 2 shards"):
        await leases.beat("a" * 32, held=None)
    after = yard.clock.monotonic()
    yard.shards[0].answers.set()
    renewal = await leases.beat("a" * 32, held=None)
    assert not renewal.lost
    assert before <= renewal.sent_s <= after
    assert [shard.beats for shard in yard.shards] == [1, 2]


async def test_a_shard_that_does_not_answer_keeps_no_lease_of_the_others_from_being_renewed(yard: SlowYard) -> None:
    leases = Leases(cast("Any", yard), Timing(beat_s=0.02))
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await leases.beat("a" * 32, held=None)
    assert [shard.beats for shard in yard.shards] == [1, 3]
