"""Draining what was accepted, in order, and admitting who may run: bounded, repeatable, and not stopped by what it cannot read."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.scene import OK, Scene, call, shown
from turnyard.records.commit import Answer
from turnyard.records.ids import session_key
from turnyard.state import flows, ingress
from turnyard.state.flows import set_limits

pytestmark = pytest.mark.asyncio

GARBAGE: dict[str, dict[str, str | bytes]] = {
    "bytes": {"\xff": b"\xff\xfe\x00", "v": b"\xff"},
    "an unknown kind": {"v": "1", "kind": "surprise", "sid": session_key("default", "s")},
    "another version": {"v": "2", "kind": "user", "sid": session_key("default", "s"), "job": "job_x"},
    "no session": {"v": "1", "kind": "user", "job": "job_x"},
    "an unknown session": {"v": "1", "kind": "pause", "sid": session_key("default", "nobody")},
    "a session of bytes": {"v": "1", "kind": "pause", "sid": b"\xff" * 26},
    "a message without a job": {"v": "1", "kind": "user", "sid": session_key("default", "s")},
    "an outcome without a call": {"v": "1", "kind": "outcome", "sid": session_key("default", "s")},
    "a cancel of no job": {"v": "1", "kind": "canceljob", "sid": session_key("default", "s")},
    "a notice without a group": {"v": "1", "kind": "notice", "sid": session_key("default", "s")},
    "very many fields": {f"f{i}": "x" for i in range(9000)},
    "a very long one": {"kind": "x" * 3_000_000},
}


async def test_messages_become_one_turn_in_the_order_of_acceptance(scene: Scene) -> None:
    for text in ("a", "b", "c"):
        await scene.say(text)
    done = await flows.dispatch(scene.yard.shards[0])
    assert (done.applied, done.admitted, done.left, done.dead) == (3, 0, False, 0)
    owner = await scene.worker()
    assert (await flows.dispatch(scene.yard.shards[0])).admitted == 1
    view = await scene.begin(owner)
    assert view is not None
    assert shown(view) == ["a", "b", "c"]


async def test_one_call_applies_at_most_twenty_entries_and_says_that_more_wait(scene: Scene) -> None:
    for i in range(26):
        await scene.say(session=f"s{i}")
    done = await flows.dispatch(scene.yard.shards[0], limit=1000)
    assert (done.applied, done.left) == (20, True)
    done = await flows.dispatch(scene.yard.shards[0])
    assert (done.applied, done.left) == (6, False)


async def test_a_repeat_after_a_lost_answer_applies_nothing_twice(scene: Scene) -> None:
    await scene.worker()
    await scene.dispatch()
    await scene.say("a")
    await scene.say("b")
    with scene.lost_reply():
        done = await flows.dispatch(scene.yard.shards[0])
    assert (done.applied, done.admitted) == (0, 0)
    assert await scene.state() == "assigned"
    assert (await scene.facts())["wakers"] == 2


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.spec("trap-65")
async def test_an_entry_that_cannot_be_read_is_set_aside_and_its_neighbours_are_applied(scene: Scene, what: str) -> None:
    await scene.say("before")
    shard = scene.yard.shards[0]
    await shard.redis.xadd(shard.keys.ingress, GARBAGE[what])
    await scene.say("after")
    done = await flows.dispatch(shard)
    assert (done.applied, done.dead, await scene.ingress()) == (3, 1, 0)
    (letter,) = await scene.dead()
    assert letter[b"reason"]
    assert sum(len(k) + len(v) for k, v in letter.items()) < 100_000
    view = await scene.start(await scene.worker())
    assert shown(view) == ["before", "after"]


async def test_admission_gives_the_session_a_slot_a_new_epoch_and_no_owner(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.say()
    await scene.dispatch()
    head = await scene.head()
    assert (head["st"], head["ep"], head.get("ow", "")) == ("assigned", "1", "")
    assert await scene.running() == 1
    assignment = await scene.take(owner)
    assert assignment is not None
    assert (assignment.session, assignment.epoch, assignment.agent) == (session_key("default", "s"), 1, "bot")


@pytest.mark.spec("I10")
async def test_never_more_turns_run_than_the_cap_and_no_slot_is_taken_at_rest(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await set_limits(shard, max_concurrent_turns=3)
    owner = await scene.worker(capacity=50)
    waiting = [f"s{i}" for i in range(10)]
    for name in waiting:
        await scene.say(session=name)
    most = 0
    while waiting:
        await asyncio.gather(*(flows.dispatch(shard) for _ in range(3)), scene.tick())
        most = max(most, await scene.running())
        for name in list(waiting):
            view = await scene.begin(owner, name)
            if view is not None:
                waiting.remove(name)
                await scene.reply(view)
                break
    assert most == 3
    assert await scene.running() == 0
    assert await shard.redis.keys(shard.keys.prefix + "run:*") == []


@pytest.mark.parametrize("limit", ["tenants", "agents", "pools"])
async def test_a_cap_of_a_tenant_agent_or_pool_holds_and_its_slot_wakes_the_next(scene: Scene, limit: str) -> None:
    shard = scene.yard.shards[0]
    name = {"tenants": "default", "agents": "bot", "pools": "default"}[limit]
    await set_limits(shard, **{limit: {name: 1}})  # type: ignore[arg-type]
    owner = await scene.worker()
    for session in ("a", "b"):
        await scene.say(session=session)
    view = await scene.start(owner, "a")
    assert await scene.state("b") == "ready"
    await scene.reply(view)
    await scene.dispatch()
    assert await scene.state("b") == "assigned"


async def test_a_message_for_an_agent_that_nobody_serves_waits_for_its_worker(scene: Scene) -> None:
    await scene.worker()
    await scene.say(agent="other")
    await scene.dispatch()
    assert await scene.state() == "ready"
    await scene.worker(agents={"other": 0})
    await scene.dispatch()
    assert await scene.state() == "assigned"


async def test_higher_priority_goes_first_among_one_flows_sessions(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await set_limits(shard, max_concurrent_turns=1)
    owner = await scene.worker()
    for session, priority in (("low", 0), ("high", 5), ("middle", 2)):
        await scene.say(session=session, priority=priority)
    order = []
    for _ in range(3):
        await scene.dispatch()
        for session in ("low", "high", "middle"):
            view = await scene.begin(owner, session)
            if view is not None:
                order.append(session)
                await scene.reply(view)
    assert order == ["high", "middle", "low"]


@pytest.mark.spec("I8")
async def test_whatever_dispatchers_race_a_sessions_context_has_the_order_of_acceptance(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker()
    view = await scene.open_turn(owner, "m0")
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    for i in range(1, 30):
        await asyncio.gather(scene.say(f"m{i}"), *(flows.dispatch(shard, limit=1 + i % 3) for _ in range(i % 4)))
    await scene.dispatch()
    view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    assert [w for w in shown(view) if w.startswith("m")] == [f"m{i}" for i in range(30)]


@pytest.mark.spec("I2")
async def test_a_message_behind_hundreds_of_notices_is_not_lost(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.say("hello")
    await scene.reply(await scene.start(owner))
    for i in range(450):
        await scene.notice(f"n{i}", key=f"k{i}")
    await scene.dispatch()
    assert (await scene.notice("one more", key="more")).code == "inbox_full"
    assert (await scene.notice("", key="k7", clear=True)).code == "accepted"
    await scene.say("after")
    view = await scene.start(owner)
    for _ in range(10):
        if "after" in shown(view):
            break
        view = await scene.commit(view, claim=True)
    assert "after" in shown(view)


async def test_a_full_server_is_still_drained_and_admits(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.say("a")
    async with scene.full_server():
        view = await scene.start(owner)
        await scene.reply(view)
    assert await scene.state() == "idle"


async def test_a_delayed_message_wakes_when_it_is_due(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.say("later", delay_ms=5000)
    await scene.dispatch()
    assert await scene.state() == "idle"
    await scene.pass_ms(5001)
    assert (await scene.tick()).due == 1
    view = await scene.start(owner)
    assert shown(view) == ["later"]


async def test_a_message_that_waits_for_a_turn_of_its_own_leaves_a_parked_approval_open(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "approval", awaited=True)
    await scene.park(await scene.ask(view, made), made.id)
    await scene.say("later", mode="follow_up")
    await scene.dispatch()
    assert (await scene.state(), (await scene.rows())[made.id].get("o")) == ("parked", None)
    await scene.say("now")
    await scene.dispatch()
    assert (await scene.state(), (await scene.rows())[made.id].get("o")) == ("assigned", "superseded")


async def test_each_shard_drains_its_own_ingress(three_shards: Scene) -> None:
    scene = three_shards
    await scene.worker()
    for i in range(9):
        await scene.say(session=f"s{i}")
    applied = [(await flows.dispatch(shard)).applied for shard in scene.yard.shards]
    assert sum(applied) == 9
    assert all(applied)
    assert {await scene.state(f"s{i}") for i in range(9)} == {"assigned"}


async def test_ingress_is_waited_for_from_its_beginning(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    assert not await flows.wait_ingress(shard, block_ms=1)
    await scene.say()
    assert await flows.wait_ingress(shard, block_ms=1)
    assert await flows.wait_ingress(shard, block_ms=1)


async def test_the_position_that_is_told_shrinks_when_a_queued_job_is_cancelled(scene: Scene) -> None:
    first = await scene.say("a")
    assert first.job is not None
    await scene.say("b")
    await scene.dispatch()
    await ingress.cancel_job(scene.yard, first.job, tenant="default")
    await scene.dispatch()
    assert (await scene.say("c")).position == 2
