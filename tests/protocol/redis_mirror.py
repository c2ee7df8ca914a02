"""The same shard twice: the model's scripts, and the Lua on a real server, called with the same arguments.

Time is the model's: the Lua reads it from a key. What the model does by name (this worker is dead, this deadline is due) is
brought about on the server by moving that one score into the past.
"""

from __future__ import annotations

from typing import Any

import orjson
import redis

from tests.protocol.model import READ, State
from turnyard.records.ids import session_key
from turnyard.state.keys import Keys
from turnyard.state.scripts import Library

TENANT, AGENT, POOL = "default", "agent", "default"
CLOCK = "local function now() return tonumber(call('GET', P .. 'test:now') or '0') end\n"
KINDS = {
    "tool": ("plain", 0, 0),
    "par": ("parallel", 0, 0),
    "det": ("callback", 0, 0),
    "aw": ("callback", 1, 0),
    "ap": ("approval", 1, 0),
    "ax": ("approval", 1, 0),
    "al": ("approval", 1, 1),
    "qu": ("question", 1, 0),
    "pq": ("plain", 0, 0),
    "retry": ("retry", 1, 0),
    "li": ("lift", 1, 1),
    "ln": ("lift", 1, 0),
    "ld": ("lift", 0, 1),
    "lo": ("plain", 0, 0),
    "lx": ("plain", 0, 1),
    "po": ("lift", 1, 0),
    "cb": ("callback", 1, 0),
    "cd": ("callback", 0, 0),
}
FAR = 10**7
# What a call brings as it parks, by its kind and state.
PARKED_AS = {
    ("lo", "started"): {"tk": "1"},
    ("lx", "started"): {"tk": "1"},
    ("po", "open"): {"af": FAR},
    ("ax", "open"): {"an": 1},
    ("pq", "started"): {"k": "approval", "aw": 1},
    ("al", "allowed"): {"k": "lift", "aw": 1},
}
SUMMARY = "session/compaction"
ENTRIES = ("user/message", "assistant/message", "tool/result", "notification", SUMMARY)
LIMITS, LOST = "local DEATHS, LOST = 3, 5", 2
# The model takes one thing at a time from a dead worker, the oldest first; the server up to a hundred, in any order.
BATCH = "expelled + expel(owner, BATCH - expelled, known)", "expelled + expel(owner, 1, known)"
PICKED = "call('SRANDMEMBER', key, most - n)", "{call('GET', P .. 'test:picked') or nil}"
CODES = {202: "accepted", 404: "gone", 409: "conflict"}


