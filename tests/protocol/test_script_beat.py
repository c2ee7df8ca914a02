"""Keeping an incarnation alive: only start-up adds one, an expelled one stays gone, and a beat costs the same however much it runs."""

from __future__ import annotations

import pytest

from tests.protocol.scene import OK, Scene, call
from turnyard.records.commit import Answer
from turnyard.records.ids import new_owner_id, session_key
from turnyard.state import fleet

pytestmark = pytest.mark.asyncio


async def beat(scene: Scene, owner: str, held: list[str] | int = -1) -> fleet.Beat:
    return await fleet.beat(scene.yard.shards[0], owner, held=held)


async def lease(scene: Scene, owner: str) -> float | None:
    return await scene.yard.redis.zscore(scene.yard.shards[0].keys.prefix + "workers", owner)


async def test_a_beat_renews_the_lease_and_names_nothing_when_both_sides_agree(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.pass_ms(2000)
    assert await beat(scene, owner, [view.session]) == fleet.Beat(lost=False)
    assert await lease(scene, owner) == scene.now_ms + 10_000


async def test_a_lease_never_becomes_shorter(scene: Scene) -> None:
    owner = await scene.worker()
    await fleet.beat(scene.yard.shards[0], owner, held=0, lease_ms=60_000)
    await beat(scene, owner, 0)
    assert await lease(scene, owner) == scene.now_ms + 60_000


@pytest.mark.spec("trap-54")
@pytest.mark.parametrize("expelled", ["while its turns go", "wholly"])
async def test_a_beat_of_an_expelled_worker_answers_lost_and_does_not_revive_it(scene: Scene, expelled: str) -> None:
    owner = await scene.worker()
    await scene.open_turn(owner)
    key = scene.yard.shards[0].keys.prefix + "workers"
    if expelled == "wholly":
        await scene.tick(owner)
    else:
        await scene.yard.redis.zadd(key, {owner: "-inf"})
    assert (await beat(scene, owner)).lost
    assert await lease(scene, owner) in (None, float("-inf"))
    assert (await beat(scene, new_owner_id())).lost


async def test_a_turn_whose_begin_was_lost_comes_back_as_a_stranger_and_is_begun_again(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    found = await beat(scene, owner, 0)
    assert found.strangers == (fleet.Assignment(view.session, view.epoch),)
    again = await scene.begin_as(owner, view.epoch)
    assert again is not None
    assert again.code == "ALREADY"
    assert (await beat(scene, owner, [view.session])).strangers == ()


async def test_a_lifted_task_whose_begin_was_lost_comes_back_with_its_task(scene: Scene) -> None:
    owner, lifter = await scene.worker(), await scene.worker(role="lifted")
    view = await scene.open_turn(owner)
    made = call(view, 0, "lift")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False, lanes=("arq",))
    await scene.begin_row(view, made.id, owner=lifter, task="task-7")
    assert (await beat(scene, lifter, 0)).strangers == (fleet.RowRef(view.store, made.id, "task-7"),)
    assert (await beat(scene, lifter, [made.id])).strangers == ()


async def test_start_up_again_after_a_lost_answer_counts_its_capacity_once(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await scene.worker(capacity=3)
    with scene.lost_reply():
        await scene.worker(capacity=3)
    assert await scene.yard.redis.hget(shard.keys.limits, "c:default") == b"6"


@pytest.mark.spec("trap-13")
async def test_capacity_is_that_of_the_workers_that_live_now(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    first, second = await scene.worker(capacity=1), await scene.worker(capacity=1)
    for session in ("a", "b", "c"):
        await scene.say(session=session)
    await scene.dispatch()
    assert await scene.running() == 2
    view = None
    for session in ("a", "b"):
        view = view or await scene.begin(first, session)
    assert view is not None
    await scene.tick(second)
    await scene.reply(view)
    await scene.dispatch()
    assert await scene.yard.redis.hget(shard.keys.limits, "c:default") == b"1"
    assert await scene.running() == 1


async def test_a_worker_that_leaves_in_order_takes_its_capacity_along_and_leaves_no_key(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker(capacity=4)
    await scene.reply(await scene.open_turn(owner))
    await fleet.leave(shard, owner)
    assert await scene.yard.redis.hget(shard.keys.limits, "c:default") == b"0"
    assert [key for key in await scene.yard.redis.keys("*") if owner.encode() in key] == []
    assert await fleet.list_workers(scene.yard) == []


async def test_a_worker_that_still_runs_something_does_not_leave(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await fleet.leave(scene.yard.shards[0], owner)
    assert not (await beat(scene, owner, 1)).lost
    await scene.reply(view)


async def test_a_worker_is_told_to_serve_turns_of_older_versions_that_wait_for_it(scene: Scene) -> None:
    old, new = await scene.worker(serial=1), await scene.worker(serial=2)
    view = await scene.open_turn(new)
    await scene.commit(view, ending="yield")
    assert (await beat(scene, new, 0)).lists == ("default:bot@2",)
    assert (await beat(scene, old, 0)).lists == ()
    await scene.dispatch()
    assert await scene.take(old) is None
    scene._lists[new].extra = ("default:bot@2",)
    again = await scene.begin(new)
    assert again is not None
    await scene.reply(again)


async def test_a_worker_says_anew_with_each_beat_how_much_it_can_run_here(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker(capacity=3)
    for session in ("a", "b", "c"):
        await scene.open_turn(owner, session=session)
    for session in ("d", "e"):
        await scene.say(session=session, agent="bot")
    await scene.dispatch()
    less = await fleet.beat(shard, owner, held=3, room=1)
    assert (less.room, less.held, less.waiting) == (3, 3, 2), "it gave away what it uses"
    assert await scene.running() == 3
    assert (await fleet.beat(shard, owner, held=3, room=4)).room == 4
    await scene.tick()
    assert await scene.running() == 4
    assert await scene.yard.redis.hget(shard.keys.limits, "c:default") == b"4"
    assert [view.capacity for view in await fleet.list_workers(scene.yard)] == [4]
    await scene.worker(capacity=1)
    await scene.tick(owner)
    assert await scene.yard.redis.hget(shard.keys.limits, "c:default") == b"1"


@pytest.mark.spec("trap-19")
async def test_a_beat_costs_the_same_however_many_turns_a_worker_runs(scene: Scene) -> None:
    owner = await scene.worker(capacity=500)

    async def cost(held: list[str]) -> int:
        await scene.yard.redis.config_resetstat()
        await beat(scene, owner, held)
        return await scene.commands()

    none = await cost([])
    held = [(await scene.open_turn(owner, session=f"s{i}")).session for i in range(60)]
    assert none == await cost(held) < 20


async def test_taking_waits_for_cancels_alone_when_nothing_is_free(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.say(session="other")
    await scene.control("cancel")
    await scene.dispatch()
    lists = scene._lists[owner]
    assert await fleet.take(shard, lists, free=0, block_ms=1) == [fleet.Cancelled(session=view.session, epoch=view.epoch)]
    assert await fleet.take(shard, lists, free=0, block_ms=1) == []
    assert await fleet.take(shard, lists, free=5, block_ms=1) == [fleet.Assignment(session_key("default", "other"), 1, "bot")]


async def test_a_cancelled_lifted_task_is_told_to_its_worker(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner, lifter = await scene.worker(), await scene.worker(role="lifted")
    view = await scene.open_turn(owner)
    made = call(view, 0, "lift")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False, lanes=("arq",))
    await scene.begin_row(view, made.id, owner=lifter)
    await scene.control("cancel")
    await scene.dispatch()
    assert await fleet.take(shard, scene._lists[lifter], free=0, block_ms=1) == [fleet.Cancelled(call=made.id)]
    late = await scene.outcome(view, made.id, owner=lifter, task="task-1")
    assert late.code == "conflict"
    assert (await beat(scene, lifter, 0)).strangers == ()


async def test_at_most_as_many_are_taken_as_are_free(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker()
    for i in range(5):
        await scene.say(session=f"s{i}")
    await scene.dispatch()
    assert len(await fleet.take(shard, scene._lists[owner], free=3, block_ms=1)) == 3
    assert len(await fleet.take(shard, scene._lists[owner], free=3, block_ms=1)) == 2


async def test_workers_are_listed_with_what_they_run(scene: Scene) -> None:
    owner = await scene.worker(capacity=7, serial=3)
    await scene.open_turn(owner)
    (view,) = await fleet.list_workers(scene.yard)
    assert (view.worker, view.role, view.capacity, view.running, view.agents, view.pools) == (
        owner,
        "worker",
        7,
        1,
        {"bot": 3},
        ("default",),
    )


async def test_a_beat_on_a_full_server_is_taken(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    async with scene.full_server():
        assert not (await beat(scene, owner, 1)).lost
    await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)


async def test_who_waited_for_a_worker_is_looked_at_as_soon_as_one_has_joined(scene: Scene) -> None:
    await scene.say()
    await scene.dispatch()
    assert (await scene.state(), await scene.ingress()) == ("ready", 0)
    owner = await scene.worker()
    # What a dispatcher wakes for is there; nobody has ticked.
    assert await scene.ingress() == 1
    assert (await scene.dispatch()).admitted == 1
    view = await scene.begin(owner)
    assert view is not None
    await scene.reply(view)


async def test_a_worker_that_nobody_waited_for_wakes_nobody(scene: Scene) -> None:
    await scene.worker()
    assert await scene.ingress() == 0
