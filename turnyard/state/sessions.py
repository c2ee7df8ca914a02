"""A session as people see it, read from its head alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from turnyard.records.approvals import approval_id
from turnyard.records.ids import session_key, store_key
from turnyard.state.calls import read_progress
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.state.yard import Shard, Yard

SHOWN_STATE = {"idle": "idle", "ready": "ready", "assigned": "ready", "running": "running", "parked": "parked"}


@dataclass(frozen=True, slots=True)
class ParkedCall:
    """A call that waits outside, or a delay, which has no tool. `deadline_ms` is None when its row does not say.

    `request` is what people are asked; with it `approval` is the id by which they answer. `progress` is what its task last said
    of it: {"fraction", "note", "at"} (ms), None when it said nothing.
    """

    call: str
    tool: str
    kind: str
    awaited: bool
    deadline_ms: int | None
    since_ms: int | None = None
    approval: str | None = None
    request: dict[str, Any] = field(default_factory=dict[str, Any])
    progress: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SessionView:
    """What a session is now. `state` is idle, ready, running or parked; `store` its current history's key part."""

    id: str
    key: str
    tenant: str
    state: str
    agent: str
    user: str
    platform: str
    turn: str | None
    rev: int
    epoch: int
    store: str
    ordinal: int
    last_seq: int
    entries: int
    inbox: int
    paused: bool
    holder: str | None
    attempt: int
    created_ms: int
    updated_ms: int
    title: str | None = None
    pool: str = "default"
    begun_ms: int = 0
    parked: list[ParkedCall] = field(default_factory=list[ParkedCall])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    metadata: dict[str, str] = field(default_factory=dict[str, str])


async def read_session(yard: Yard, *, tenant: str, session: str) -> SessionView | None:
    """Return a session of a tenant by its readable id, or None when it has none.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    sid = session_key(tenant, session)
    return await read_by_key(yard.shard_for(sid), sid)


async def read_by_key(shard: Shard, sid: str) -> SessionView | None:
    """Return the session with this key part, or None."""
    with reading(f"session {sid}"):
        head = {text(k): v for k, v in (await shard.redis.hgetall(shard.keys.head(sid))).items()}
        if "id" not in head:
            return None
        updated = await shard.redis.zscore(shard.keys.index(text(head["tn"])), sid)
        current = text(head.get("ts")) or text(head.get("so")) or "0"
        store = store_key(sid, int(current))
        parked = await _parked(shard, store)
        length = await shard.redis.xlen(shard.keys.log(store))
    return _view(sid, store, head, parked, length, int(updated or 0))


def _view(sid: str, store: str, head: dict[str, bytes], parked: list[ParkedCall], length: int, updated_ms: int) -> SessionView:
    ordinal = int(store.partition(".")[2])
    return SessionView(
        id=text(head["id"]),
        key=sid,
        tenant=text(head["tn"]),
        state=SHOWN_STATE[text(head.get("st")) or "idle"],
        agent=text(head["ag"]),
        user=text(head.get("us")),
        platform=text(head.get("pf")),
        turn=text(head.get("tu")) or None,
        rev=int(head.get("rv", 0)),
        epoch=int(head.get("ep", 0)),
        store=store,
        ordinal=ordinal,
        last_seq=int(head.get(f"sq:{ordinal}", 0)),
        entries=length,
        inbox=int(head.get("q", 0)),
        paused=head.get("pz") == b"1",
        holder=text(head.get("ow")) or None,
        attempt=int(head.get("at", 0)),
        created_ms=int(head.get("cr", 0)),
        updated_ms=updated_ms,
        pool=text(head.get("po")) or "default",
        begun_ms=int(float(head.get("bg", 0))),
        parked=parked,
        usage={k[2:]: int(v) for k, v in head.items() if k.startswith("u:")},
    )


async def _parked(shard: Shard, store: str) -> list[ParkedCall]:
    key = shard.keys.calls(store)
    names = [c for c in text(await shard.redis.hget(key, "_")).split(",") if c]
    if not names:
        return []
    fields = [name + suffix for name in names for suffix in ("", ":q", ":g")]
    found: list[bytes | None] = await shard.redis.hmget(key, fields)
    calls: list[ParkedCall] = []
    for name, raw, asked, said in zip(names, found[::3], found[1::3], found[2::3], strict=True):
        row: dict[str, Any] = orjson.loads(raw) if raw else {}
        if row.get("s") == "parked" and not row.get("o"):
            calls.append(await _call(shard, store, name, row, asked, said))
    return calls


async def _call(shard: Shard, store: str, call: str, row: dict[str, Any], *kept: bytes | None) -> ParkedCall:
    asked, said = kept
    tool, called_ms = await _tool(shard, store, row["q"]) if "q" in row else ("", None)
    of_people = row["k"] in ("approval", "question")
    since = row.get("si") or called_ms
    return ParkedCall(
        call=call,
        tool=tool,
        kind=row["k"],
        awaited=row["aw"] == 1,
        deadline_ms=int(row["dl"]) if "dl" in row else None,
        since_ms=int(since) if since else None,
        approval=approval_id(shard.n, store, call) if of_people else None,
        request=orjson.loads(asked) if of_people and asked else {},
        progress=read_progress(said),
    )


async def _tool(shard: Shard, store: str, seq: int) -> tuple[str, int | None]:
    """Return the name of the tool that a record calls, and when it did."""
    found = await shard.redis.execute_command("XRANGE", shard.keys.log(store), f"{int(seq)}-0", f"{int(seq)}-0")
    if not found:
        return "", None
    fields = {text(k): v for k, v in found[0][1].items()}
    return orjson.loads(fields.get("b", b"{}")).get("name", ""), int(fields["at"]) if "at" in fields else None


async def list_sessions(yard: Yard, *, tenant: str, limit: int = 50, before_ms: int | None = None) -> list[SessionView]:
    """Return a tenant's sessions, latest arrival first; `before_ms` is the `updated_ms` to go on after.

    Sessions of the same millisecond stay together, so that none is between two pages: a page may be longer than `limit`.
    """
    highest = f"({before_ms}" if before_ms is not None else "+inf"
    found = await _listed(yard, tenant, highest, "-inf", limit)
    found.sort(key=lambda row: -row[0])
    page = found[:limit]
    if len(found) >= limit and page:
        last = page[-1][0]
        page = [row for row in page if row[0] != last] + await _listed(yard, tenant, last, last, -1)
    views = [await read_by_key(shard, sid) for _, shard, sid in page]
    return [view for view in views if view is not None]


async def _listed(yard: Yard, tenant: str, highest: str | float, lowest: str | float, most: int) -> list[tuple[float, Shard, str]]:
    found: list[tuple[float, Shard, str]] = []
    for shard in yard.shards:
        with reading(f"sessions of {tenant}"):
            key = shard.keys.index(tenant)
            rows = await shard.redis.zrevrangebyscore(key, highest, lowest, start=0, num=most, withscores=True)
        found += [(score, shard, text(sid)) for sid, score in rows]
    return found
