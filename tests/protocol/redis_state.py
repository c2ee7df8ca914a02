"""What both sides say of the same shard, in one form that can be compared."""

from __future__ import annotations

from typing import Any

import orjson

from tests.protocol.model import INF, State, asks
from tests.protocol.redis_mirror import KINDS, SUMMARY, Mirror

TYPES = {"user/message": "user", "assistant/message": "assistant", "tool/result": "result", "notification": "notice", SUMMARY: "summary"}


def of_model(shard: State) -> dict[str, Any]:
    """Return the model's shard in the common form."""
    return {
        "sessions": {sid: _head(shard, sid, head) for sid, head in shard["s"].items()},
        "logs": {store: [_entry(e) for e in log if e["kind"] != "event"] for store, log in shard["log"].items()},
        "rows": {call: _row(shard, row) for call, row in shard["calls"].items()},
        "jobs": {mid: _job(job["state"], job["open"]) for mid, job in shard["j"].items()},
        "running": {sid: deadline == INF for sid, deadline in shard["running"].items()},
        "ready": list(shard["ready"]),
        "workers": sorted(shard["workers"]),
        "held": {owner: sorted(names) for owner, names in shard["w"].items() if names},
        "assignments": sorted([sid, epoch] for sid, epoch, _ in shard["turns"]),
        "asked": sorted(call for call, row in shard["calls"].items() if asks(row) and row["state"] == "parked" and row["outcome"] is None),
    }


def may_be_gone(row: dict[str, Any]) -> bool:
    """Tell whether the server may have forgotten a row: it was answered, and never waited outside."""
    return bool(row["answered"] and row["outcome"] and row["state"] != "parked")


def _job(state: str, opened: int) -> list[Any]:
    """Return a job's state, and its open calls where they count: the server starts counting when a turn leaves one behind."""
    return [state, None if state in ("queued", "running") else opened]


def _turn(number: int) -> str:
    return f"t{number}" if number else ""


def _head(shard: State, sid: str, head: State) -> dict[str, Any]:
    cancel = head["cancel"] if head["cancel"] and head["cancel"]["turn"] == head["turn"] else None
    return {
        "state": head["state"],
        "epoch": head["epoch"],
        "owner": head["owner"] if head["state"] == "running" else None,
        "store": head["store"].partition("/")[2],
        "tstore": (head["tstore"] or "").partition("/")[2] if head["turn"] else "",
        "turn": _turn(head["turn"]),
        "rev": head["step"],
        "awaiting": head["awaiting"],
        "cancel": [cancel["cause"], bool(cancel.get("strike"))] if cancel else None,
        "jobs": list(head["jobs"]),
        "paused": head["paused"],
        "tver": head["tver"],
        "state_of": head["state_of"],
        "unseen": {store.partition("/")[2]: _older(shard["log"][store], low) for store, low in head["low"].items()},
        "inbox": [_item(i) for i in head["inbox"]],
        "next": [_item(i) for i in head["next"]],
    }


def _older(log: list[State], low: int) -> int:
    return sum(1 for entry in log if entry["kind"] != "event" and entry["seq"] < low)


def _item(item: State) -> list[Any]:
    what = item.get("mid") or item.get("call") or item.get("group")
    more = item.get("outcome") or item.get("text") or ""
    return [
        item["kind"],
        what,
        item["store"].partition("/")[2],
        item["wake"],
        str(more),
        bool(item.get("late")),
        bool(item.get("steer")),
        item.get("due"),
    ]


def _entry(e: State) -> list[Any]:
    kind = "result" if e["kind"] == "note" else e["kind"]
    what = {
        "user": e.get("mid"),
        "assistant": e.get("calls"),
        "notice": str(e.get("text")),
        "summary": "",
        "result": e.get("call"),
        "note": e.get("call"),
    }[e["kind"]]
    return [
        kind,
        what,
        e.get("outcome") or "",
        e["epoch"],
        _turn(e["turn"]),
        bool(e.get("struck")),
        e["kind"] == "note",
        bool(e.get("late")),
    ]


def _row(shard: State, row: State) -> dict[str, Any]:
    return {
        "kind": KINDS[row["kind"]][0],
        "user": row["user"],
        "state": row["state"],
        "awaited": bool(row["awaited"]),
        "outcome": row["outcome"],
        "late": row["late"],
        "decision": row["decision"],
        "demoted": bool(row["demoted"]),
        "answered": bool(row["answered"]),
        "turn": _turn(row["turn"]),
        "task": [row["task"], str(row["tjob"])] if row["task"] else None,
        "tries": row["tries"],
        "relays": row["relays"],
        "mode": row["mode"],
        "off": row["off"] is not None,
        "answers": [len(row["raws"]), row["read"]],
        "struck": bool(row.get("struck")),
        "jobs": list(row["jobs"]),
    }


