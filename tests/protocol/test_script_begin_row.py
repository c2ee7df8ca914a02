"""A lifted task's first act: of all who come for a call, one runs it, and it finds all it needs in the row."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.scene import DAY_MS, OK, Scene, call
from turnyard.records.commit import NewCall, Park, TurnView
from turnyard.records.ids import idempotency_key, new_owner_id
from turnyard.state.lanes import sent, take_lane

pytestmark = pytest.mark.asyncio


async def lifted(scene: Scene, *, awaited: bool = False, idempotent: bool = False) -> tuple[TurnView, NewCall]:
    """A turn whose lifted call is parked; the worker goes on where it is detached."""
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "lift", awaited=awaited, idempotent=idempotent, queue="slow")
    view = await scene.ask(view, made)
    if awaited:
        await scene.commit(view, park=(Park(made.id, 60_000),), ending="park", lanes=("arq",))
        return view, made
    return await scene.launch(view, made.id, secret=False, deadline_ms=60_000, lanes=("arq",)), made


async def test_a_task_learns_what_to_run_and_under_which_key(scene: Scene) -> None:
    view, made = await lifted(scene)
    start = await scene.begin_row(view, made.id, owner=await scene.worker(role="lifted"))
    assert (start.code, start.name, start.args, start.tenant, start.session, start.user, start.agent) == (
        *("OK", "tool0", {"i": 0}, "default", "s", "ann", "bot"),
    )
    assert (start.turn, start.deadline_ms, start.attempt) == (view.turn, scene.now_ms + 60_000, 1)
    assert start.idempotency_key == idempotency_key("default", "s", view.turn, made.id)


async def test_the_lane_names_call_queue_deadline_and_relay_count(scene: Scene) -> None:
    _, made = await lifted(scene)
    (item,) = await take_lane(scene.yard.shards[0], "arq")
    (parked,) = [r for r in item.records if r.type == "call/parked"]
    assert (parked.call, parked.kind, parked.extra["qn"], parked.extra["re"]) == (made.id, "lift", "slow", "1")
    assert int(parked.extra["dl"]) == scene.now_ms + DAY_MS
    assert await sent(scene.yard.shards[0], "arq", item)


@pytest.mark.spec("trap-69")
async def test_of_many_tasks_for_one_call_one_runs(scene: Scene) -> None:
    view, made = await lifted(scene)
    lifters = [await scene.worker(role="lifted") for _ in range(4)]
    starts = await asyncio.gather(*(scene.begin_row(view, made.id, owner=o, task=f"t{i % 2}") for i, o in enumerate(lifters * 3)))
    codes = [start.code for start in starts]
    assert codes.count("OK") == 1
    winner = codes.index("OK")
    assert [i for i, code in enumerate(codes) if code == "ALREADY"] == [
        i for i in range(12) if i != winner and (i % 4, i % 2) == (winner % 4, winner % 2)
    ]


@pytest.mark.spec("trap-69", "trap-23")
async def test_another_task_of_the_same_worker_is_refused_and_the_same_pair_is_answered_again(scene: Scene) -> None:
    view, made = await lifted(scene)
    lifter = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, made.id, owner=lifter, task="a")).code == "OK"
    assert (await scene.begin_row(view, made.id, owner=lifter, task="b")).code == "FENCED"
    assert (await scene.begin_row(view, made.id, owner=lifter, task="a")).code == "ALREADY"


async def test_a_lost_answer_of_a_tasks_begin_is_asked_for_again_with_the_same_content(scene: Scene) -> None:
    view, made = await lifted(scene)
    lifter = await scene.worker(role="lifted")
    with scene.lost_reply():
        start = await scene.begin_row(view, made.id, owner=lifter)
    assert (start.code, start.name, start.args) == ("ALREADY", "tool0", {"i": 0})


@pytest.mark.parametrize("who", ["a stranger", "expelled"])
async def test_a_task_of_a_worker_without_a_lease_is_refused_and_the_row_stays_free(scene: Scene, who: str) -> None:
    view, made = await lifted(scene)
    lifter = await scene.worker(role="lifted")
    if who == "expelled":
        await scene.yard.redis.zadd(scene.yard.shards[0].keys.prefix + "workers", {lifter: "-inf"})
    else:
        lifter = new_owner_id()
    before = await scene.rows()
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "LOST"
    assert await scene.rows() == before


async def test_a_call_without_a_row_is_gone(scene: Scene) -> None:
    view, _ = await lifted(scene)
    lifter = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, "call_none", owner=lifter)).code == "GONE"
    assert (await scene.begin_row(view.session[::-1] + ".0", "call_none", owner=lifter)).code == "GONE"


@pytest.mark.parametrize("how", ["answered", "timed out", "cancelled"])
async def test_a_call_that_has_its_outcome_is_not_run(scene: Scene, how: str) -> None:
    view, made = await lifted(scene)
    if how == "answered":
        await scene.outcome(view, made.id, secret_hash=None)
    elif how == "timed out":
        await scene.pass_ms(DAY_MS + 1)
        await scene.tick(parts="d")
    else:
        await scene.control("cancel")
        await scene.dispatch()
    lifter = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "FENCED"


async def test_a_tasks_outcome_frees_its_worker_of_the_row(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view, made = await lifted(scene, awaited=True)
    lifter = await scene.worker(role="lifted")
    await scene.begin_row(view, made.id, owner=lifter)
    assert await shard.redis.scard(shard.keys.owned(lifter)) == 1
    assert (await scene.outcome(view, made.id, owner=lifter, task="task-1")).code == "accepted"
    assert await shard.redis.scard(shard.keys.owned(lifter)) == 0
    await scene.dispatch()
    assert await scene.state() == "assigned"


async def test_another_tasks_outcome_leaves_the_row_with_the_one_that_runs_it(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view, made = await lifted(scene, awaited=True)
    runs, other = await scene.worker(role="lifted"), await scene.worker(role="lifted")
    await scene.begin_row(view, made.id, owner=runs)
    assert (await scene.outcome(view, made.id, owner=other, task="task-2")).code == "accepted"
    assert await shard.redis.scard(shard.keys.owned(runs)) == 1
    assert (await scene.outcome(view, made.id, owner=runs, task="task-1")).code == "duplicate"
    assert await shard.redis.scard(shard.keys.owned(runs)) == 0


async def test_an_outcome_of_a_task_refused_because_the_call_was_settled_frees_its_worker_too(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view, made = await lifted(scene)
    lifter = await scene.worker(role="lifted")
    await scene.begin_row(view, made.id, owner=lifter)
    await scene.control("cancel")
    await scene.dispatch()
    assert (await scene.outcome(view, made.id, owner=lifter, task="task-1")).code == "conflict"
    assert await shard.redis.scard(shard.keys.owned(lifter)) == 0


async def test_a_begin_refused_to_the_rows_own_task_frees_its_worker(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view, made = await lifted(scene)
    lifter = await scene.worker(role="lifted")
    await scene.begin_row(view, made.id, owner=lifter)
    await scene.control("cancel")
    await scene.dispatch()
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "FENCED"
    assert await shard.redis.scard(shard.keys.owned(lifter)) == 0


@pytest.mark.spec("trap-68")
async def test_each_relay_of_a_call_has_a_number_of_its_own_and_any_of_them_may_begin_it(scene: Scene) -> None:
    view, made = await lifted(scene)
    await scene.pass_ms(30_001)
    await scene.tick(parts="d")
    (item,) = await take_lane(scene.yard.shards[0], "arq")
    assert [r.extra["re"] for r in item.records if r.type.startswith("call/")] == ["1", "2"]
    lifter = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, made.id, owner=lifter, task=f"{made.id}:2")).code == "OK"
    assert (await scene.begin_row(view, made.id, owner=lifter, task=f"{made.id}:1")).code == "FENCED"


async def test_a_row_is_begun_and_answered_on_a_full_server_whose_functions_are_loaded(scene: Scene) -> None:
    view, made = await lifted(scene)
    lifter = await scene.worker(role="lifted")
    async with scene.full_server():
        assert (await scene.begin_row(view, made.id, owner=lifter)).code == "OK"
        assert (await scene.outcome(view, made.id, owner=lifter, task="task-1", body=OK)).code == "accepted"


async def test_a_row_is_found_on_its_own_shard(three_shards: Scene) -> None:
    scene = three_shards
    owner, lifter = await scene.worker(), await scene.worker(role="lifted")
    for i in range(6):
        view = await scene.open_turn(owner, session=f"s{i}")
        made = call(view, 0, "lift")
        view = await scene.launch(await scene.ask(view, made), made.id, secret=False, lanes=("arq",))
        assert (await scene.begin_row(view, made.id, owner=lifter)).code == "OK"
        assert (await scene.outcome(view, made.id, owner=lifter, task="task-1", session=f"s{i}")).code == "accepted"
