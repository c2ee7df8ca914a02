"""What is due once is done once, never before its time, and whatever ended a turn, what waited behind it comes next."""

from __future__ import annotations

import asyncio

import pytest

from platforms.lifts import Lifts
from platforms.relays import relay_once
from tests.protocol.scene import SECRET, Scene, call, shown
from turnyard.lifted import LiftedTask, LiftQueue, job_id, queue_key
from turnyard.records.commit import Answer, Park, TurnView, Wait
from turnyard.records.ids import hash_secret, keyed_job_id, new_job_id
from turnyard.state import fleet, ingress, upkeep
from turnyard.state.flows import dispatch, set_limits
from turnyard.state.lanes import sent, take_lane


@pytest.mark.spec("L03")
async def test_of_many_schedulers_that_fire_one_tick_one_makes_the_turn_however_soon_that_ends(scene: Scene) -> None:
    """A schedule's tick is a message whose job id is made of the schedule and the tick: its row outlives the turn."""
    owner = await scene.worker()
    tick = scene.message("report", job=keyed_job_id(0, "default", "s", "daily@2027-01-15T08:00"))
    assert (await ingress.accept_message(scene.yard, tick)).code == "accepted"
    await scene.reply(await scene.start(owner))
    again = [await ingress.accept_message(scene.yard, tick) for _ in range(2)]
    await scene.pass_ms(6 * 86_400_000)
    again.append(await ingress.accept_message(scene.yard, tick))
    assert [(a.code, a.entry) for a in again] == [("duplicate", "succeeded")] * 3
    await scene.dispatch()
    assert (await scene.state(), await scene.entries()) == ("idle", ["report", "=bye"])


@pytest.mark.spec("L04")
@pytest.mark.parametrize("what", ["a turn that waits to ask again", "a message for later", "a relay that was put off"])
async def test_what_was_put_off_never_starts_before_its_time_however_many_look(scene: Scene, what: str) -> None:
    shard, delay_ms = scene.yard.shards[0], 30_000
    owners = [await scene.worker() for _ in range(2)]
    view = await scene.open_turn(owners[0])
    lifted = what.startswith("a relay")
    if what == "a message for later":
        await scene.reply(view)
        await scene.say("later", mode="follow_up", delay_ms=delay_ms)
        await scene.dispatch()
    elif lifted:
        made = call(view, 0, "lift", awaited=True)
        await scene.commit(await scene.ask(view, made), park=(Park(made.id, delay_ms),), ending="park", lanes=("arq",))
        (item,) = await take_lane(shard, "arq")
        await sent(shard, "arq", item, upto=item.cursor, delay_ms=delay_ms)
    else:
        await scene.commit(view, wait=(Wait("w1", "retry", delay_ms),), ending="park")

    async def seen() -> bool:
        await asyncio.gather(*(upkeep.tick(shard) for _ in range(3)), dispatch(shard))
        for owner in owners:
            await fleet.beat(shard, owner, held=-1)
        return bool(await take_lane(shard, "arq")) if lifted else await scene.state() == "assigned"

    for _ in range(29):
        assert not await seen()
        await scene.pass_ms(1000)
    await scene.pass_ms(999)
    assert not await seen()
    await scene.pass_ms(1)
    assert await seen()


@pytest.mark.spec("L05")
@pytest.mark.parametrize("held", ["as a task", "as an old result"])
async def test_a_lifted_call_whose_task_id_is_taken_gets_a_task_under_another_one(scene: Scene, clean: str, held: str) -> None:
    shard, queue = scene.yard.shards[0], LiftQueue(clean)
    view = await scene.open_turn(await scene.worker())
    lift = call(view, 0, "lift")
    await scene.reply(await scene.launch(await scene.ask(view, lift), lift.id, secret=False, lanes=("arq",)))
    if held == "as a task":
        await queue.enqueue(LiftedTask(0, view.store, lift.id), job=job_id(lift.id, 1), queue="default")
        await scene.yard.redis.delete(queue_key("default"))  # whoever took it is gone
    else:
        await scene.yard.redis.set(f"arq:result:{job_id(lift.id, 1)}", b"{}", ex=3600)
    assert await relay_once(shard, Lifts(queue)) == 1
    assert await scene.yard.redis.zcard(queue_key("default")) == 0
    await scene.pass_ms(30_001)
    await scene.tick()
    assert await relay_once(shard, Lifts(queue)) == 1
    assert await scene.yard.redis.zrange(queue_key("default"), 0, -1) == [job_id(lift.id, 2).encode()]
    lifted = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, lift.id, owner=lifted, task=job_id(lift.id, 2))).code == "OK"
    await queue.aclose()
    for key in await scene.yard.redis.keys("arq:*"):
        await scene.yard.redis.delete(key)


