"""Where one session stands, as the script `explain` read it at one moment.

Numbers ending in `_ms` without more are moments of the server's clock; nothing here judges, see reasons.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import orjson

from turnyard.records.approvals import approval_id
from turnyard.records.ids import store_key
from turnyard.state.calls import read_progress

if TYPE_CHECKING:
    from turnyard.state.yard import Shard


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker that holds something. `lease_ms` is when its lease ends, None when it is gone; `dead`: it was declared so."""

    worker: str
    host: str | None
    pid: int | None
    lease_ms: int | None
    dead: bool

    def gone(self, now_ms: int) -> bool:
        """Tell whether it may write no more."""
        return self.dead or self.lease_ms is None or self.lease_ms <= now_ms

    def shown(self, now_ms: int) -> dict[str, Any]:
        """Return it for people."""
        left = None if self.lease_ms is None else max(0, self.lease_ms - now_ms)
        return {"kind": "worker", "worker": self.worker, "host": self.host, "pid": self.pid, "lease_left_ms": left}


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without an outcome. `relays` counts how often it was handed out; `task` is who runs it as a lifted task.

    `approval` is the id by which people decide or answer it, None where they are not asked; `asked` what they are asked.
    `mode` is what the task came for; `not_before_ms` when it is handed out next, where that is not yet; `unread` how many answers wait
    to be read by its tool; `progress` what its task last said: {"fraction", "note", "at"}.
    """

    call: str
    tool: str
    kind: str
    state: str
    awaited: bool
    since_ms: int | None
    until_ms: int | None
    relays: int
    tries: int
    task: Holder | None
    of_open_turn: bool
    approval: str | None = None
    asked: dict[str, Any] = field(default_factory=dict[str, Any])
    mode: str = "run"
    not_before_ms: int | None = None
    unread: int = 0
    progress: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits in a queue. `due_ms` is the first moment at which something delayed is due; `window`: it is a collect window."""

    items: int = 0
    waking: int = 0
    oldest_ms: int | None = None
    due_ms: int | None = None
    window: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """A thing that sessions share: t/TENANT, a/AGENT or p/POOL. `limit` is None when nobody limits it."""

    name: str
    used: int
    limit: int | None

    @property
    def full(self) -> bool:
        """Tell whether it lets nobody in."""
        return self.limit is not None and self.used >= self.limit


@dataclass(frozen=True, slots=True)
class Server:
    """A worker that serves the session's agent."""

    serial: int
    free: int
    schema: int


@dataclass(frozen=True, slots=True)
class Room:
    """What admission would look at. `place` counts from 0 in the flow; `schema` is the one the next turn is written in."""

    place: int | None
    flows_ahead: int | None
    blocked: str | None
    used: int
    most: int
    resources: tuple[Resource, ...]
    pool: str
    pool_capacity: int
    home_capacity: int
    agent_capacity: int
    servers: tuple[Server, ...]
    schema: int


@dataclass(frozen=True, slots=True)
class Lane:
    """Something that is to be sent since `since_ms`. `due_ms` in the future: a sender has it, or waits before it tries again."""

    lane: str
    due_ms: int
    unsent: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything at once. `now_ms` is the moment it was read; `raw` holds the plain fields of the head."""

    session: str
    state: str
    now_ms: int
    tick_ms: int | None
    amnesty_ms: int
    quantum_ms: int
    holder: Holder | None
    calls: tuple[OpenCall, ...]
    inbox: Queue
    next: Queue
    backlog: dict[str, int]
    room: Room
    lanes: tuple[Lane, ...]
    raw: dict[str, Any] = field(default_factory=dict[str, Any])

    def number(self, name: str) -> int:
        """Return a number of the head, 0 where it is not written."""
        return int(self.raw.get(name) or 0)

    def word(self, name: str) -> str:
        """Return a word of the head, empty where it is not written."""
        return str(self.raw.get(name) or "")

    def age(self, since_ms: int | None) -> int | None:
        """Return how long ago that was, None when it is not known."""
        return None if not since_ms else max(0, self.now_ms - since_ms)


async def read_standing(shard: Shard, sid: str) -> Standing | None:
    """Return where the session with this key part stands, or None when there is none.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    reply = await shard.run("explain", sid)
    return None if reply is None else parse_standing(orjson.loads(reply), shard=shard.n, sid=sid)


def parse_standing(f: dict[str, Any], *, shard: int = 0, sid: str = "") -> Standing:
    """Return what the script said of the session with this key part, in types."""
    return Standing(
        session=f["id"],
        state=f["st"],
        now_ms=f["now"],
        tick_ms=_whole(f.get("tick")),
        amnesty_ms=int(f["amnesty"]),
        quantum_ms=int(f["quantum"]),
        holder=_holder(f.get("holder")),
        calls=tuple(_call(c, shard=shard, sid=sid) for c in _list(f["calls"])),
        inbox=_queue(f["inbox"]),
        next=_queue(f["next"]),
        backlog={name: int(value) for name, value in f["backlog"].items()},
        room=_room(f["room"]),
        lanes=tuple(Lane(x["lane"], int(x["due"]), int(x["last"]) - int(x["sent"]), _whole(x.get("since"))) for x in _list(f["lanes"])),
        raw=f,
    )


def _list(value: Any) -> list[dict[str, Any]]:
    """Return a list; the script cannot tell an empty one from an empty object."""
    return cast("list[dict[str, Any]]", value) if isinstance(value, list) else []


def _whole(value: Any) -> int | None:
    return None if value is None else int(float(value))


def _holder(f: dict[str, Any] | None) -> Holder | None:
    if not f:
        return None
    lease = _whole(f.get("lease"))
    return Holder(f["worker"], f.get("host"), f.get("pid"), None if lease == -1 else lease, dead=lease == -1)


def _call(f: dict[str, Any], *, shard: int, sid: str) -> OpenCall:
    of_people = f["k"] in ("approval", "question")
    return OpenCall(
        call=f["c"],
        tool=f["tool"],
        kind=f["k"],
        state=f["s"],
        awaited=f.get("aw") == 1,
        since_ms=_whole(f.get("since")),
        until_ms=_whole(f.get("dl")),
        relays=int(f.get("re") or 0),
        tries=int(f.get("tr") or 0),
        task=_holder(f.get("task")),
        of_open_turn=bool(f.get("open_turn")),
        approval=approval_id(shard, store_key(sid, int(f.get("ord") or 0)), f["c"]) if of_people else None,
        asked=orjson.loads(f["asked"]) if f.get("asked") else {},
        mode=f.get("mo") or "run",
        not_before_ms=_whole(f.get("nb")),
        unread=int(f.get("un") or 0),
        progress=read_progress(f.get("pg")),
    )


def _queue(f: dict[str, Any]) -> Queue:
    return Queue(f["n"], f["wake"], _whole(f.get("oldest")), _whole(f.get("due")), bool(f.get("window")))


def _room(f: dict[str, Any]) -> Room:
    return Room(
        place=f.get("place"),
        flows_ahead=f.get("flows_ahead"),
        blocked=f.get("blocked"),
        used=f["used"],
        most=int(f["max"]),
        resources=tuple(Resource(r["name"], r["used"], _whole(r.get("limit"))) for r in _list(f["resources"])),
        pool=f["pool"],
        pool_capacity=int(f["pool_capacity"]),
        home_capacity=int(f["home_capacity"]),
        agent_capacity=int(f["agent_capacity"]),
        servers=tuple(Server(w["serial"], w["free"], w["schema"]) for w in _list(f["workers"])),
        schema=int(f["schema"]),
    )
