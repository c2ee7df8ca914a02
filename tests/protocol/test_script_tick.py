"""What only time can settle: a little at a time, by anybody, as often as one likes."""

from __future__ import annotations

import pytest

from tests.protocol.scene import OK, Scene, call, shown
from turnyard.records.commit import Answer, Commit, NewCall, Park, TurnView
from turnyard.records.ids import session_key
from turnyard.state import fleet
from turnyard.state.flows import set_limits

pytestmark = pytest.mark.asyncio


async def lifted(scene: Scene, owner: str, *, idempotent: bool = False, awaited: bool = False) -> tuple[TurnView, NewCall]:
    """A turn with a lifted call that is parked."""
    view = await scene.open_turn(owner)
    made = call(view, 0, "lift", awaited=awaited, idempotent=idempotent)
    view = await scene.ask(view, made)
    if awaited:
        await scene.commit(view, park=(Park(made.id, 86_400_000),), ending="park", lanes=("arq",))
    else:
        await scene.launch(view, made.id, secret=False, lanes=("arq",), ending="none")
    return view, made


async def test_a_dead_workers_turns_go_to_the_front_of_their_flow_under_a_new_epoch(scene: Scene) -> None:
    await set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    first = await scene.worker()
    await scene.open_turn(first)
    await scene.say(session="waiting")
    await scene.dispatch()
    second = await scene.worker()
    done = await scene.tick(first)
    assert (done.expelled, done.admitted) == (1, 1)
    view = await scene.begin(second)
    assert view is not None
    assert (view.epoch, shown(view)) == (2, ["hello"])
    assert await scene.state("waiting") == "ready"


