"""Leases are a process' own."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from workers.leases import Leases
from workers.options import Timing


class NoYard:
    """A yard without shards: every beat is answered."""

    shards: tuple[Any, ...] = ()


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