class Mirror:
    """One shard on a real server, spoken to in the model's words."""

    def __init__(self, client: redis.Redis, cap: int) -> None:
        self.redis = client
        self.keys = Keys("0")
        self.library = Library(clock_lua=CLOCK)
        # Few walks lose a turn's host five times.
        assert LIMITS in self.library.source
        self.library.source = self.library.source.replace(LIMITS, f"local DEATHS, LOST = 3, {LOST}")
        for was, becomes in (BATCH, PICKED):
            assert was in self.library.source
            self.library.source = self.library.source.replace(was, becomes)
        self.sids: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.redis.hset(self.keys.limits, mapping={"max": cap, "begin_by": FAR, "quantum": FAR})
        self.clock(0)

    def clock(self, now: int) -> None:
        """Set the server's idea of time."""
        self.redis.set(self.keys.prefix + "test:now", now)

    def key(self, sid: str) -> str:
        """Return the key part of one of the model's sessions."""
        self.sids[session_key(TENANT, sid)] = sid
        return session_key(TENANT, sid)

    def run(self, name: str, *args: Any) -> Any:
        """Run a script."""
        function = self.library.function(name, oom=True)
        try:
            return self.redis.fcall(function, 1, self.keys.ingress, *args)
        except redis.exceptions.ResponseError as error:
            if str(error) != "Function not found":
                raise
        self.redis.function_load(self.library.source)
        return self.redis.fcall(function, 1, self.keys.ingress, *args)

    # accept

    def accept(self, event: State, shard: State) -> str:
        """Say what the model's event says; return the code in the model's words."""
        kind = event["kind"]
        if kind == "user":
            return self._user(event)
        if kind in ("raw", "later"):
            return self._before_outcome(event, shard)
        if kind in ("outcome", "decision"):
            sid, store = self._where(shard, event["call"])
            owner = event.get("owner", "")
            row = shard["calls"][event["call"]]
            task = str(row["tjob"]) if owner and row["task"] == owner else ""
            args = [event["call"], event["value"], orjson.dumps(event["value"]), "", owner, task, ""]
            return self.run("accept", "outcome", self.key(sid), store, *args)[0].decode()
        if kind == "canceljob":
            return self.run("accept", "job", event["mid"], "user", 0)[0].decode()
        if kind in ("notice", "clear"):
            fields = ["id", event["sid"], "tn", TENANT, "ag", AGENT, "po", POOL, "us", "", "pf", "", "dl", ""]
            body = orjson.dumps(event.get("text", 0))
            args = [event["id"], 1, 7, *fields, body, event["group"], "", int(kind == "clear")]
            return self.run("accept", "notice", self.key(event["sid"]), *args)[0].decode()
        turn = shard["s"][event["sid"]]["turn"]
        named = f"t{turn}" if kind == "cancel" and turn else ""
        how = [1, "all", int(bool(event.get("all")))]
        return self.run("accept", "control", self.key(event["sid"]), kind, event["id"], 1, named, *how)[0].decode()

    def _before_outcome(self, event: State, shard: State) -> str:
        sid, store = self._where(shard, event["call"])
        said = event["value"] if event["kind"] == "raw" else {"after_ms": 0 if event.get("now") else FAR if event["timed"] else None}
        whose = [event.get("owner", ""), str(event.get("job", ""))]
        args = [event["call"], event["kind"], orjson.dumps(said), "", *whose, ""]
        return self.run("accept", "outcome", self.key(sid), store, *args)[0].decode()

    def introduce(self, sid: str) -> None:
        """Make the session known without a message, as the model starts with it."""
        self.run(
            "accept",
            "notice",
            self.key(sid),
            "intro" + sid,
            1,
            7,
            *["id", sid, "tn", TENANT, "ag", AGENT, "po", POOL, "us", "", "pf", "", "dl", ""],
            b"0",
            "",
            "",
            1,
        )
        self.redis.delete(self.keys.ingress)

    def _user(self, event: State) -> str:
        mode, delay = event["mode"], 0
        if mode == "later":
            mode, delay = "steer", event.get("delay", 2)
        fields = {
            "id": event["sid"], "tn": TENANT, "ag": AGENT, "po": POOL, "us": event.get("user", "u"), "pf": "", "dl": "", "md": mode, "cw": "settled",
            "pr": 0, "as": int(event.get("asker", True)), "bh": "h", "nf": "", "me": "", "dy": delay, "wn": 2, "wx": 3,
        }  # fmt: skip
        flat = [part for pair in fields.items() for part in pair]
        return self.run("accept", "user", self.key(event["sid"]), event["mid"], len(fields), *flat, orjson.dumps(event["mid"]), 10_000)[
            0
        ].decode()

    def _where(self, shard: State, call: str) -> tuple[str, str]:
        sid, _, ordinal = shard["calls"][call]["store"].partition("/")
        return sid, ordinal

    # the rest of the scripts

    def dispatch(self) -> None:
        """Drain and admit."""
        self.run("dispatch", 64)

    def take(self, sid: str, epoch: int) -> bool:
        """Remove an assignment from the lists; tell whether it was there."""
        return any(self.redis.lrem(key, 1, f"{self.key(sid)} {epoch}") for key in self.redis.keys(self.keys.prefix + "turns:*"))

    def begin(self, sid: str, epoch: int, owner: str, *, turns: int, serial: int) -> list[Any]:
        """Begin; `turns` is the number of the turn that would open."""
        return self.run("begin", self.key(sid), epoch, owner, f"t{turns}", serial, "", 0, "")

    def commit(self, request: State, *, turns: int, serial: int, calls: State) -> list[Any]:
        """Commit what the model's worker commits."""
        change: dict[str, Any] = {"ending": request["ending"], "serial": serial, "append": [], "claim": bool(request["claim"])}
        bodies: list[bytes] = []
        for entry in request["append"]:
            if entry["kind"] == "assistant":
                named = [dict(zip(("k", "aw", "i"), KINDS[kind], strict=True), id=call) for call, kind in entry["calls"]]
                named = [call | {"qn": "q"} if kind in READ else call for call, (_, kind) in zip(named, entry["calls"], strict=True)]
                change["append"].append({"t": "say", "calls": named})
            elif entry["kind"] == "result":
                change["append"].append({"t": "answer", "c": entry["call"], "o": entry["outcome"]})
            elif entry["kind"] == "summary":
                bodies.append(orjson.dumps(len(entry["span"])))
                change["append"].append({"t": "note", "type": SUMMARY, "entry": 1, "b": len(bodies)})
                change["low"] = request["lua_low"]
        bodies.append(orjson.dumps(request["state"]))
        change["state"] = len(bodies)
        change["park"] = [self._parking(call, calls) for call in request["parks"]]
        change["wait"] = [[call, kind, FAR] for call, kind in request.get("waits") or []]
        change["start"] = [*([request["start"]] if request["start"] else []), *(request.get("starts") or [])]
        change["settle"] = [[call, outcome, 0] for call, outcome in request.get("settle") or []]
        change["unstart"] = list(request.get("unstart") or [])
        change["closing"] = bool(request.get("closing"))
        args = [self.key(request["sid"]), request["epoch"], request["owner"], request["k"], self._base(request), f"t{turns}"]
        return self.run("commit", *args, orjson.dumps(change), *bodies)

    def entries(self, sid: str, ordinal: str) -> list[int]:
        """Return the seqs of what the model counts as entries: the calls of an answer are part of it."""
        log = self.redis.xrange(self.keys.log(f"{self.key(sid)}.{ordinal}"))
        return [int(eid.partition(b"-")[0]) for eid, fields in log if fields[b"t"].decode() in ENTRIES]

    def _parking(self, call: str, calls: State) -> list[Any]:
        more = PARKED_AS.get((calls[call]["kind"], calls[call]["state"]))
        return [call, FAR, "", more] if more else [call, FAR, ""]

    def _base(self, request: State) -> int:
        return request["lua_last"]

    def begin_row(self, call: str, relay: int, owner: str, shard: State) -> str:
        """Begin a lifted task's row."""
        sid, store = self._where(shard, call)
        return self.run("begin_row", self.key(sid), store, call, owner, str(relay))[0].decode()

    def register(self, owner: str, capacity: int, version: int, *, lifted: bool) -> None:
        """Make an incarnation known."""
        facts = {"host": owner, "role": "lifted" if lifted else "worker", "pools": [POOL], "agents": {AGENT: version}, "capacity": capacity}
        self.run("beat", "join", owner, FAR, orjson.dumps(facts))

    def beat(self, owner: str) -> list[Any]:
        """Beat with a count that never agrees, so that all held comes back."""
        return self.run("beat", "beat", owner, FAR, -1, "")

    def tick(self, parts: str, *dead: str) -> None:
        """Do these parts of a tick."""
        self.run("tick", "dispatcher", parts, FAR, FAR, 0, len(dead), *dead)

    def expel(self, owner: str, shard: State) -> None:
        """Declare a worker dead, and take from it what the model takes first."""
        held = shard["w"].get(owner) or [""]
        self.redis.set(self.keys.prefix + "test:picked", self._member(held[0], shard))
        self.tick("", owner)

    def _member(self, name: str, shard: State) -> str:
        """Return how a worker's set names a session or a lifted task that the model names so."""
        task, _, call = name.partition("!")
        if not call:
            return self.key(task)
        sid, store = self._where(shard, call)
        return f"c!{self.key(sid)}.{store}!{call}"

    def past_begin_by(self, sid: str) -> None:
        """Let one assignment's begin-by pass."""
        self.redis.zadd(self.keys.prefix + "running", {self.key(sid): -1}, xx=True)
        self.tick("b")

    def call_due(self, shard: State, call: str) -> None:
        """Let one call's deadline pass."""
        sid, store = self._where(shard, call)
        self._only(f"c!{self.key(sid)}.{store}!{call}")

    def relay_due(self, shard: State, call: str) -> None:
        """Let one lift wait too long for somebody to begin it."""
        sid, store = self._where(shard, call)
        self._only(f"r!{self.key(sid)}.{store}!{call}", add=True)

    def cancel_overdue(self, sid: str) -> None:
        """Let one cancel go unanswered for too long."""
        self._only(f"x!{self.key(sid)}", add=True)

    def window_due(self, member: str, shard: State) -> None:
        """Let one delayed item or window come due; `member` is the model's name for it."""
        sid, _, what = member.partition("|")
        name = "c" + what[1:].partition("/")[2] if what.startswith("c" + sid + "/") else what
        self._only(f"s!{self.key(sid)}!{name}")

    def _only(self, member: str, *, add: bool = False) -> None:
        """Make `member` the only deadline that is due, tick, and put the others back."""
        key = self.keys.prefix + "deadlines"
        others = {m: score for m, score in self.redis.zrange(key, 0, -1, withscores=True) if m.decode() != member}
        for name in others:
            self.redis.zadd(key, {name: FAR * 2})
        if add or self.redis.zscore(key, member) is not None:
            self.redis.zadd(key, {member: -1})
        self.tick("d")
        for name, score in others.items():
            if self.redis.zscore(key, name) is not None:
                self.redis.zadd(key, {name: score})