async def test_a_worker_that_died_long_ago_takes_no_turn_from_the_one_that_has_it_now(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    dead, alive = await scene.worker(), await scene.worker()
    view = await scene.open_turn(alive)
    # what a failover that lost a release leaves behind
    await shard.redis.sadd(shard.keys.owned(dead), view.session)
    await scene.tick(dead)
    assert (await scene.state(), await scene.running()) == ("running", 1)
    await scene.reply(view)


async def test_a_worker_past_its_lease_is_expelled_and_one_within_it_is_not(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    await scene.open_turn(first, session="a")
    for _ in range(9):
        await scene.pass_ms(1000)
        await scene.tick()
    assert await scene.state("a") == "running"
    await fleet.beat(scene.yard.shards[0], second, held=0)
    await scene.pass_ms(1001)
    assert (await scene.tick()).expelled == 1
    assert await scene.begin(second, "a") is not None


@pytest.mark.spec("trap-53")
async def test_a_dead_worker_with_more_than_a_hundred_turns_is_expelled_in_parts_that_may_stop_anywhere(scene: Scene) -> None:
    first = await scene.worker(capacity=200)
    names = [f"s{i}" for i in range(150)]
    for name in names:
        await scene.say(session=name)
    while await scene.running() < 150:
        await scene.dispatch()
    for name in names:
        assert await scene.begin(first, name) is not None
    shard = scene.yard.shards[0]
    await set_limits(shard, max_concurrent_turns=1)
    assert (await scene.tick(first, who="supervisor")).expelled == 100
    assert await shard.redis.zscore(shard.keys.prefix + "workers", first) == float("-inf")
    assert await shard.redis.scard(shard.keys.owned(first)) == 50
    assert (await scene.tick()).expelled == 50
    assert await shard.redis.zscore(shard.keys.prefix + "workers", first) is None
    assert {await scene.state(name) for name in names} == {"ready"}


async def test_one_tick_hands_back_at_most_a_hundred_whoever_held_them_and_fences_all_the_dead(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    dead = [await scene.worker(capacity=30) for _ in range(5)]
    for i in range(140):
        await scene.say(session=f"s{i}")
    while await scene.running() < 140:
        await scene.dispatch()
    for i in range(140):
        assert await scene.begin_as(dead[i % 5], 1, f"s{i}") is not None
    assert (await scene.tick(*dead, who="supervisor")).expelled == 100
    scores = {await shard.redis.zscore(shard.keys.prefix + "workers", owner) for owner in dead}
    assert scores <= {None, float("-inf")}
    assert (await scene.tick(who="supervisor")).expelled == 40


async def test_a_repeat_after_a_lost_answer_does_nothing_more(scene: Scene) -> None:
    first = await scene.worker()
    await scene.open_turn(first)
    with scene.lost_reply():
        done = await scene.tick(first)
    assert done.expelled == 0
    assert (await scene.head())["ep"] == "1"
    await scene.worker()
    await scene.tick()
    assert (await scene.head())["ep"] == "2"


async def test_a_supervisors_tick_leaves_admission_and_a_wake_entry_to_the_dispatcher(scene: Scene) -> None:
    first = await scene.worker()
    await scene.open_turn(first)
    await scene.worker()
    done = await scene.tick(first, who="supervisor")
    assert (done.expelled, done.admitted, await scene.ingress()) == (1, 0, 1)
    assert await scene.state() == "ready"
    assert (await scene.dispatch()).admitted == 1
    assert await scene.dead() == []


@pytest.mark.spec("trap-16")
async def test_after_a_stall_longer_than_a_lease_nobody_expires_until_a_lease_has_passed(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    alive, dead = await scene.worker(), await scene.worker()
    await scene.open_turn(alive, session="a")
    await scene.tick()
    await scene.pass_ms(11_000)
    assert (await scene.tick()).expelled == 0
    assert not (await fleet.beat(shard, alive, held=1)).lost
    for _ in range(11):
        await scene.pass_ms(1000)
        await fleet.beat(shard, alive, held=1)
        await scene.tick()
    assert await scene.state("a") == "running"
    assert await shard.redis.zscore(shard.keys.prefix + "workers", dead) is None


@pytest.mark.spec("trap-16")
async def test_a_supervisors_tick_after_a_stall_takes_its_dead_child_alone(scene: Scene) -> None:
    alive, dead = await scene.worker(), await scene.worker()
    await scene.open_turn(alive, session="a")
    await scene.open_turn(dead, session="b")
    await scene.tick()
    await scene.pass_ms(11_000)
    assert (await scene.tick(dead, who="supervisor")).expelled == 1
    assert [await scene.state(name) for name in ("a", "b")] == ["running", "ready"]


@pytest.mark.spec("trap-6", "trap-38")
async def test_an_assignment_past_its_begin_by_comes_back_and_costs_no_attempt(scene: Scene) -> None:
    frozen, healthy = await scene.worker(), await scene.worker()
    await scene.say()
    await scene.dispatch()
    for _ in range(5):
        assert await scene.take(frozen) is not None
        await scene.pass_ms(3001)
        done = await scene.tick()
        assert (done.returned, done.admitted) == (1, 1)
    assert (await scene.head()).get("at", "0") in ("", "0")
    view = await scene.begin(healthy)
    assert view is not None
    assert str(view.head["attempt"]) == "1"
    assert await scene.begin_as(frozen, 1) is None
    await scene.reply(view)


async def test_a_begun_turn_has_no_begin_by(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.open_turn(owner)
    await scene.pass_ms(5000)
    assert (await scene.tick()).returned == 0


async def test_a_deadline_settles_its_call_as_timeout_and_wakes_the_turn(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, 4000),), ending="park")
    await scene.pass_ms(3999)
    assert (await scene.tick()).due == 0
    await scene.pass_ms(2)
    assert (await scene.tick()).due == 1
    view = await scene.start(owner)
    assert shown(view)[-1] == f"{made.id}:timeout"
    await scene.reply(view)


async def test_the_row_of_a_settled_call_goes_a_week_after_its_deadline(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, 4000),), ending="park")
    await scene.outcome(view, made.id, secret_hash=None)
    await scene.reply(await scene.start(owner))
    assert made.id in await scene.rows()
    await scene.pass_ms(4000 + 7 * 86_400_000 - 1)
    await scene.tick()
    assert (await scene.outcome(view, made.id, secret_hash=None)).code == "duplicate"
    await scene.pass_ms(2)
    await scene.tick()
    assert await scene.rows() == {}
    assert await scene.yard.redis.exists(scene.shard().keys.calls(view.store)) == 0
    assert (await scene.outcome(view, made.id, secret_hash=None)).code == "gone"


@pytest.mark.spec("trap-64")
async def test_a_lifted_task_that_nobody_began_is_relayed_again_and_never_called_unknown(scene: Scene) -> None:
    owner, lifter = await scene.worker(), await scene.worker(role="lifted")
    view, made = await lifted(scene, owner)
    await scene.tick(lifter)
    await scene.pass_ms(30_001)
    await scene.tick(parts="d")
    row = (await scene.rows())[made.id]
    assert (row["s"], row.get("o"), row["re"]) == ("parked", None, 2)
    assert [r.type for r in await scene.log() if r.type.startswith("call/")] == ["call/parked", "call/relayed"]
    again = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, made.id, owner=again)).code == "OK"
    await scene.pass_ms(61_000)
    await scene.tick(parts="d")
    assert (await scene.rows())[made.id]["re"] == 2


