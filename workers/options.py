"""What a worker is started with, in a form that travels from the command line to the supervisor to each child."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from turnyard.state.schema import THIS_VERSION, Schemas

Role = Literal["worker", "lifted"]


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
    """One worker: its supervisor and all of its children."""

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

    def to_json(self) -> dict[str, Any]:
        """Return what `options_from` reads."""
        return asdict(self)


def options_from(data: dict[str, Any]) -> Options:
    """Return the options a supervisor sent."""
    known: dict[str, Any] = {**data, "timing": Timing(**data["timing"]), "schemas": Schemas(**data["schemas"])}
    for name in ("apps", "pools", "queues"):
        known[name] = tuple(known[name])
    return Options(**known)