def of_redis(mirror: Mirror, like: State) -> dict[str, Any]:
    """Return the server's shard in the common form; `like` names what to look for."""
    r, p = mirror.redis, mirror.keys.prefix
    name = mirror.sids
    out: dict[str, Any] = {"sessions": {}, "logs": {}, "rows": {}, "jobs": {}}
    for sid in like["s"]:
        out["sessions"][sid] = _redis_head(mirror, sid)
    for store in like["log"]:
        sid, _, ordinal = store.partition("/")
        log, rows = _redis_log(mirror, f"{mirror.key(sid)}.{ordinal}")
        out["logs"][store] = log
        out["rows"].update(rows)
    for mid in like["j"]:
        state, opened = r.hmget(mirror.keys.job(mid), "st", "op")
        out["jobs"][mid] = _job(state.decode(), int(opened or 0))
    out["running"] = {name[k.decode()]: score == float("inf") for k, score in r.zrange(p + "running", 0, -1, withscores=True)}
    out["ready"] = [name[k.decode()] for k in r.zrange(f"{p}f:default/agent", 0, -1)]
    out["workers"] = sorted(k.decode() for k, score in r.zrange(p + "workers", 0, -1, withscores=True) if score != float("-inf"))
    out["held"] = {}
    for key in r.keys(p + "w:*"):
        if r.type(key) == b"set":
            out["held"][key.decode().rsplit(":", 1)[1]] = sorted(_member(m.decode(), name) for m in r.smembers(key))
    lists = [item.decode().split(" ") for key in r.keys(p + "turns:*") for item in r.lrange(key, 0, -1)]
    out["asked"] = sorted(member.decode().partition("!")[2] for member in r.zrange(p + "ap:default", 0, -1))
    out["assignments"] = sorted([name[sid], int(epoch)] for sid, epoch in lists)
    return out


def _member(member: str, name: dict[str, str]) -> str:
    return "c!" + member.rpartition("!")[2] if member.startswith("c!") else name[member]


def _redis_head(mirror: Mirror, sid: str) -> dict[str, Any]:
    key = mirror.key(sid)
    h = {k.decode(): v.decode() for k, v in mirror.redis.hgetall(mirror.keys.head(key)).items()}
    state, turn = h.get("st", "idle") or "idle", h.get("tu", "")
    cancel = [h.get("cc"), bool(h.get("ck"))] if turn and h.get("ct") == turn else None
    return {
        "state": state,
        "epoch": int(h.get("ep", 0)),
        "owner": h.get("ow") if state == "running" else None,
        "store": h.get("so", "0"),
        "tstore": h.get("ts", ""),
        "turn": turn,
        "rev": int(h.get("rv", 0)),
        "awaiting": int(h.get("aw", 0)),
        "cancel": cancel,
        "jobs": [j for j in h.get("jb", "").split(",") if j],
        "paused": h.get("pz") == "1",
        "tver": int(h.get("tv", 0)),
        "state_of": int(h["sb"]) if h.get("sb") else None,
        "unseen": {name[3:]: _unseen(mirror, sid, name[3:], int(low)) for name, low in h.items() if name.startswith("lo:")},
        "inbox": [_redis_item(f) for _, f in mirror.redis.xrange(mirror.keys.inbox(key))],
        "next": [_redis_item(f) for _, f in mirror.redis.xrange(mirror.keys.next(key))],
    }


def _unseen(mirror: Mirror, sid: str, ordinal: str, low: int) -> int:
    return sum(1 for seq in mirror.entries(sid, ordinal) if seq < low)


def _redis_item(raw: dict[bytes, bytes]) -> list[Any]:
    f = {k.decode(): v.decode() for k, v in raw.items()}
    what = f.get("m") or f.get("c") or f.get("gr")
    more = f.get("o") or (str(orjson.loads(f["b"])) if f["k"] == "notice" else "")
    due = int(float(f["du"])) if "du" in f else None
    return [f["k"], what, f["st"], f["w"] == "1", more, f.get("l") == "1", f.get("sj") == "1", due]


def _redis_log(mirror: Mirror, store: str) -> tuple[list[Any], dict[str, Any]]:
    entries: list[Any] = []
    struck: set[int] = set()
    seqs: list[int] = []
    for eid, raw in mirror.redis.xrange(mirror.keys.log(store)):
        f = {k.decode(): v.decode() for k, v in raw.items()}
        seqs.append(int(eid.split(b"-")[0]))
        if f["t"] == "strike":
            struck |= {int(n) for n in f["x"].split(",") if n}
        elif f["t"] == "tool/call":
            entries[-1][1].append(f["c"])
        elif f["t"] in TYPES:
            kind = TYPES[f["t"]]
            what: Any = {"user": f.get("j"), "assistant": [], "result": f.get("c"), "notice": _notice(f), "summary": ""}[kind]
            flags = f.get("f", "")
            entries.append([kind, what, f.get("o", ""), int(f["e"]), f["u"], seqs[-1], "a" in flags, "l" in flags])
    assert seqs == list(range(1, len(seqs) + 1)), f"log of {store} has a gap: {seqs}"
    for entry in entries:
        entry[5] = entry[5] in struck
    return entries, _redis_rows(mirror, store)


def _notice(f: dict[str, str]) -> str:
    body = orjson.loads(f.get("b", "0"))
    return str(body["tag"] if isinstance(body, dict) else body)


def _redis_rows(mirror: Mirror, store: str) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for key, raw in mirror.redis.hgetall(mirror.keys.calls(store)).items():
        call = key.decode()
        if call == "_" or ":" in call:
            continue
        r = orjson.loads(raw)
        rows[call] = {
            "kind": r["k"],
            "user": r.get("us", ""),
            "state": r["s"],
            "awaited": r["aw"] == 1,
            "outcome": r.get("o"),
            "late": r.get("la"),
            "decision": r.get("d"),
            "demoted": r.get("de") == 1,
            "answered": r.get("an") == 1,
            "turn": r["t"],
            "task": [r["tk"], r["tj"]] if r.get("tk") else None,
            "tries": r.get("tr", 1),
            "relays": r["re"],
            "mode": r.get("mo"),
            "off": r.get("nb") is not None,
            "answers": [r.get("wn", 0) - r.get("wc", 0), r.get("wc", 0)],
            "struck": r.get("sk") == 1,
            "jobs": list(r.get("j", ())),
        }
    return rows
