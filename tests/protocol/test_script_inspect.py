"""Doctor's eyes: everything that must agree about a session, read at one moment, by a script that writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.protocol.scene import Scene, call
from turnyard.records.commit import Park
from turnyard.records.ids import session_key
from turnyard.state.audit import audit, inspect
from turnyard.state.explain import explain

pytestmark = pytest.mark.asyncio

SID = session_key("default", "s")
P = "ty:{0}:"


async def parked(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, 60_000),), ending="park")


async def ready(scene: Scene) -> None:
    await scene.say()
    await scene.dispatch()


async def running(scene: Scene) -> None:
    await scene.open_turn(await scene.worker())


async def idle(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))


@pytest.mark.parametrize("situation", [parked, ready, running, idle])
async def test_a_healthy_session_has_no_finding_and_inspecting_it_writes_nothing(
    scene: Scene, situation: Callable[[Scene], Awaitable[None]]
) -> None:
    await situation(scene)
    before = await scene.snapshot()
    facts = await inspect(scene.yard.shards[0], SID)
    assert facts is not None
    assert facts["head"]["st"] == situation.__name__
    assert await audit(scene.yard) == []
    assert await scene.snapshot() == before


async def test_a_session_that_does_not_exist_has_no_facts(scene: Scene) -> None:
    assert await inspect(scene.yard.shards[0], SID) is None


BROKEN: dict[str, tuple[Callable[[Scene], Awaitable[None]], tuple[str, ...], str]] = {
    "a slot that leaked": (idle, ("ZADD", P + "running", "inf", SID), "slot"),
    "a slot that was lost": (running, ("ZREM", P + "running", SID), "slot"),
    "a ready session in no flow": (ready, ("ZREM", P + "f:default/bot", SID), "flow"),
    "a flow that nobody offers": (ready, ("ZREM", P + "flows", "default/bot"), "offered"),
    "an owner that does not hold it": (running, ("HSET", P + f"s:{SID}:head", "ow", "ff"), "owner"),
    "awaiting counted wrongly": (parked, ("HSET", P + f"s:{SID}:head", "aw", "2"), "awaited"),
    "a counter that lies": (ready, ("HSET", P + f"s:{SID}:head", "iw", "0"), "counters"),
    "parked without a reason": (parked, ("HSET", P + f"s:{SID}:head", "aw", "0"), "awaited"),
    "idle with a message": (ready, ("HSET", P + f"s:{SID}:head", "st", "idle"), "idle"),
    "more slots than allowed": (running, ("HSET", P + "limits", "max", "0"), "limit"),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_what_is_broken_is_found(scene: Scene, what: str) -> None:
    situation, command, word = BROKEN[what]
    await situation(scene)
    snapshot = await scene.snapshot()
    if what == "a flow that nobody offers":
        await scene.yard.redis.hdel(P + "limits", "b:default/bot")
    await scene.yard.redis.execute_command(*command)
    findings = await audit(scene.yard)
    assert any(word in finding.invariant + finding.detail for finding in findings), findings
    await scene.rewind(snapshot)


async def test_findings_of_every_shard_are_told(three_shards: Scene) -> None:
    scene = three_shards
    for i in range(6):
        await scene.say(session=f"s{i}")
    for shard in scene.yard.shards:
        await scene.dispatch(shard)
    snapshot = await scene.snapshot()
    for shard in scene.yard.shards:
        await shard.redis.delete(shard.keys.prefix + "f:default/bot")
    assert {f.session for f in await audit(scene.yard)} == {f"s{i}" for i in range(6)}
    assert len({f.session for f in await audit(scene.yard, limit=1)}) == 3
    await scene.rewind(snapshot)


async def test_a_session_that_waits_for_a_worker_says_so(scene: Scene) -> None:
    await ready(scene)
    await scene.tick()  # the held clock is ahead of the server's, so this counts as just now
    found = await explain(scene.yard, tenant="default", session="s")
    assert found is not None
    assert found.code == "no_worker_for_agent"
    assert await explain(scene.yard, tenant="other", session="s") is None
