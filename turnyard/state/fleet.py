"""Worker incarnations: their leases, what they may run, and how assignments reach them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import orjson
from redis import exceptions as rx

from turnyard.errors import StoreUnavailable, Unsupported
from turnyard.state.reads import reading, text
from turnyard.state.schema import THIS_VERSION, Schemas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnyard.state.yard import Shard, Yard


@dataclass(frozen=True, slots=True)
class Registration:
    """What a new incarnation says of itself. `agents` maps names to the serial it runs; `capacity` is turns at once.

    `schemas` are those its version knows; it is given no session in a newer one.
    """

    owner: str
    role: str
    host: str
    pid: int
    supervisor_pid: int
    pools: tuple[str, ...]
    agents: Mapping[str, int]
    capacity: int
    schemas: Schemas = THIS_VERSION


@dataclass(frozen=True, slots=True)
class Assignment:
    """A session whose turn this worker may begin under `epoch`. `agent` is empty for one that it holds already."""

    session: str
    epoch: int
    agent: str = ""


@dataclass(frozen=True, slots=True)
class RowRef:
    """A call whose lifted task the server counts to this worker."""

    store: str
    call: str
    task: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Something this worker runs was cancelled: a turn (session, epoch) or a call."""

    session: str | None = None
    epoch: int | None = None
    call: str | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """What the server said to a beat. `lost`: take a new id. `lists`: further pool:agent@serial to take from, with ~schema where that is apart.

    `wanted` are the levels of isolation, 1 a small child and 2 one turn alone, for which the supervisor should start a child.
    `room`, when the beat said one, is what the incarnation has on this shard now; `held` what it holds there, and
    `waiting` how many sessions wait for such room.
    """

    lost: bool
    strangers: tuple[Assignment | RowRef, ...] = ()
    lists: tuple[str, ...] = ()
    wanted: tuple[int, ...] = ()
    room: int | None = None
    held: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A live incarnation, for people. `beat_age_s` is how long ago it was last renewed, at most."""

    worker: str
    role: str
    host: str
    pid: int
    supervisor_pid: int
    pools: tuple[str, ...]
    agents: dict[str, int]
    capacity: int
    running: int
    beat_age_s: float


@dataclass(slots=True)
class Lists:
    """The lists one worker takes from; `extra` comes with its beats."""

    registration: Registration
    extra: tuple[str, ...] = ()
    _turn: int = field(default=0)

    def keys(self, shard: Shard) -> list[str]:
        """Return the keys to wait on: cancels first, then the assignments in an order that rotates."""
        reg = self.registration
        lists = [f"{pool}:{agent}@0" for pool in reg.pools for agent in reg.agents] + list(self.extra)
        self._turn = (self._turn + 1) % max(1, len(lists))
        rotated = lists[self._turn :] + lists[: self._turn]
        return [shard.keys.control_list(reg.owner), *(shard.keys.turns(name) for name in rotated)]


async def register(shard: Shard, registration: Registration, *, lease_ms: int = 10_000) -> None:
    """Make a new incarnation known and alive; only this adds one.

    Raises:
        StoreUnavailable: the server did not answer; register again.
        Unsupported: this version does not know the schema that new data is written in.
    """
    reg = registration
    facts = {
        "role": reg.role,
        "host": reg.host,
        "pid": reg.pid,
        "supervisor_pid": reg.supervisor_pid,
        "pools": reg.pools,
        "agents": dict(reg.agents),
        "capacity": reg.capacity,
        "lease_ms": lease_ms,
        "schemas": [reg.schemas.oldest, reg.schemas.newest],
    }
    reply = await shard.run("beat", "join", reg.owner, lease_ms, orjson.dumps(facts))
    if reply[0] == b"OLD":
        raise Unsupported(f"this deployment was migrated and this version knows schema {reg.schemas}: start a newer version")


async def beat(
    shard: Shard, owner: str, *, held: Sequence[str] | int, lease_ms: int = 10_000, able: Sequence[int] = (), room: int | None = None
) -> Beat:
    """Renew an incarnation's lease. `held`: what it runs, or how much; when the server counts otherwise, strangers come back.

    `able` are the levels of isolation for which its supervisor could start a child now. `room` is how many turns it can
    run on this shard from now on; None leaves that as it is.
    """
    count = held if isinstance(held, int) else len(held)
    more = () if room is None else (room,)
    reply = await shard.run("beat", "beat", owner, lease_ms, count, "".join(map(str, able)), *more)
    if reply[0] != b"OK":
        return Beat(lost=True)
    known = frozenset[str]() if isinstance(held, int) else frozenset(held)
    strangers = (_stranger(text(raw)) for raw in reply[1])
    return Beat(
        lost=False,
        strangers=tuple(s for s in strangers if (s.session if isinstance(s, Assignment) else s.call) not in known),
        lists=tuple(text(name) for name in reply[2]),
        wanted=tuple(reply[3]),
        **dict(zip(("room", "held", "waiting"), reply[4:], strict=False)),
    )


def _stranger(raw: str) -> Assignment | RowRef:
    member, _, detail = raw.partition(" ")
    if member.startswith("c!"):
        _, store, call = member.split("!", 2)
        return RowRef(store, call, detail)
    return Assignment(member, int(detail))


async def leave(shard: Shard, owner: str) -> None:
    """Take an incarnation that runs nothing out of the fleet; one that still holds something stays until its lease ends."""
    await shard.run("beat", "leave", owner, 0)


async def take(shard: Shard, lists: Lists, *, free: int, block_ms: int = 2000) -> list[Assignment | Cancelled]:
    """Wait for assignments, `free` at most, or for cancels of what runs; return an empty list after `block_ms`.

    With `free=0` only cancels are waited for. What was taken and never begun comes back by itself after begin-by.
    """
    keys = lists.keys(shard)
    if free <= 0:
        keys = keys[:1]
    try:
        found = await shard.blocking.execute_command("BLMPOP", block_ms / 1000, len(keys), *keys, "LEFT", "COUNT", max(1, free))
    except (TimeoutError, rx.RedisError, OSError) as error:
        raise StoreUnavailable(f"assignments of shard {shard.n} could not be taken: {error}") from error
    if found is None:
        return []
    key, members = cast("tuple[bytes, list[bytes]]", found)
    if text(key) == keys[0]:
        return [_cancelled(text(raw)) for raw in members]
    agent = text(key).rpartition(":")[2].rpartition("@")[0]
    return [Assignment(session, int(epoch), agent) for session, _, epoch in (text(raw).partition(" ") for raw in members)]


def _cancelled(raw: str) -> Cancelled:
    what, *rest = raw.split(" ")
    if what == "turn":
        return Cancelled(session=rest[0], epoch=int(rest[1]))
    return Cancelled(call=rest[0])


async def list_workers(yard: Yard) -> list[WorkerView]:
    """Return every live incarnation, over all shards: what it runs and can run is the sum, its beat the oldest."""
    found: dict[str, WorkerView] = {}
    for shard in yard.shards:
        for view in await _workers_of(shard):
            known = found.get(view.worker)
            found[view.worker] = view if known is None else _both(known, view)
    return list(found.values())


async def _workers_of(shard: Shard) -> list[WorkerView]:
    out: list[WorkerView] = []
    with reading(f"the fleet of shard {shard.n}"):
        raw = await shard.redis.hgetall(shard.keys.prefix + "fleet")
        seconds, micros = await shard.redis.time()
        for name, facts in raw.items():
            owner = text(name)
            score = await shard.redis.zscore(shard.keys.prefix + "workers", owner)
            running = await shard.redis.scard(shard.keys.owned(owner))
            out.append(_view(owner, orjson.loads(facts), running, (seconds * 1000 + micros // 1000), score or 0.0))
    return out


def _both(one: WorkerView, other: WorkerView) -> WorkerView:
    return replace(
        one,
        capacity=one.capacity + other.capacity,
        running=one.running + other.running,
        beat_age_s=max(one.beat_age_s, other.beat_age_s),
    )


def _view(owner: str, facts: dict[str, Any], running: int, now_ms: int, score: float) -> WorkerView:
    age = (now_ms - (score - facts.get("lease_ms", 10_000))) / 1000
    return WorkerView(
        worker=owner,
        role=facts["role"],
        host=facts["host"],
        pid=facts["pid"],
        supervisor_pid=facts["supervisor_pid"],
        pools=tuple(facts["pools"]),
        agents=dict(facts["agents"] or {}),
        capacity=facts["capacity"],
        running=running,
        beat_age_s=round(max(0.0, age), 3),
    )
