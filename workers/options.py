"""What a worker is started with, in a form that travels from the command line to the supervisor to each child."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from turnyard.state.schema import THIS_VERSION, Schemas

Role = Literal["worker", "lifted"]

# Of the children for suspects, by level of isolation: how many turns each runs at a time, and how many there may be.
_MOST = {1: 16, 2: 1}
CHILDREN = {1: 4, 2: 1}


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things may take, in seconds.

    `lease_s` is the right of an incarnation to write, renewed each `beat_s`; `margin_s` is how much earlier than the
    server a child considers it over. A child whose loop does not come round for `max_block_s` is killed. `grace_s`
    bounds what SIGTERM waits for: it must be shorter than the grace of whatever sends the signal.
    """

    lease_s: float = 10.0
    beat_s: float = 2.0
    margin_s: float = 1.0
    max_block_s: float = 30.0
    grace_s: float = 140.0


@dataclass(frozen=True, slots=True)
class Options:
    """One worker: its supervisor and all of its children; `isolation` is above 0 only for a child that runs suspects."""

    redis: str
    apps: tuple[str, ...]
    role: Role = "worker"
    pools: tuple[str, ...] = ("default",)
    queues: tuple[str, ...] = ("default",)
    processes: int = 2
    concurrency: int = 100
    lifted_redis: str | None = None
    config: str | None = None
    timing: Timing = field(default_factory=Timing)
    schemas: Schemas = THIS_VERSION
    isolation: int = 0

    @property
    def turns(self) -> int:
        """How many turns the child runs at a time."""
        return min(self.concurrency, _MOST.get(self.isolation, self.concurrency))

    @property
    def served(self) -> tuple[str, ...]:
        """The pools whose turns the child takes: suspects of a pool are a pool of their own."""
        return tuple(f"{pool}!{self.isolation}" for pool in self.pools) if self.isolation else self.pools

    @property
    def lines(self) -> int:
        """How many children there may be at once: the regular ones, then those for suspects."""
        return self.processes + sum(CHILDREN.values())

    @property
    def seats(self) -> int:
        """How many turns a child may have in hand: those it took, and as many that it was found to hold already."""
        return 2 * self.concurrency

    def isolated(self, level: int) -> Options:
        """Return the options of a child for suspects of this level."""
        return replace(self, isolation=level)

    def to_json(self) -> dict[str, Any]:
        """Return what `options_from` reads."""
        return asdict(self)


def options_from(data: dict[str, Any]) -> Options:
    """Return the options a supervisor sent."""
    known: dict[str, Any] = {**data, "timing": Timing(**data["timing"]), "schemas": Schemas(**data["schemas"])}
    for name in ("apps", "pools", "queues"):
        known[name] = tuple(known[name])
    return Options(**known)
