"""A worker's side of a turn: begin it, and commit one transition after the other.

A `TurnView` is what the worker may believe; each begin and commit returns the next one. A reply that was lost is asked
for again until it is known, because nothing else may be done before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from turnyard.errors import Diverged, FenceLost, StoreUnavailable
from turnyard.records.commit import Answer, Clear, Commit, Note, Park, Part, Row, TurnView, encode_state
from turnyard.records.ids import new_turn_id
from turnyard.records.log import ASSISTANT, CALL, CLEARED, ENTRIES, RESULT, LogRecord, parse_record, unfolds, visible
from turnyard.state.reads import reading, text
from turnyard.state.scripts import StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnyard.records.live import Live
    from turnyard.state.yard import Shard

_PAGE = 200
_LIVE_TTL_S = 60
_LIVE_LENGTH = 1000
_PATIENCE_S = 8.0  # below a lease: after that the turn is somebody else's anyway


async def begin(shard: Shard, session: str, *, epoch: int, owner: str, serial: int, known: TurnView | None = None) -> TurnView | None:
    """Take an assigned session, or answer again for one this owner already runs. None: not ours, drop it.

    `serial` is that of the session's agent as this worker runs it. `known` is the last view this worker had of the
    session; what it holds is not sent again when nothing happened since. A view with `ended` has nothing to do.

    Raises:
        StoreUnavailable: no answer; the assignment comes back by itself, or the next beat names it.
    """
    cached = known is not None and known.last_seq > 0
    args = [session, epoch, owner, new_turn_id(), serial]
    args += [known.store, known.last_seq, known.mark] if cached and known else ["", 0, ""]
    reply = await shard.run("begin", *args)
    if reply[0] == b"FENCED":
        return None
    base = known.entries if known is not None and int(reply[7]) else ()
    return await _view(shard, session, reply, base=base, mine=frozenset(), mark="")


async def commit(shard: Shard, view: TurnView, owner: str, change: Commit) -> TurnView:
    """Make one transition of the turn `view` shows; return what it shows then.

    Raises:
        FenceLost: the session is somebody else's; drop the turn.
        Diverged: the session is not as `view` says; drop it and begin again.
        StateTooLarge: the turn's state is over its limit; nothing was sent.
        StoreFull: the server takes nothing new; commit an ending instead.
        StoreUnavailable: the outcome stayed unknown for too long; the lease is as good as lost, drop the turn.
    """
    k, base = view.rev + 1, view.last_seq
    payload, bodies = _payload(change, view.serial)
    following = new_turn_id() if change.ending == "finish" else ""  # a finish may open the next turn; randomness is not free
    args = [view.session, view.epoch, owner, k, base, following, payload, *bodies]
    # A mark that is lost lets a tool run twice: no effect may begin before the mark is as safe as an accepted message.
    reply = await _until_known(shard, args, oom=change.ending != "none", durable=bool(change.start))
    code = text(reply[0])
    if code == "FENCED":
        raise FenceLost(f"session {view.session}: epoch {view.epoch} is over; another worker owns it")
    if code == "DIVERGED":
        raise Diverged(f"session {view.session}: the log is not as this worker knows it; begin again")
    if code == "AWAITS":
        return replace(view, code="AWAITS")
    entries = view.entries
    if code == "OK":
        entries = visible(entries, list(_own(change, view, first=int(reply[7]), upto=int(reply[6]))))
    mark = f"{view.epoch}:{owner}:{k}:{text(reply[1][7])}"
    mine = (
        view.mine - {a.call for a in change.append if isinstance(a, Answer)} - {a.call for a in change.settle} - set(change.unstart)
    ) | set(change.start)
    return await _view(shard, view.session, reply, base=entries, mine=mine, mark=mark)


async def _until_known(shard: Shard, args: list[Any], *, oom: bool, durable: bool) -> Any:
    deadline = shard.clock.monotonic() + _PATIENCE_S
    while True:
        try:
            return await shard.run("commit", *args, oom=oom, durable=durable)
        except StoreFull:
            raise
        except StoreUnavailable:
            if shard.clock.monotonic() > deadline:
                raise
            await shard.clock.sleep(0.1)


def _payload(change: Commit, serial: int) -> tuple[bytes, list[bytes]]:
    """Return the change as JSON, and the bodies it names by number."""
    bodies: list[bytes] = []

    def body(value: dict[str, Any] | None) -> int | None:
        if value is None:
            return None
        return stored(orjson.dumps(value))

    def stored(raw: bytes) -> int:
        bodies.append(raw)
        return len(bodies)

    out: dict[str, Any] = {
        "append": [_part(part, body) for part in change.append],
        "park": [_parking(p, body) for p in change.park],
        "wait": [(w.id, w.kind, w.delay_ms) for w in change.wait],
        "settle": [(s.call, s.outcome, body(s.body) or 0) for s in change.settle],
        "failure": body(change.failure),
        "start": change.start,
        "tokens": change.tokens,
        "unstart": change.unstart,
        "lanes": change.lanes,
        "usage": change.usage,
        "claim": change.claim,
        "closing": change.closing,
        "low": change.low,
    }
    if change.state is not None:
        raw = encode_state(change.state)
        out["state"] = stored(raw) if raw else 0
    # What is empty is left out: the script pays for each field it parses.
    payload = {"ending": change.ending, "serial": serial, **{name: value for name, value in out.items() if value or name == "state"}}
    return orjson.dumps(payload), bodies


def _parking(p: Park, body: Any) -> tuple[Any, ...]:
    plain = (p.call, p.deadline_ms, p.secret_hash or "")
    anyone = 1 if (p.request or {}).get("scope") == "anyone" else None
    more = {
        "tk": p.task,
        "aw": 1 if p.awaited else None,
        "k": p.kind,
        "q": body(p.request),
        "an": anyone,
        "af": p.after_ms,
        "rp": body(p.ripe),
    }
    more = {name: value for name, value in more.items() if value is not None}
    return (*plain, more) if more else plain


def _part(part: Part, body: Any) -> dict[str, Any]:
    if isinstance(part, Clear):
        return {"t": "clear", "gk": part.group_key} | ({"un": 1} if part.unshown else {})
    if isinstance(part, Answer):
        out: dict[str, Any] = {"t": "answer", "c": part.call, "o": part.outcome}
        if part.body is not None:
            out["b"] = body(part.body)
        return out
    if isinstance(part, Note):
        return {"t": "note", "type": part.type, "entry": 1 if part.type in ENTRIES else 0, "b": body(part.body)}
    out = {"t": "say", "b": body(part.body)}
    if part.calls:
        out["calls"] = [
            {
                "id": c.id,
                "k": c.kind,
                "aw": int(c.awaited),
                "i": int(c.idempotent),
                "b": body(c.body),
                **({"qn": c.queue} if c.queue else {}),
                **({"tm": c.timeout_ms} if c.timeout_ms else {}),
            }
            for c in part.calls
        ]
    return out


def _own(change: Commit, view: TurnView, *, first: int, upto: int) -> Iterable[LogRecord]:
    """Yield the records this commit made, as the log holds them, up to where somebody else's word stands."""
    kinds = {row.call: row.kind for row in view.rows}
    seq = first
    for part in change.append:
        for record in _records(part, kinds):
            if seq > upto:
                return
            yield replace(record, seq=seq, epoch=view.epoch, turn=view.turn, step=view.rev + 1)
            seq += 1


