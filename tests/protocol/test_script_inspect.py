"""Doctor's eyes: everything that must agree about a session, read at one moment, by a script that writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.protocol.scene import Scene, call
from turnyard.records.commit import Park
from turnyard.records.ids import session_key
from turnyard.state.audit import audit, inspect
from turnyard.state.explain import explain
from turnyard.state.oracles.transcript import NUMBERS, ONCE, PAIRED

pytestmark = pytest.mark.asyncio

SID = session_key("default", "s")
P = "ty:{0}:"


async def parked(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, 60_000),), ending="park")


async def asked(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "approval", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, 60_000),), ending="park")


async def ready(scene: Scene) -> None:
    await scene.say()
    await scene.dispatch()


async def running(scene: Scene) -> None:
    await scene.open_turn(await scene.worker())


async def delayed(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))
    await scene.say(delay_ms=5000)
    await scene.dispatch()


async def idle(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))


@pytest.mark.parametrize("situation", [parked, asked, ready, running, idle])
async def test_a_healthy_session_has_no_finding_and_inspecting_it_writes_nothing(
    scene: Scene, situation: Callable[[Scene], Awaitable[None]]
) -> None:
    await situation(scene)
    before = await scene.snapshot()
    facts = await inspect(scene.yard.shards[0], SID)
    assert facts is not None
    assert facts["head"]["st"] == ("parked" if situation is asked else situation.__name__)
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
    "two workers that hold it": (running, ("SADD", P + "w:ee", SID), "one worker"),
    "a use that nobody makes": (running, ("SADD", P + "run:t/default", "x" * 26), "run:t/default"),
    "a use that was lost": (running, ("SREM", P + "run:a/bot", SID), "run:a/bot lacks"),
    "a worker that holds what it does not run": (idle, ("SADD", P + "w:ee", SID), "w:ee"),
    "something held by a worker that is gone": (idle, ("SADD", P + "w:dd", SID), "belongs"),
    "a queue without a session": (idle, ("XADD", P + "s:" + "x" * 26 + ":inbox", "1-1", "k", "user"), "belongs"),
    "a session in a flow that is not ready": (idle, ("ZADD", P + "f:default/bot", "1", SID), "flow"),
    "a flow offered for nobody": (idle, ("ZADD", P + "flows", "1", "default/none"), "flows: default/none"),
    "a flow in two places": (ready, ("ZADD", P + "flows", "1", "default/bot"), "both"),
    "a blocked flow that its resource does not list": (ready, ("DEL", P + "blocked:a/bot"), "does not list"),
    "a parked call without a deadline": (parked, ("DEL", P + "deadlines"), "has a deadline"),
    "an approval that nobody is shown": (asked, ("DEL", P + "ap:default"), "is listed"),
    "an approval that is shown and waits for nobody": (idle, ("ZADD", P + "ap:default", "1", f"{SID}.0!call_x"), "are shown"),
    "parked under a cancel": (parked, ("HSET", P + f"s:{SID}:head", "ct", "TURN"), "cancelled turn"),
    "a delayed message that nobody wakes for": (delayed, ("DEL", P + "deadlines"), "delayed message"),
    "unclaimed messages counted wrongly": (idle, ("HSET", P + f"s:{SID}:head", "q", "3"), "unclaimed"),
    "a log with a hole": (idle, ("XDEL", P + f"h:{SID}.0:log", "2-0"), "no gap"),
    "a job that waits for nothing": (running, ("HSET", P + "j:JOB", "st", "waiting"), "job waits"),
    "a job that ended with an open call": (running, ("HSET", P + "j:JOB", "st", "succeeded", "op", "1"), "job that ended"),
    "a deadline that nobody met": (parked, ("ZADD", P + "deadlines", "1", f"s!{SID}!x"), "deadlines are met"),
}


async def test_an_accepted_event_that_nobody_dispatches_is_found_once_it_is_old(scene: Scene) -> None:
    await idle(scene)
    snapshot = await scene.snapshot()
    await scene.yard.redis.delete(P + "ingress")
    await scene.yard.redis.xadd(P + "ingress", {"v": 1, "kind": "wake"})
    assert await audit(scene.yard) == []
    await scene.yard.redis.delete(P + "ingress")
    await scene.yard.redis.xadd(P + "ingress", {"v": 1, "kind": "wake"}, id="1-1")
    assert [finding.invariant for finding in await audit(scene.yard)] == ["what was accepted is dispatched"]
    await scene.rewind(snapshot)


async def test_a_torn_log_is_found_where_logs_are_read(scene: Scene) -> None:
    await parked(scene)
    await scene.control("cancel")
    await scene.dispatch()
    view = await scene.start(await scene.worker())
    await scene.commit(view, closing=True, ending="finish")
    snapshot = await scene.snapshot()
    log = P + f"h:{SID}.0:log"
    (last, fields) = next((i, f) for i, f in await scene.yard.redis.xrevrange(log) if f[b"t"] == b"tool/result")
    await scene.yard.redis.hset(P + f"s:{SID}:head", "sq:0", int(last.split(b"-")[0]) + 5)
    await scene.yard.redis.xadd(log, {**fields}, id=f"{int(last.split(b'-')[0]) + 5}-0")
    found = {finding.invariant for finding in await audit(scene.yard, logs=100)}
    assert {NUMBERS, PAIRED, ONCE} <= found
    assert PAIRED not in {finding.invariant for finding in await audit(scene.yard)}
    await scene.rewind(snapshot)


@pytest.mark.parametrize("what", BROKEN)
async def test_what_is_broken_is_found(scene: Scene, what: str) -> None:
    situation, command, word = BROKEN[what]
    await situation(scene)
    snapshot = await scene.snapshot()
    if what == "a flow that nobody offers":
        await scene.yard.redis.hdel(P + "limits", "b:default/bot")
    if "ee" in command[1].rpartition(":")[2]:
        await scene.yard.redis.zadd(P + "workers", {"ee": scene.now_ms + 1000})
    head = await scene.head()
    known = {"TURN": head.get("tu", ""), "JOB": head.get("jb", "")}
    words = [known.get(word, word.replace("JOB", known["JOB"])) for word in command]
    await scene.yard.redis.execute_command(*words)
    findings = await audit(scene.yard, logs=100)
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
    assert found.code == "no_worker_for_pool"
    assert await explain(scene.yard, tenant="other", session="s") is None