FAILURES = {"an error": "model_error", "its deadline": "deadline", "its step limit": "limit"}


async def _end(scene: Scene, how: str, view: TurnView, owner: str, other: str) -> None:
    """End a turn in one way or lose it."""
    if how == "its answer":
        await scene.reply(view)
    elif how in FAILURES:
        failure = {"code": FAILURES[how], "message": "it took too long", "retryable": False, "ref": None}
        await scene.commit(view, ending="finish", closing=True, failure=failure)
    elif how == "a stop":
        await scene.control("cancel")
        await scene.dispatch()
        await scene.commit(view, ending="finish", closing=True)
    elif how == "a stop that its worker ignores":
        await scene.control("cancel")
        await scene.dispatch()
        await scene.pass_ms(9000)
        for each in (owner, other):
            await fleet.beat(scene.yard.shards[0], each, held=-1)
        await scene.pass_ms(1001)
        await scene.tick()
        assert await scene.state() == "assigned", "whoever ignores a stop keeps the session"
    elif how == "the death of its worker":
        await scene.tick(owner)
    else:
        made = call(view, 0, "callback", awaited=True)
        view = await scene.ask(view, made)
        await scene.commit(view, park=(Park(made.id, 1000, hash_secret(SECRET)),), ending="park")
        await scene.pass_ms(1001)
        await scene.tick()


@pytest.mark.spec("rival-1", "L41")
@pytest.mark.parametrize("mode", ["steer", "follow_up"])
@pytest.mark.parametrize(
    "how", ["its answer", *FAILURES, "a stop", "a stop that its worker ignores", "the death of its worker", "a call that timed out"]
)
async def test_whatever_ended_a_turn_the_messages_behind_it_start_the_next_one(scene: Scene, how: str, mode: str) -> None:
    owner, other = await scene.worker(), await scene.worker()
    view = await scene.open_turn(owner, "first")
    waiting = [await scene.say(f"m{i}", mode=mode) for i in range(3)]
    await scene.dispatch()
    await _end(scene, how, view, owner, other)
    answered: list[str] = []
    for _ in range(5):
        # Nothing passes here but what the ending itself has woken: no second, no tick.
        await scene.dispatch()
        head = await scene.head()
        view = await scene.begin_as(other if head["st"] == "assigned" else owner, int(head["ep"]))
        if view is None or view.ended:
            break
        answered += [word for word in shown(view) if word.startswith("m") and word not in answered]
        closing = tuple(Answer(row.call, row.outcome or "unknown") for row in view.rows)
        holder = other if head["st"] == "assigned" else owner
        if view.cancel:
            await scene.commit(view, ending="finish", closing=True, owner=holder)
        else:
            await scene.reply(await scene.commit(view, append=closing, claim=True, owner=holder), owner=holder)
    assert answered == ["m0", "m1", "m2"]
    assert {(await scene.job(each)).state for each in waiting} == {"succeeded"}
    assert (await scene.state(), await scene.running()) == ("idle", 0)


@pytest.mark.spec("rival-51")
@pytest.mark.parametrize("answers", ["arrive", "are lost"])
async def test_of_many_that_move_what_is_due_each_item_is_moved_once(scene: Scene, answers: str) -> None:
    """250 messages are due at one moment; several tick at once, each moving a hundred at most, and a repeat moves nothing twice."""
    shard = scene.yard.shards[0]
    await set_limits(shard, max_concurrent_turns=300)
    owner = await scene.worker(capacity=300)
    names = [f"s{i}" for i in range(250)]
    for name in names:
        await scene.say("due", session=name, mode="follow_up", delay_ms=5000, job=new_job_id(0))
    await scene.dispatch()
    await scene.pass_ms(5000)
    await fleet.beat(shard, owner, held=-1)
    if answers == "are lost":
        with scene.lost_reply(3):
            await asyncio.gather(*(scene.tick() for _ in range(2)))
    moved = sum(done.due for done in await asyncio.gather(*(scene.tick() for _ in range(6))))
    assert moved == 250 if answers == "arrive" else moved < 250
    while await scene.ingress():
        await scene.dispatch()
    assert await scene.running() == 250
    for name in names:
        view = await scene.begin_as(owner, 1, name)
        assert view is not None
        await scene.reply(view)
        assert await scene.entries(name) == ["due", "=bye"]
    assert await scene.running() == 0