def _records(part: Part, kinds: dict[str, Any]) -> list[LogRecord]:
    if isinstance(part, Clear):
        return [LogRecord(0, CLEARED, group_key=part.group_key)]
    if isinstance(part, Answer):
        return [LogRecord(0, RESULT, call=part.call, kind=kinds.get(part.call), outcome=part.outcome, body=part.body or {})]
    if isinstance(part, Note):
        return [LogRecord(0, part.type, body=part.body)]
    return [LogRecord(0, ASSISTANT, body=part.body), *(LogRecord(0, CALL, call=c.id, kind=c.kind, body=c.body) for c in part.calls)]


async def _view(shard: Shard, session: str, reply: list[Any], *, base: tuple[LogRecord, ...], mine: frozenset[str], mark: str) -> TurnView:
    head = reply[1]
    ended = not int(head[6])
    store = f"{session}.{text(head[3])}" if not ended else ""
    rows = tuple(_row(orjson.loads(raw)) for raw in reply[2])
    entries = base if ended else await _entries(shard, store, reply, base)
    unanswered = {row.call for row in rows if row.state == "started"}
    return TurnView(
        code="OK" if reply[0] == b"OK" else "ALREADY",
        session=session,
        store=store,
        turn=text(head[2]),
        epoch=int(head[0]),
        rev=int(head[1]),
        entries=entries,
        rows=rows,
        mine=frozenset(mine & unanswered),
        cancel=text(head[4]) or None,
        yield_=bool(int(head[5])),
        jobs=tuple(j for j in text(head[8]).split(",") if j),
        head={
            "tenant": text(head[9]),
            "session": text(head[10]),
            "agent": text(head[11]),
            "followed_for": text(head[12]),
            "attempt": text(head[14]),
            "user": text(head[16]),
            "platform": text(head[17]),
            "grants": text(head[22]) if len(head) > 22 else "",
        },
        ended=ended,
        ending=text(head[7]) or None,
        last_seq=int(head[18]),
        serial=int(head[15]),
        began=int(head[19]),
        mark=mark,
        now_ms=int(head[13]),
        state=orjson.loads(head[21]) if head[21] else {},
        active_ms=int(head[20]),
    )


