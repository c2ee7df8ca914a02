"""What only time can settle, done a little at a time by whoever ticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnyard.state.yard import Shard


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
