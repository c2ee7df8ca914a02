"""A load that stays the same: turns that go every way a turn can go, over days of held time, and what the server keeps of them.

Sessions are as many from the first to the last turn. What ends by a TTL is ended here, because the held clock moves no TTL.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable

from tests.protocol.scene import DAY_MS, OK, SECRET, Scene, call
from turnyard.records.commit import Answer, Park, TurnView
from turnyard.records.ids import hash_secret
from turnyard.state import fleet
from turnyard.state.fleet import Assignment
from turnyard.state.keys import LIFETIMES
from turnyard.state.lanes import sent, take_lane

SESSIONS = 20
DEADLINE_MS = 600_000
DEAD_BYTES = 5_000
UNREADABLE = 10
LANES = ("slack", "arq")
# Of ten sessions: whose callback is answered after its deadline. The third one's never is.
LATE = 5
_STEPS_BYTES = 256
_CLASSES = {pattern: re.compile(pattern) for pattern in LIFETIMES}


class Steady:
    """Twenty sessions that have a turn each, again and again; `round_ms` is how far time moves meanwhile."""

    def __init__(self, scene: Scene, owner: str, lifter: str, round_ms: int) -> None:
        self.scene = scene
        self.owner = owner
        self.lifter = lifter
        self.half_ms = round_ms // 2
        self.turns = 0
        self._rounds = 0
        self._ends: dict[bytes, int] = {}

    @classmethod
    async def start(cls, scene: Scene, *, round_ms: int) -> Steady:
        shard = scene.yard.shards[0]
        await shard.redis.hset(shard.keys.limits, "dead:cap", DEAD_BYTES)
        return cls(scene, await scene.worker(capacity=100), await scene.worker(role="lifted"), round_ms)

    async def run(self, turns: int) -> None:
        """Take so many more turns, and be at rest."""
        upto = self.turns + turns
        while self.turns < upto:
            await self._round()
        await self._pass()
        await self._expire()

    async def _round(self) -> None:
        scene, names = self.scene, [f"s{i}" for i in range(SESSIONS)]
        for name in names[::4]:
            await scene.notice("news", session=name)
        await asyncio.gather(*(scene.say(f"hello {self.turns}", session=name) for name in names))
        await asyncio.gather(*(scene.say(f"again {self.turns}", session=name, mode="follow_up") for name in names[::5]))
        for _ in range(UNREADABLE):
            await scene.yard.redis.xadd(scene.yard.shards[0].keys.ingress, {"v": "1", "kind": "?"})
        await scene.dispatch()
        views = await self._begin(names)
        await asyncio.gather(*(self._go(i, view) for i, view in enumerate(views)))
        await asyncio.gather(*(self._answer(i, view) for i, view in enumerate(views) if i % 10 != LATE))
        await self._pass()
        await asyncio.gather(*(self._answer(i, view) for i, view in enumerate(views) if i % 10 == LATE))
        for _ in range(4):
            await scene.dispatch()
            again = [view for view in await self._begin(names) if view is not None]
            await asyncio.gather(*(self._end(view) for view in again))
        await self._deliver()
        await self._pass()
        self._rounds += 1
        if self._rounds % 3 == 0:
            await self._expire()

    async def _begin(self, names: Iterable[str]) -> list[TurnView | None]:
        taken = [(name, await self.scene.take(self.owner, name)) for name in names]
        return list(await asyncio.gather(*(self._begin_one(name, found) for name, found in taken)))

    async def _begin_one(self, name: str, found: Assignment | None) -> TurnView | None:
        return None if found is None else await self.scene.begin_as(self.owner, found.epoch, name)

    async def _go(self, i: int, view: TurnView | None) -> None:
        """Take a turn one step in its own way: it is over, or waits for something."""
        assert view is not None, f"s{i} is {await self.scene.state(f's{i}')}"
        scene = self.scene
        way = i % 10
        kind = {2: "callback", 3: "callback", 4: "callback", 5: "callback", 6: "approval", 7: "lift"}.get(way)
        if kind is None:
            await self._plain(way, view)
            return
        made = call(view, 0, kind, awaited=way not in (4, 5, 7))
        view = await scene.ask(view, made)
        if way in (4, 5, 7):
            lanes = ("arq",) if kind == "lift" else ()
            view = await scene.launch(view, made.id, deadline_ms=DEADLINE_MS, secret=kind != "lift", lanes=lanes, claim=True)
            await self._end(view)
        else:
            await scene.commit(view, park=(Park(made.id, DEADLINE_MS, hash_secret(SECRET)),), ending="park")

    async def _plain(self, way: int, view: TurnView) -> None:
        if way == 8:
            await self.scene.commit(view, ending="finish", closing=True, failure={"code": "model_error", "message": "no", "ref": "r"})
            self.turns += 1
        elif way == 9:
            await self.scene.control("cancel", session=self._name(view))
            await self.scene.dispatch()
            await self.scene.commit(view, ending="finish", closing=True)
            self.turns += 1
        else:
            await self._end(view)

    async def _answer(self, i: int, before: TurnView | None) -> None:
        """Answer what the session left open: in time, too late, or not at all."""
        assert before is not None
        way, session, made = i % 10, f"s{i}", call(before, 0).id
        if way in (2, 4, LATE):
            await self.scene.outcome(before, made, session=session)
        elif way == 6:
            await self.scene.outcome(before, made, "deny", session=session, secret_hash=None)
        elif way == 7:
            task = f"{made}-{self.turns}"
            await self.scene.begin_row(before, made, owner=self.lifter, task=task)
            await self.scene.outcome(before, made, session=session, owner=self.lifter, task=task)

    async def _end(self, view: TurnView) -> None:
        """Answer what is asked, and end the turn; one that goes on with what came meanwhile ends again."""
        while not view.ended:
            for row in [row for row in view.rows if row.outcome is None]:
                view = await self.scene.commit(view, append=(Answer(row.call, "error", OK),))
            self.turns += 1
            view = await self.scene.reply(view, "well said", lanes=("slack",))

    async def _deliver(self) -> None:
        shard = self.scene.yard.shards[0]
        for lane in LANES:
            while items := await take_lane(shard, lane):
                for item in items:
                    await sent(shard, lane, item)

    async def _pass(self) -> None:
        """Let half a round go by: deadlines come, leases are renewed."""
        shard = self.scene.yard.shards[0]
        await self.scene.pass_ms(self.half_ms)
        for owner in (self.owner, self.lifter):
            await fleet.beat(shard, owner, held=-1, lease_ms=DAY_MS)
        await self.scene.tick()
        await self.scene.dispatch()

    async def _expire(self) -> None:
        """End what its TTL has ended by the held clock."""
        redis = self.scene.yard.redis
        keys = await redis.keys("ty:*")
        pipe = redis.pipeline(transaction=False)
        for key in keys:
            pipe.pttl(key)
        for key, ms in zip(keys, await pipe.execute(), strict=True):
            if ms > 0:
                self._ends.setdefault(key, self.scene.now_ms + ms)
        gone = [key for key, at_ms in self._ends.items() if at_ms <= self.scene.now_ms]
        for key in gone:
            del self._ends[key]
        if gone:
            await redis.delete(*gone)

    def _name(self, view: TurnView) -> str:
        return view.head["session"]


def grown(first: Counter[str], second: Counter[str], *, content: int) -> dict[str, float]:
    """Return by class how much more is kept after twice as many turns, as a ratio; `content` is what logs held at the start.

    A log grows with what is said in it for as long as its session lives, so for logs it is the growth of one half by the other's. Memory
    comes in steps: a few of them, whatever the size of the class, are no growth.
    """
    ratios: dict[str, float] = {}
    for name in second:
        if name.endswith(" log"):
            ratios[name] = (second[name] - first[name]) / (first[name] - content)
        elif second[name] > _STEPS_BYTES:
            ratios[name] = (second[name] - _STEPS_BYTES) / max(first[name], 1)
    return ratios


async def kept_bytes(scene: Scene) -> Counter[str]:
    """Return what the server keeps by class of key; a key of no class is under its own name."""
    redis = scene.yard.redis
    keys = [key for key in await redis.keys("*") if not key.endswith(b"test:now")]
    pipe = redis.pipeline(transaction=False)
    for key in keys:
        pipe.memory_usage(key, samples=0)
    found: Counter[str] = Counter()
    for key, size in zip(keys, await pipe.execute(), strict=True):
        found[class_of(key.decode())] += size or 0
    return found


def class_of(key: str) -> str:
    """Return the row of LIFETIMES that a key belongs to, its logs and its rows apart."""
    row = next((pattern for pattern, compiled in _CLASSES.items() if compiled.fullmatch(key)), None)
    if row is None:
        return key
    return f"{row} {key.rpartition(':')[2]}" if ":h:" in key or ":s:" in key else row