async def _entries(shard: Shard, store: str, reply: list[Any], base: tuple[LogRecord, ...]) -> tuple[LogRecord, ...]:
    """Return what a model may see by now: what was known, and what the reply brings or says is to be read."""
    raw_records, more, last_seq, start = reply[3], int(reply[4]), int(reply[5]), int(reply[6])
    if text(reply[0]) == "ALREADY":
        base = tuple(e for e in base if e.seq <= start)
    if more:
        records = await _pages(shard, store, after=start, upto=last_seq)
    else:
        records = [parse_record(eid, fields) for eid, fields in raw_records]
    if unfolds(base, records):
        base, records = (), await _pages(shard, store, after=0, upto=last_seq)
    return visible(base, records)


def _row(r: dict[str, Any]) -> Row:
    return Row(
        call=r["c"],
        kind=r["k"],
        state=r["s"],
        awaited=r["aw"] == 1,
        outcome=r.get("o"),
        demoted=r.get("de") == 1,
        idempotent=r.get("i") == 1,
        decision=r.get("d"),
        attempt=int(r.get("at", 0)) or 1,
        decided=_decided(r) if r.get("d") == "allow" else None,
    )


def _decided(r: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = orjson.loads(r["db"]) if r.get("db") else {}
    return {**said, "by": r.get("by", ""), "at": int(r.get("da", 0))}


async def _pages(shard: Shard, store: str, *, after: int, upto: int) -> list[LogRecord]:
    out: list[LogRecord] = []
    while True:
        with reading(f"log of {store}"):
            page = await shard.redis.execute_command("XRANGE", shard.keys.log(store), f"({after}-0", f"{upto}-0", "COUNT", _PAGE)
        records = [parse_record(eid, flat(fields)) for eid, fields in page]
        out += records
        if len(records) < _PAGE:
            return out
        after = records[-1].seq


def flat(fields: dict[bytes, bytes] | list[bytes]) -> list[bytes]:
    """Return a record's fields as the flat list a script would answer with."""
    if isinstance(fields, list):
        return fields
    return [part for pair in fields.items() for part in pair]


async def write_live(shard: Shard, view: TurnView, items: Sequence[Live]) -> None:
    """Write deltas for who follows now; they go after a minute, and losing them loses nothing.

    Raises:
        StoreUnavailable: the server did not answer; the deltas are gone.
    """
    key = shard.keys.live(view.store)
    with reading(f"deltas of {view.store}"):
        async with shard.redis.pipeline(transaction=False) as pipe:
            for item in items:
                fields = {"u": item.turn, "s": item.step, "k": item.kind, "i": item.index, "b": item.text}
                pipe.execute_command("XADD", key, "MAXLEN", "~", _LIVE_LENGTH, f"{item.seq}-*", *flat_pairs(fields))
            pipe.expire(key, _LIVE_TTL_S)
            # A full server, or one that has heard of a later step already, refuses them: nothing is lost.
            await pipe.execute(raise_on_error=False)


async def followed(shard: Shard, sessions: Sequence[str]) -> dict[str, int]:
    """Return for how many more milliseconds each of these sessions (key parts) is followed; 0 when nobody does.

    It is what is left by the server's clock, so it means the same to a worker whose own clock is wrong.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading("who follows"):
        async with shard.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            for session in sessions:
                pipe.hget(shard.keys.head(session), "fu")
            (seconds, micros), *found = await pipe.execute()
    now_ms = seconds * 1000 + micros // 1000
    return {session: max(0, int(until or 0) - now_ms) for session, until in zip(sessions, found, strict=True)}


def flat_pairs(fields: dict[str, Any]) -> list[Any]:
    """Return a dict as a flat field, value list."""
    return [part for pair in fields.items() for part in pair]
