"""Slots come back whatever happened to the turn that held them, and nobody waits for ever behind those who are busy."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from tests.protocol.scene import SECRET, Scene, call
from turnyard.errors import FenceLost
from turnyard.records.commit import Answer, Commit, Park, Say, TurnView
from turnyard.records.ids import hash_secret, session_key
from turnyard.state import fleet, ingress
from turnyard.state.audit import audit
from turnyard.state.flows import dispatch, set_limits
from turnyard.state.lanes import sent, take_lane

FAILURE = {"code": "internal", "message": "it broke", "retryable": False, "ref": None}


class Way:
    """One session that was assigned, and the ways in which its turn gives up its slot."""

    def __init__(self, scene: Scene, session: str, job: str, owner: str) -> None:
        self.scene, self.session, self.job, self.owner = scene, session, job, owner

    async def _begin(self) -> TurnView:
        view = await self.scene.begin_as(self.owner, 1, self.session)
        assert view is not None
        return view

    async def _calls(self, kind: str, *, awaited: bool = False) -> tuple[TurnView, str]:
        view = await self._begin()
        made = call(view, 0, kind, awaited=awaited)
        return await self.scene.ask(view, made), made.id

    async def answered(self) -> None:
        await self.scene.reply(await self._begin())

    async def failed(self) -> None:
        await self.scene.commit(await self._begin(), ending="finish", closing=True, failure=FAILURE)

    async def failed_in_a_tool(self) -> None:
        view, made = await self._calls("plain")
        view = await self.scene.commit(view, start=(made,))
        await self.scene.commit(view, ending="finish", closing=True, failure=FAILURE)

    async def cancelled(self) -> None:
        view = await self._begin()
        await self.scene.control("cancel", session=self.session)
        await self.scene.dispatch()
        await self.scene.commit(view, ending="finish", closing=True)

    async def cancelled_and_never_closed(self) -> None:
        await self._begin()
        await self.scene.control("cancel", session=self.session)
        await self.scene.dispatch()

    async def cancelled_before_it_began(self) -> None:
        await ingress.cancel_job(self.scene.yard, self.job, tenant="default")

    async def timed_out(self) -> None:
        view, made = await self._calls("callback", awaited=True)
        await self.scene.commit(view, park=(Park(made, 1000, hash_secret(SECRET)),), ending="park")

    async def parked_and_answered(self) -> None:
        view, made = await self._calls("callback", awaited=True)
        view = await self.scene.park(view, made)
        await self.scene.outcome(view.store or f"{session_key('default', self.session)}.0", made, session=self.session)

    async def parked_too_late(self) -> None:
        view, made = await self._calls("callback", awaited=True)
        view = await self.scene.commit(view, tokens=((made, hash_secret(SECRET)),), start=(made,))
        await self.scene.outcome(view, made, session=self.session)
        view = await self.scene.park(view, made)
        await self.scene.reply(view)

    async def launched_and_left(self) -> None:
        view, made = await self._calls("callback")
        await self.scene.reply(await self.scene.launch(view, made, deadline_ms=1000))

    async def yielded(self) -> None:
        await self.scene.commit(await self._begin(), ending="yield")

    async def never_begun(self) -> None:
        """Its assignment lies in the list of a worker that does not take it."""

    async def refused_by_an_older_agent(self) -> None:
        await self.scene.yard.shards[0].redis.hset(self.scene.shard().keys.head(session_key("default", self.session)), "tv", 7)
        assert await self.scene.begin_as(self.owner, 1, self.session) is None
        await self.scene.yard.shards[0].redis.hset(self.scene.shard().keys.head(session_key("default", self.session)), "tv", 0)

    async def died(self) -> None:
        self.owner = await self.scene.worker(capacity=1)
        await self._begin()
        await self.scene.tick(self.owner, who="supervisor")

    async def died_on_a_full_server(self) -> None:
        self.owner = await self.scene.worker(capacity=1)
        await self._begin()
        async with self.scene.full_server():
            await self.scene.tick(self.owner, who="supervisor")

    async def paused(self) -> None:
        await self.scene.control("pause", session=self.session)
        await self.scene.dispatch()
        await self.scene.control("resume", session=self.session)

    async def came_back_to_a_lost_lease(self) -> None:
        zombie = self.owner = await self.scene.worker(capacity=1)
        view = await self._begin()
        await self.scene.tick(zombie, who="supervisor")
        with pytest.raises(FenceLost):
            await self.scene.commit(view, append=(Say({"text": "stale"}),), ending="finish", owner=zombie)


WAYS = sorted(name for name in vars(Way) if not name.startswith("_"))


@pytest.mark.spec("L23", "rival-38", "rival-39", "I10")
@pytest.mark.parametrize("seed", range(3))
async def test_slots_return_to_zero_whatever_became_of_the_turns(scene: Scene, seed: int) -> None:
    shard, ways = scene.yard.shards[0], WAYS * 3
    random.Random(seed).shuffle(ways)
    await set_limits(shard, max_concurrent_turns=len(ways), tenants={"default": len(ways)})
    owner = await scene.worker(capacity=len(ways))
    names = [f"s{i}" for i in range(len(ways))]
    jobs = [(await scene.say(session=name)).job or "" for name in names]
    while await scene.running() < len(names):
        await scene.dispatch()
    for way, name, job in zip(ways, names, jobs, strict=True):
        await getattr(Way(scene, name, job, owner), way)()
    # A turn that gave its slot up is in no slot from that moment on, whatever comes later.
    await scene.pass_ms(3001)
    await scene.tick(who="supervisor")
    assert await audit(scene.yard) == []
    await _drain(scene, names)
    assert await scene.running() == 0
    assert await shard.redis.keys("*:run:*") == [], "a share of a tenant, an agent or a pool is still taken"
    # All the room there ever was is there again.
    for i in range(len(names)):
        await scene.say(session=f"again{i}")
    for _ in range(8):
        await scene.dispatch()
    assert await scene.running() == len(names)


async def _drain(scene: Scene, names: list[str]) -> None:
    """Let time pass and a healthy worker end whatever is handed to it, until nothing is left to do."""
    shard = scene.yard.shards[0]
    for _ in range(40):
        await scene.pass_ms(1000)
        for info in await fleet.list_workers(scene.yard):
            await fleet.beat(shard, info.worker, held=-1)
        await scene.dispatch()
        await scene.tick()
        owner = await scene.worker(capacity=100)
        for name in names:
            head = await scene.head(name)
            if head["st"] == "assigned" and (view := await scene.begin_as(owner, int(head["ep"]), name)) is not None:
                with contextlib.suppress(FenceLost):
                    await _close(scene, view)
        await fleet.leave(shard, owner)
        if await scene.running() == 0 and {await scene.state(name) for name in names} == {"idle"}:
            return


async def _close(scene: Scene, view: TurnView) -> None:
    if view.ended:
        return
    if view.cancel:
        await scene.commit(view, ending="finish", closing=True)
        return
    while not view.ended:
        answers = tuple(Answer(row.call, "unknown") for row in view.rows)
        view = await scene.commit(view, append=(*answers, Say({"text": "bye"})), ending="finish")


STATES = ("running", "parked", "lifted", "waiting", "assigned", "delayed", "ready")
EACH = 143


@pytest.mark.spec("L19")
async def test_cancelling_a_thousand_sessions_in_every_state_leaves_nothing_that_keeps_trying(scene: Scene) -> None:
    """Seven states, 1,001 sessions; afterwards a tick costs what it costs in an empty deployment."""
    shard = scene.yard.shards[0]
    owner = await scene.worker(capacity=1100)
    await scene.tick()
    nothing = await _cost_of_a_tick(scene)
    jobs = {name: job for state in STATES for name, job in (await _crowd(scene, owner, state)).items()}
    for job in jobs.values():
        await ingress.cancel_job(scene.yard, job, tenant="default")
    await set_limits(shard, max_concurrent_turns=1100)
    for _ in range(10):
        await scene.dispatch()
        await _close_all(scene, owner, list(jobs))
        await scene.pass_ms(30_000)
        await fleet.beat(shard, owner, held=-1, lease_ms=3_600_000)
        await scene.tick()
        for item in await take_lane(shard, "arq", limit=50):
            assert await sent(shard, "arq", item)
    assert {await scene.state(name) for name in jobs} == {"idle"}
    assert await shard.redis.exists(shard.keys.prefix + "running", shard.keys.prefix + "flows", shard.keys.prefix + "out:arq") == 0
    due = [member for member in await shard.redis.zrange(shard.keys.prefix + "deadlines", 0, -1) if not member.startswith(b"c!")]
    assert due == [], "something would still come round"
    assert await _cost_of_a_tick(scene) <= nothing + 2


async def _crowd(scene: Scene, owner: str, state: str) -> dict[str, str]:
    """Bring sessions into one state; return them with their jobs."""
    more: dict[str, Any] = {"mode": "follow_up", "delay_ms": 60_000} if state == "delayed" else {}
    await set_limits(scene.yard.shards[0], max_concurrent_turns=0 if state == "ready" else 1100)
    jobs = {name: (await scene.say(session=name, **more)).job or "" for name in (f"{state}{i}" for i in range(EACH))}
    while (await dispatch(scene.yard.shards[0])).left:
        pass
    for name in jobs if state in ("running", "parked", "lifted", "waiting") else ():
        await _to(scene, owner, state, name)
    return jobs


async def _to(scene: Scene, owner: str, state: str, name: str) -> None:
    view = await scene.begin_as(owner, 1, name)
    assert view is not None
    if state == "running":
        return
    kind = "lift" if state == "lifted" else "callback"
    made = call(view, 0, kind, awaited=state == "parked")
    view = await scene.ask(view, made)
    if state == "parked":
        await scene.park(view, made.id)
    else:
        await scene.reply(await scene.launch(view, made.id, secret=kind == "callback", lanes=("arq",) if kind == "lift" else ()))


async def _close_all(scene: Scene, owner: str, names: list[str]) -> None:
    """A worker ends what was cancelled in its hands, and what is handed to it to be closed."""
    keys = {session_key("default", name).encode(): name for name in names}
    for key in await scene.yard.redis.zrange(scene.yard.shards[0].keys.prefix + "running", 0, -1):
        head = await scene.head(name := keys[key])
        if (view := await scene.begin_as(owner, int(head["ep"]), name)) is not None:
            await _close(scene, view)


async def _cost_of_a_tick(scene: Scene) -> int:
    await scene.yard.redis.config_resetstat()
    await scene.tick()
    return await scene.commands()


@pytest.mark.spec("L24")
@pytest.mark.parametrize("whose", ["of another tenant", "of the same tenant"])
async def test_a_quiet_session_starts_although_every_slot_belongs_to_one_that_never_stops(scene: Scene, whose: str) -> None:
    """Eight sessions are written to each second and hold all eight slots; the ninth starts within one quantum."""
    shard, quantum_ms = scene.yard.shards[0], 5000
    await set_limits(shard, max_concurrent_turns=8, quantum_ms=quantum_ms)
    owner = await scene.worker()
    hot = {f"hot{i}": await scene.open_turn(owner, session=f"hot{i}") for i in range(8)}
    tenant = "other" if whose == "of another tenant" else "default"
    await scene.say(session="quiet", tenant=tenant)
    await scene.dispatch()
    waited_ms = 0
    while (await scene.head("quiet", tenant))["st"] != "assigned":
        waited_ms += 1000
        assert waited_ms <= quantum_ms + 1000, "the quiet session starves"
        await scene.pass_ms(1000)
        await fleet.beat(shard, owner, held=-1)
        for name, view in hot.items():
            await scene.say("more", session=name)
            await scene.dispatch()
            if not view.ended:
                hot[name] = await scene.reply(view)
        await dispatch(shard)
    view = await scene.begin_as(owner, 1, "quiet", tenant=tenant)
    assert view is not None
    await scene.reply(view)


@pytest.mark.spec("I11")
async def test_a_flood_delays_each_other_tenants_message_by_a_turn_for_each_tenant(scene: Scene) -> None:
    """500 sessions of one tenant wait for 4 slots; ten tenants write once each. The n-th to start waits for about n slots to
    be given back, and a tenant's own message is never behind more than one turn of the flood for each tenant that waits."""
    shard, slots, slot_ms = scene.yard.shards[0], 4, 1000
    await set_limits(shard, max_concurrent_turns=slots)
    owner = await scene.worker()
    for i in range(500):
        await scene.say(session=f"flood{i}", tenant="flood")
    await scene.dispatch()
    known = {session_key("flood", f"flood{i}"): (f"flood{i}", "flood") for i in range(500)}
    for _ in range(5):
        await _a_round(scene, owner, slot_ms, known)
    for i in range(10):
        await scene.say(session="quiet", tenant=f"t{i}")
        known[session_key(f"t{i}", "quiet")] = ("quiet", f"t{i}")
    await scene.dispatch()
    order: list[str] = []
    while len({tenant for tenant in order if tenant != "flood"}) < 10:
        order += await _a_round(scene, owner, slot_ms, known)
        assert len(order) <= 2 * 11 + slots, f"a tenant starves: {order}"


async def _a_round(scene: Scene, owner: str, slot_ms: int, known: dict[str, tuple[str, str]]) -> list[str]:
    """Everything that has a slot uses it for its time; return whose turns those were."""
    shard = scene.yard.shards[0]
    await scene.dispatch()
    ran: list[tuple[TurnView, str]] = []
    for raw in await shard.redis.zrange(shard.keys.prefix + "running", 0, -1):
        session, tenant = known[raw.decode()]
        epoch = int((await scene.head(session, tenant))["ep"])
        view = await scene.begin_as(owner, epoch, session, tenant=tenant)
        assert view is not None
        ran.append((view, tenant))
    await scene.pass_ms(slot_ms)
    await fleet.beat(shard, owner, held=-1)
    for view, _ in ran:
        await scene.commit(view, Commit(append=(Say({"text": "x"}),), ending="finish"))
    return [tenant for _, tenant in ran]