@pytest.mark.parametrize(("relay_ms", "waits"), [(None, [30_000, 60_000, 120_000]), (1_000, [1_000, 2_000, 4_000])])
async def test_the_time_until_the_next_relay_doubles_from_what_is_set(scene: Scene, relay_ms: int | None, waits: list[int]) -> None:
    await set_limits(scene.yard.shards[0], relay_ms=relay_ms)
    _, made = await lifted(scene, await scene.worker())
    for relays, wait_ms in enumerate(waits, start=1):
        await scene.pass_ms(wait_ms - 500)
        await scene.tick(parts="d")
        assert (await scene.rows())[made.id]["re"] == relays
        await scene.pass_ms(501)
        await scene.tick(parts="d")
        assert (await scene.rows())[made.id]["re"] == relays + 1


async def test_the_time_after_a_dead_task_follows_how_often_its_call_was_relayed(scene: Scene) -> None:
    view, made = await lifted(scene, await scene.worker(), idempotent=True)
    lifter = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "OK"
    await scene.tick(lifter, parts="")
    assert (await scene.rows())[made.id]["re"] == 2
    await scene.pass_ms(60_001)
    await scene.tick(parts="d")
    assert (await scene.rows())[made.id]["re"] == 3


async def test_a_dead_lifted_workers_idempotent_task_is_relayed_again_up_to_a_bound(scene: Scene) -> None:
    owner = await scene.worker()
    view, made = await lifted(scene, owner, idempotent=True)
    for attempt in (1, 2, 3):
        lifter = await scene.worker(role="lifted")
        begun = await scene.begin_row(view, made.id, owner=lifter, task=f"t{attempt}")
        assert (begun.code, begun.attempt) == ("OK", attempt)
        await scene.tick(lifter, parts="")
    row = (await scene.rows())[made.id]
    assert (row["o"], row.get("tk")) == ("error", None)
    assert (await scene.begin_row(view, made.id, owner=await scene.worker(role="lifted"))).code == "FENCED"


async def test_a_dead_lifted_workers_other_task_is_unknown_at_once(scene: Scene) -> None:
    owner, lifter = await scene.worker(), await scene.worker(role="lifted")
    view, made = await lifted(scene, owner, awaited=True)
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "OK"
    await scene.tick(lifter, parts="")
    view = await scene.start(owner)
    assert shown(view)[-1] == f"{made.id}:unknown"
    assert (await scene.outcome(view, made.id, owner=lifter, task="task-1")).code == "accepted"
    await scene.dispatch()
    view = await scene.reply(view)
    assert shown(view)[-1] == f"{made.id}:result"
    assert view.entries[-1].late
    await scene.reply(view)


async def test_a_cancel_that_its_worker_ignores_takes_that_session_alone_away_from_it(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first)
    other = await scene.open_turn(first, session="other")
    await scene.control("cancel")
    await scene.dispatch()
    await scene.pass_ms(10_001)
    await scene.tick(parts="d")
    again = await scene.begin(second)
    assert again is not None
    assert (again.cancel, again.turn) == ("user", view.turn)
    await scene.commit(again, ending="finish", closing=True)
    assert await scene.state("other") == "running"
    await scene.reply(other)


