"""Walk a world with the model deciding, and make the server take every step with it.

After each step both shards are brought into one form and compared. Recording happens at the model's scripts, so whatever
actor calls one, the Lua gets the same call.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import redis

from tests.protocol import model
from tests.protocol.actors import FAULTY, Action, Config, act, enabled, new_world
from tests.protocol.model import Rules, State
from tests.protocol.redis_mirror import CODES, LOST, Mirror
from tests.protocol.redis_state import may_be_gone, of_model, of_redis


class Differs(AssertionError):
    """The server and the model disagree: the message says where, the path how to get there."""


class Twin:
    """A world and its mirror."""

    def __init__(self, client: redis.Redis, config: Config) -> None:
        client.flushall()
        self.mirror = Mirror(client, config.cap)
        self.rules = Rules(())
        self.config = config
        self.path: list[Action] = []
        for sid in config.sids:
            self.mirror.introduce(sid)
        with self._recorded():
            self.shard, self.env = new_world(config)
            self.shard["lost_limit"] = LOST
        self._settle_names()

    def _settle_names(self) -> None:
        for sid in self.shard["s"]:
            self.mirror.key(sid)

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[None]:
        """Give the server every script call that the actors make on the model."""
        names = ("accept", "dispatch", "begin", "commit", "begin_row", "register", "beat")
        real: dict[str, Callable[..., Any]] = {name: getattr(model, name) for name in names}
        for name in names:
            setattr(model, name, self._both(name, real[name]))
        try:
            yield
        finally:
            for name, function in real.items():
                setattr(model, name, function)

    def _both(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(shard: State, *args: Any, **kwargs: Any) -> Any:
            theirs = getattr(self, "_on_" + name)(shard, *args)
            ours = function(shard, *args, **kwargs)
            self._same_code(name, ours, theirs)
            return ours

        return call

    def _same_code(self, name: str, ours: Any, theirs: str | None) -> None:
        if theirs is None:
            return
        code = ours["code"] if isinstance(ours, dict) else ours
        expected = CODES.get(code, code)
        alike = {("late", "LATE"), ("duplicate", "conflict"), ("expired", "conflict"), ("FENCED", "GONE")}
        if name == "commit":
            # The server answers a repeat from the head alone, even to an owner that is gone: it did happen.
            alike.add(("ALREADY", "FENCED"))
        if theirs != expected and (theirs, expected) not in alike:
            raise Differs(f"{name}: the model answers {expected}, the server {theirs}; path {self.path}")

    def _on_accept(self, shard: State, rules: Rules, event: State) -> str | None:
        code = self.mirror.accept(event, shard)
        if code == "gone" and event["kind"] in ("outcome", "decision") and may_be_gone(shard["calls"][event["call"]]):
            # The model keeps every row. The mirror never tells the hash of a secret, by which the server keeps one that was not parked.
            return "conflict"
        return None if event["kind"] == "canceljob" else code

    def _on_dispatch(self, shard: State, rules: Rules) -> None:
        self.mirror.dispatch()

    def _on_begin(self, shard: State, rules: Rules, sid: str, epoch: int, owner: str) -> str:
        turns = shard["s"][sid]["turns"] + 1
        return self.mirror.begin(sid, epoch, owner, turns=turns, serial=shard["ver"].get(owner, 0))[0].decode()

    def _on_commit(self, shard: State, rules: Rules, request: State, trace: Any = None) -> str:
        head = shard["s"][request["sid"]]
        conflict = bool(head["tstore"]) and request["last"] != model.last_entry(shard["log"][head["tstore"]])
        last = int(
            self.mirror.redis.hget(
                self.mirror.keys.head(self.mirror.key(request["sid"])), f"le:{(head['tstore'] or '/0').partition('/')[2]}"
            )
            or 0
        )
        request = dict(request, lua_last=last + 1000 if conflict else last, lua_low=self._low_on_server(shard, request))
        reply = self.mirror.commit(request, turns=head["turns"] + 1, serial=shard["ver"].get(request["owner"], 0), calls=shard["calls"])
        return reply[0].decode()

    def _low_on_server(self, shard: State, request: State) -> int:
        """Return the seq that the entry has on the server from which a begin is to read; there, events and calls have seqs, too."""
        store = shard["s"][request["sid"]]["tstore"]
        if not request.get("low") or not store:
            return 0
        older = [entry for entry in shard["log"][store] if entry["kind"] != "event" and entry["seq"] < request["low"]]
        seqs = self.mirror.entries(request["sid"], store.partition("/")[2])
        return seqs[len(older)] if len(older) < len(seqs) else 0

    def _on_begin_row(self, shard: State, rules: Rules, call: str, relay: int, owner: str) -> str | None:
        return self.mirror.begin_row(call, relay, owner, shard) if call in shard["calls"] else None

    def _on_register(self, shard: State, owner: str, capacity: int, version: int = 0) -> None:
        lifted = capacity == 0
        self.mirror.register(owner, capacity, version, lifted=lifted)

    def _on_beat(self, shard: State, rules: Rules, owner: str, runs: Any) -> str:
        return self.mirror.beat(owner)[0].decode()

    def step(self, action: Action) -> None:
        """Take one step on both sides and compare."""
        self.path.append(action)
        name = action[0]
        if name == "take":
            before = [list(x) for x in self.shard["turns"]]
        self._time_on_server(action)
        with self._recorded():
            act(self.shard, self.env, self.rules, action)
        if name == "take":
            left = [list(x) for x in self.shard["turns"]]
            for assignment in before:
                if assignment not in left:
                    self.mirror.take(assignment[0], assignment[1])
        self._compare()

    def _time_on_server(self, action: Action) -> None:
        """Bring about on the server what the model does by name."""
        name, what = action[0], action[1] if len(action) > 1 else None
        on_server: dict[str, Callable[[], None]] = {
            "clock": lambda: self.mirror.clock(self.shard["now"] + 1),
            "due": lambda: self.mirror.window_due(what, self.shard),
            "fire": lambda: self.mirror.call_due(self.shard, what),
            "timeout": lambda: self.mirror.call_due(self.shard, what),
            "deadline": lambda: self.mirror.call_due(self.shard, what),
            "beginby": lambda: self.mirror.past_begin_by(what),
            "overdue": lambda: self.mirror.cancel_overdue(what),
            "again": lambda: self.mirror.relay_due(self.shard, what),
            "look": lambda: self.mirror.relay_due(self.shard, what),
            "tick_dead": lambda: self.mirror.expel(what, self.shard),
            "walk": lambda: self.mirror.expel(what, self.shard),
            "expel": lambda: self.mirror.expel(f"{what}{self.env['workers'][what]['inc']}", self.shard),
            "lexpel": lambda: self.mirror.expel(f"{what}{self.env['lifters'][what]['inc']}", self.shard),
        }
        if name in on_server:
            on_server[name]()

    def _compare(self) -> None:
        ours, theirs = of_model(self.shard), of_redis(self.mirror, self.shard)
        ours["rows"] = {call: row for call, row in ours["rows"].items() if call in theirs["rows"] or not may_be_gone(row)}
        if ours == theirs:
            return
        for part, mine in ours.items():
            other = theirs[part]
            if mine == other:
                continue
            if isinstance(mine, dict) and isinstance(other, dict):
                for key in sorted({*mine, *other}):
                    if mine.get(key) != other.get(key):
                        raise Differs(f"{part} of {key}:\n  model  {mine.get(key)}\n  server {other.get(key)}\n  path {self.path}")
            raise Differs(f"{part}:\n  model  {mine}\n  server {other}\n  path {self.path}")


def plan_is_known(shard: State, env: State, action: Action) -> bool:
    """Leave out what the two sides say differently by design: a job cancelled before its message came."""
    if action[0] != "accept":
        return True
    event = env["plan"][action[1]][env["pos"][action[1]]]
    return event["kind"] != "canceljob" or event["mid"] in shard["j"]


def walk(client: redis.Redis, config: Config, seed: int, *, steps: int) -> list[Action]:
    """Take a seeded random walk on both sides; return its path."""
    rnd = random.Random(seed)
    twin = Twin(client, config)
    for _ in range(steps):
        actions = [a for a in enabled(twin.shard, twin.env) if a[0] != "rewind" and plan_is_known(twin.shard, twin.env, a)]
        if not actions:
            break
        faults = [a for a in actions if a[0] in FAULTY]
        calm = [a for a in actions if a[0] not in FAULTY]
        twin.step(rnd.choice(faults) if faults and (not calm or rnd.random() < 0.12) else rnd.choice(calm))
    return twin.path
