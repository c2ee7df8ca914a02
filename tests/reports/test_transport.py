"""Streams only carry: nothing is claimed in them, trimmed in them or left behind in them, and no step costs more than the last."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
from dataclasses import replace

import pytest

from tests.protocol.scene import OK, Scene, call
from turnyard.records.commit import Answer, Say, TurnView
from turnyard.records.ids import new_call_token, new_job_id, new_owner_id, new_turn_id, session_key
from turnyard.state import fleet
from turnyard.state.flows import dispatch, set_limits
from turnyard.state.sessions import read_session

# Whatever a deployment holds beside its sessions, their logs and their jobs.
CARRIERS = r":(ingress|flows|running|workers|fleet|deadlines|dead|limits|blocked|(f|run|serve|turns|w|out|blocked):.+|s:\w+:(inbox|next))$"


async def _carried(scene: Scene) -> dict[str, int]:
    """Return the bytes of each key that only carries."""
    keys = [key.decode() for key in await scene.yard.redis.keys("ty:*") if re.search(CARRIERS, key.decode())]
    return {key: await scene.yard.redis.memory_usage(key, samples=0) for key in sorted(keys)}


async def _answered(scene: Scene, owner: str, sessions: int) -> None:
    """A message to each session, one with a tool and one with a parked call among them, and all are answered."""
    for i in range(sessions):
        await scene.say(session=f"s{i}")
    while await scene.ingress():
        await scene.dispatch()
    for i in range(sessions):
        view = await scene.begin(owner, f"s{i}")
        assert view is not None
        if i % 3:
            made = call(view, 0)
            view = await scene.ask(view, made, start=(made.id,))
            view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
        await scene.reply(view)
    while await scene.ingress():
        await scene.dispatch()


@pytest.mark.spec("L17", "rival-46")
async def test_what_carries_messages_holds_nothing_when_they_are_answered_and_is_no_larger_than_before(scene: Scene) -> None:
    owner = await scene.worker(capacity=100)
    await _answered(scene, owner, 40)
    await scene.tick()
    before = await _carried(scene)
    for _ in range(9):
        await _answered(scene, owner, 40)
        assert await scene.ingress() == 0
    await scene.tick()
    after = await _carried(scene)
    assert {key.partition("}:")[2] for key in after} <= {"ingress", "limits", "workers", "fleet", "serve:default:bot"}
    # Counters grow by a digit; anything that grew with the messages would be larger by ten times.
    assert {key: size for key, size in after.items() if size > before[key] * 1.1 + 64} == {}


@pytest.mark.spec("rival-46")
async def test_ingress_holds_what_nobody_has_applied_yet_and_not_one_entry_more(scene: Scene) -> None:
    for i in range(45):
        await scene.say(session=f"s{i}")
        assert await scene.ingress() == i + 1
    left = 45
    while left:
        done = await dispatch(scene.yard.shards[0])
        left -= done.applied
        assert await scene.ingress() == left


@pytest.mark.spec("rival-47")
async def test_of_two_thousand_messages_that_nobody_drains_none_is_trimmed_and_one_that_cannot_be_applied_is_counted(scene: Scene) -> None:
    names = [f"s{i}" for i in range(2000)]
    for first in range(0, 2000, 250):
        await asyncio.gather(*(scene.say(session=name) for name in names[first : first + 250]))
    assert await scene.ingress() == 2000
    await scene.yard.redis.delete(scene.shard().keys.head(session_key("default", "s1000")))
    dead = applied = 0
    while await scene.ingress():
        done = await dispatch(scene.yard.shards[0])
        dead, applied = dead + done.dead, applied + done.applied
    assert (applied, dead) == (2000, 1)
    (letter,) = await scene.dead()
    assert letter[b"reason"] == b"no_session"
    assert await scene.state("s999") == await scene.state("s1001") == "ready"
    stats = await scene.yard.redis.info("commandstats")
    assert [name for name in stats if "xtrim" in name] == []


@pytest.mark.spec("rival-48", "rival-47")
async def test_a_thousand_worker_starts_leave_no_trace_of_those_that_are_gone(scene: Scene) -> None:
    """A third leaves in order, a third is buried by its supervisor, a third is missed by its lease; each had a turn in its hands."""
    shard = scene.yard.shards[0]
    live = await scene.worker()
    before = set(await scene.yard.redis.keys("*"))
    for n in range(333):
        for end in ("leave", "bury", "lease"):
            owner = await scene.worker(capacity=1, serial=0)
            await fleet.leave(shard, live)
            view = await scene.open_turn(owner, session=f"s{n}")
            if end == "leave":
                await scene.commit(view, ending="yield")
                await fleet.leave(shard, owner)
            live = await scene.worker()
            if end == "bury":
                await scene.tick(owner, who="supervisor")
            elif end == "lease":
                await scene.pass_ms(1)
                await shard.redis.zadd(shard.keys.prefix + "workers", {owner: scene.now_ms - 1})
                await scene.tick()
            await scene.reply(await scene.start(live, f"s{n}"))
    assert [worker.worker for worker in await fleet.list_workers(scene.yard)] == [live]
    left = set(await scene.yard.redis.keys("*")) - before
    assert [key for key in left if not re.search(rb":(ingress|running|run:.+|turns:.+|[hsj]:.+|idx:.+)$", key)] == []
    assert await shard.redis.zrange(shard.keys.prefix + "workers", 0, -1) == [live.encode()]
    assert await shard.redis.hkeys(shard.keys.prefix + "fleet") == [live.encode()]
    assert await shard.redis.hkeys(shard.keys.prefix + "serve:default:bot") == [live.encode()]
    await _no_groups(scene)


async def _no_groups(scene: Scene) -> None:
    """No stream has a consumer group, so there is no consumer to leak, no pending entry to reclaim and nothing to acknowledge."""
    for key in await scene.yard.redis.keys("*"):
        if await scene.yard.redis.type(key) == b"stream":
            assert await scene.yard.redis.xinfo_groups(key) == []
    stats = await scene.yard.redis.info("commandstats")
    group = ("xgroup", "xreadgroup", "xack", "xautoclaim", "xclaim", "xpending")
    assert [name for name in stats if name.removeprefix("cmdstat_").partition("|")[0] in group] == []


@pytest.mark.spec("rival-49")
async def test_a_tick_costs_the_same_for_ten_and_for_four_hundred_workers_and_is_bounded_when_all_of_them_die(scene: Scene) -> None:
    async def cost(*dead: str) -> int:
        await scene.yard.redis.config_resetstat()
        await scene.tick(*dead)
        return await scene.commands()

    shard = scene.yard.shards[0]
    await set_limits(shard, max_concurrent_turns=600)
    owners = [await scene.worker(capacity=1) for _ in range(10)]
    few = await cost()
    owners += [await scene.worker(capacity=1) for _ in range(390)]
    assert await cost() <= few + 1
    for i in range(200):
        await scene.say(session=f"s{i}")
    while await scene.running() < 200:
        await scene.dispatch()
    for i in range(200):
        assert await scene.begin_as(owners[i], 1, f"s{i}") is not None
    await scene.pass_ms(1000)
    for owner in owners:
        await fleet.beat(shard, owner, held=-1, lease_ms=1)
    await scene.pass_ms(20_000)
    await scene.tick()
    most = 0
    for _ in range(400):
        await scene.pass_ms(1000)
        most = max(most, await cost())
        if await shard.redis.zcard(shard.keys.prefix + "workers") == 0:
            break
    assert await shard.redis.zcard(shard.keys.prefix + "workers") == 0
    assert most <= 20 * few + 400


@pytest.mark.spec("rival-42", "rival-67")
async def test_a_step_costs_the_same_at_the_end_of_a_long_history_as_at_its_beginning(scene: Scene) -> None:
    owner = await scene.worker()

    async def step(view: TurnView) -> tuple[TurnView, int]:
        await scene.yard.redis.config_resetstat()
        made = call(view, 0)
        view = await scene.ask(view, made, start=(made.id,))
        view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
        return view, await scene.commands()

    async def next_turn(view: TurnView) -> tuple[TurnView, int]:
        ended = await scene.reply(view)
        known = replace(ended, store=view.store, last_seq=ended.entries[-1].seq)  # as a worker keeps it
        await scene.say("again")
        await scene.yard.redis.config_resetstat()
        view = await scene.start(owner, known=known)
        return view, await scene.commands()

    view = await scene.open_turn(owner)
    view, first_step = await step(view)
    view, first_turn = await next_turn(view)
    for _ in range(60):
        view = await scene.commit(view, append=tuple(Say({"text": "x" * 1000}) for _ in range(50)))
    view, last_step = await step(view)
    view, last_turn = await next_turn(view)
    assert len(view.entries) > 3000
    assert (last_step, last_turn) == (first_step, first_turn)
    await scene.reply(view)


def _names(count: int) -> list[str]:
    made = (new_job_id(0), new_owner_id(), new_turn_id(), new_call_token(0, "s.0", "call_x")[0])
    names = [name for _ in range(count) for name in (new_job_id(0), new_owner_id(), new_turn_id(), new_call_token(0, "s.0", "c")[0])]
    return [*made, *names]


@pytest.mark.spec("rival-43")
def test_names_made_by_several_processes_are_never_the_same_although_they_were_forked_alike() -> None:
    _names(1)  # whatever state the makers keep, the children inherit it
    with multiprocessing.get_context("fork").Pool(4) as pool:
        made = [name for names in pool.map(_names, [500] * 8, chunksize=1) for name in names]
    assert len(made) == 8 * 2004
    assert len(set(made)) == len(made)


@pytest.mark.spec("rival-41")
async def test_the_lock_of_a_session_names_worker_turn_epoch_and_deadline_and_waiting_is_queueing(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    head = await scene.head()
    assert (head["ow"], head["tu"], int(head["ep"])) == (owner, view.turn, view.epoch)
    deadline_ms = await scene.yard.redis.zscore(scene.yard.shards[0].keys.prefix + "workers", owner)
    assert scene.now_ms < deadline_ms <= scene.now_ms + 10_000
    seen = await read_session(scene.yard, tenant="default", session="s")
    assert seen is not None
    assert (seen.holder, seen.turn, seen.epoch) == (owner, view.turn, view.epoch)
    waiting = [await scene.say(f"m{i}", mode="follow_up") for i in range(5)]
    assert [(each.code, each.position) for each in waiting] == [("accepted", n) for n in range(1, 6)]
    # Upkeep in the background takes no lock and leaves that of the turn alone, however long it lasts.
    for _ in range(100):
        await scene.pass_ms(1000)
        await fleet.beat(scene.yard.shards[0], owner, held=1)
        await scene.dispatch()
        await scene.tick()
    assert {name: value for name, value in (await scene.head()).items() if name in ("ow", "tu", "ep")} == {
        name: head[name] for name in ("ow", "tu", "ep")
    }
    for _ in range(6):
        await scene.reply(view)
        if await scene.state() == "idle":
            break
        view = await scene.start(owner)
    assert {(await scene.job(each)).state for each in waiting} == {"succeeded"}
