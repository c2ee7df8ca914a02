"""What only time can settle, done a little at a time by whoever ticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnyard.state.yard import Shard

_BATCH = 100  # how many deadlines one tick meets (upkeep.lua)


@dataclass(frozen=True, slots=True)
class Suspects:
    """Which turns a dead child may have died of, by session key part. `alone`: it had no other in hand."""

    sessions: tuple[str, ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Ticked:
    """What one tick did: turns and tasks taken from the dead, assignments nobody began, deadlines met, turns admitted."""

    expelled: int
    returned: int
    due: int
    admitted: int


async def tick(
    shard: Shard,
    *,
    dead: Sequence[str] = (),
    suspects: Suspects = Suspects(),
    who: Literal["dispatcher", "supervisor"] = "dispatcher",
    lease_ms: int = 10_000,
    tick_ms: int = 1_000,
    parts: str = "wbdr",
) -> Ticked:
    """Do what is due. `dead` are incarnations whose process is known to be gone; they are not waited for.

    A supervisor that ticks for its dead child leaves admission to the dispatcher. `parts` names what to do: w workers
    past their lease, b assignments past begin-by, d deadlines, r blocked flows and tags. Of what a supervisor's child ran
    only the suspects are charged; whoever else says that workers are dead charges all they ran, for a lost host.
    """
    named = suspects.sessions if who == "supervisor" else ()
    return Ticked(*await shard.run("tick", who, parts, lease_ms, tick_ms, int(suspects.alone), len(dead), *dead, *named))


async def tick_through(shard: Shard, *, lease_ms: int, tick_ms: int, stopped: Callable[[], bool]) -> None:
    """Tick, and at once again while more deadlines are due than a tick meets, until `stopped`.

    Thousands of calls that are looked at again each few seconds would be late for ever otherwise.

    Raises:
        StoreUnavailable: no answer; what is due stays due.
    """
    ticked = await tick(shard, lease_ms=lease_ms, tick_ms=tick_ms)
    while ticked.due >= _BATCH and not stopped():
        ticked = await tick(shard, lease_ms=lease_ms, tick_ms=tick_ms, parts="d")
