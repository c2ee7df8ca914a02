"""A parent and its children on a real server, with the relay that stands between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from platforms.children import Children
from platforms.relays import relay_once
from tests.protocol.scene import DAY_MS, Scene
from turnyard.errors import StoreUnavailable
from turnyard.records.commit import NewCall, Park, TurnView
from turnyard.records.ids import call_id, child_session
from turnyard.records.jobs import Job
from turnyard.records.log import LogRecord
from turnyard.records.manifest import Manifest
from turnyard.state.agents import publish
from turnyard.state.children import read_child_call
from turnyard.state.jobs import read_job
from turnyard.state.lanes import LEASE_MS, LaneItem
from turnyard.state.yard import Shard


class Dying(Children):
    """A relay that dies once it has carried `steps` records, before it says so."""

    steps = 0

    async def carry(self, shard: Shard, item: LaneItem, record: LogRecord) -> None:
        await super().carry(shard, item, record)
        self.steps -= 1
        if self.steps < 0:
            raise SystemExit


@dataclass
class Family:
    """Two agents, one worker that runs both, and a relay. The parent's session is `s`."""

    scene: Scene
    owner: str
    relay: Children
    made: list[NewCall] = field(default_factory=list[NewCall])

    @classmethod
    async def of(cls, scene: Scene, **options: Any) -> Family:
        for name in ("bot", "kid"):
            await publish(scene.yard, Manifest(name, "1"))
        owner = await scene.worker(agents={"bot": 0, "kid": 0})
        return cls(scene, owner, Children(scene.yard, **options))

    def calls(self, view: TurnView, n: int = 1, *, agent: str = "kid", args: Any = None, awaited: bool = True) -> list[NewCall]:
        """Return n calls of a child agent, as the next commit on `view` would declare them."""
        names = [call_id(view.store, view.turn, view.rev + 1, i) for i in range(n)]
        given = [{"input": f"task {i}"} if args is None else args for i in range(n)]
        return [
            NewCall(name, "child", {"name": agent, "args": a, "provider_id": name}, awaited) for name, a in zip(names, given, strict=True)
        ]

    async def parent(self, n: int = 1, *, session: str = "s", ending: Any = "park", deadline_ms: int = DAY_MS, **more: Any) -> TurnView:
        """A turn whose model asked n children, which are parked."""
        view = await self.scene.open_turn(self.owner, session=session, **({"agent": "bot"} if session == "s" else {"agent": "kid"}))
        return await self.ask(view, n, ending=ending, deadline_ms=deadline_ms, **more)

    async def ask(self, view: TurnView, n: int = 1, *, ending: Any = "park", deadline_ms: int = DAY_MS, **more: Any) -> TurnView:
        """The model of a turn asks n children, which are parked."""
        self.made = self.calls(view, n, **more)
        view = await self.scene.ask(view, *self.made)
        return await self.scene.commit(view, park=tuple(Park(made.id, deadline_ms) for made in self.made), ending=ending)

    async def carry(self, *, relay: Children | None = None) -> int:
        """Carry all that is due in the lane on every shard; return how many stores that were."""
        carried = 0
        for shard in self.scene.yard.shards:
            while found := await relay_once(shard, relay or self.relay):
                carried += found
        return carried

    async def carry_and_die(self, steps: int) -> None:
        """Carry so many records, and die; the loan of what was not given back ends."""
        dying = Dying(self.scene.yard)
        dying.steps = steps
        for shard in self.scene.yard.shards:
            try:
                await relay_once(shard, dying)
            except (SystemExit, StoreUnavailable):
                break
        await self.scene.pass_ms(LEASE_MS + 1)

    def child(self, i: int = 0, *, parent: str = "s") -> str:
        """Return the session of the i-th child."""
        return child_session("default", parent, self.made[i].id)

    async def child_job(self, i: int = 0, *, parent: str = "s") -> Job | None:
        """Return the job of the i-th child, None when it was never started."""
        shard = self.scene.shard(parent)
        asked = await read_child_call(shard, f"{self.scene.sid(parent)}.0", self.made[i].id)
        assert asked is not None
        return await read_job(self.scene.yard, asked.job(len(self.scene.yard.shards)), tenant="default")

    async def start(self, i: int = 0) -> TurnView:
        """The turn of the i-th child begins."""
        return await self.scene.start(self.owner, self.child(i))

    async def finish(self, i: int = 0, text: str | None = None) -> None:
        """The i-th child answers."""
        await self.scene.reply(await self.start(i), text or f"answer {i}")

    async def woken(self) -> TurnView:
        """The parent's turn goes on."""
        return await self.scene.start(self.owner)

    def results(self, view: TurnView) -> list[str]:
        """Return what the calls brought, as the model reads it, in its order."""
        return [r.body.get("content", r.outcome) for r in view.entries if r.type == "tool/result"]