@pytest.mark.spec("trap-62")
async def test_room_in_a_shared_limit_wakes_the_flows_that_wait_for_it_one_after_the_other(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await set_limits(shard, tenants={"default": 1})
    owner = await scene.worker(agents={"one": 0, "two": 0, "three": 0})
    view = await scene.open_turn(owner, session="a", agent="one")
    await scene.say(session="b", agent="two")
    await scene.say(session="c", agent="three")
    await scene.dispatch()
    states = [await scene.state(name) for name in ("a", "b", "c")]
    assert states == ["running", "ready", "ready"]
    await scene.reply(view)
    await scene.dispatch()
    turn = None
    for name in ("b", "c"):
        turn = turn or await scene.begin(owner, name)
    assert turn is not None
    await scene.reply(turn)
    await scene.dispatch()
    assert sorted([await scene.state(name) for name in ("b", "c")]) == ["assigned", "idle"]


@pytest.mark.spec("trap-62")
async def test_a_raised_limit_wakes_who_waits_for_it_at_the_next_tick(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await set_limits(shard, tenants={"default": 1})
    owner = await scene.worker(agents={"one": 0, "two": 0, "three": 0})
    for agent in ("one", "two", "three"):
        await scene.say(session=agent, agent=agent)
    await scene.dispatch()
    assert await scene.running() == 1
    await set_limits(shard, tenants={"default": 3})
    for _ in range(3):
        await scene.tick()
    assert await scene.running() == 3
    for agent in ("one", "two", "three"):
        view = await scene.begin(owner, agent)
        assert view is not None
        await scene.reply(view)


async def test_a_tick_handles_at_most_a_hundred_deadlines(scene: Scene) -> None:
    for i in range(130):
        await scene.say(session=f"s{i}", delay_ms=1000)
    await scene.dispatch()
    await scene.pass_ms(1001)
    assert [(await scene.tick()).due for _ in range(3)] == [100, 30, 0]


async def test_a_tick_on_a_full_server_does_its_work(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    await scene.open_turn(first)
    async with scene.full_server():
        assert (await scene.tick(first)).expelled == 1
        view = await scene.begin(second)
        assert view is not None
        await scene.reply(view)


@pytest.mark.spec("trap-80")
async def test_a_tenants_tag_goes_when_it_has_nothing_left(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker()
    for tenant in ("one", "two"):
        view = await scene.open_turn(owner, tenant=tenant)
        await scene.pass_ms(700)
        await scene.commit(view, Commit(ending="finish"))
    assert [f for f in await shard.redis.hkeys(shard.keys.limits) if f.startswith(b"vt:")]
    await scene.tick()
    left = await shard.redis.hgetall(shard.keys.limits)
    assert [f for f in left if f.startswith((b"vt:", b"last:"))] == []
    assert float(left[b"v"]) > 0


async def test_a_session_that_goes_while_its_deadline_runs_costs_nothing(scene: Scene) -> None:
    await scene.say(delay_ms=500)
    await scene.dispatch()
    shard = scene.yard.shards[0]
    sid = session_key("default", "s")
    await shard.redis.zadd(
        shard.keys.prefix + "deadlines", {f"c!{sid}.0!call_none": 1, "c!nobody.0!call_x": 1, "s!nobody!x": 1, "x!nobody": 1}
    )
    assert (await scene.tick()).due == 4
    assert await shard.redis.zcard(shard.keys.prefix + "deadlines") == 1


async def test_each_shard_has_its_own_clockwork(three_shards: Scene) -> None:
    scene = three_shards
    first, second = await scene.worker(), await scene.worker()
    views = [await scene.open_turn(first, session=f"s{i}") for i in range(6)]
    gone = scene.yard.shards[0]
    await scene.tick(first, shard=gone)
    for view in views:
        if scene.yard.shard_for(view.session) is gone:
            continue
        made = call(view)
        asked = await scene.ask(view, made, start=(made.id,))
        await scene.commit(asked, append=(Answer(made.id, "result", OK),), claim=True)
    assert await scene.running(gone) == len([v for v in views if scene.yard.shard_for(v.session) is gone])
    assert second
