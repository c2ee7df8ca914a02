"""Calls that are looked at again: when they are handed out, and how long they go on."""

from __future__ import annotations

import pytest

from platforms.lifts import Lifts
from tests.protocol.outside import HOUR_MS, beside, later, pass_to, poll, relayed
from tests.protocol.scene import DAY_MS, Scene, call, shown
from turnyard.records.commit import Answer, Park
from turnyard.state.lanes import sent, take_lane

pytestmark = pytest.mark.asyncio


async def test_a_poll_is_handed_out_when_its_time_comes_and_not_when_it_is_parked(scene: Scene) -> None:
    view, made = await poll(scene)
    lifter = await scene.worker(role="lifted")
    assert await relayed(scene) == []
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "FENCED"
    await pass_to(scene, 4_999)
    assert await relayed(scene) == []
    await pass_to(scene, 1)
    assert await relayed(scene) == [1]
    start = await scene.begin_row(view, made.id, owner=lifter)
    assert (start.code, start.mode, start.kind, start.request, start.raw) == ("OK", "poll", "lift", {"task": "t-1"}, None)
    assert start.expires == scene.now_ms - 5_000 + HOUR_MS


async def test_a_lift_of_the_same_session_does_not_hand_a_poll_out_early(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    first, second = call(view, 0, "lift", queue="slow"), call(view, 1, "lift", queue="slow")
    view = await scene.ask(view, first, second)
    view = await scene.commit(view, append=(Answer(first.id, "placeholder"),), park=(Park(first.id, HOUR_MS, after_ms=5_000),))
    await scene.launch(view, second.id, secret=False, lanes=("arq",))
    (item,) = await take_lane(scene.yard.shards[0], "arq")
    assert [r.call for r in Lifts(None).wanted(item)] == [second.id]  # type: ignore[arg-type]
    assert await sent(scene.yard.shards[0], "arq", item)


@pytest.mark.spec("L04")
async def test_a_poll_goes_on_until_it_has_a_result_and_its_tries_count_deaths_alone(scene: Scene) -> None:
    view, made = await poll(scene, awaited=True)
    lifter, *others = [await scene.worker(role="lifted") for _ in range(3)]
    for n in range(1, 13):
        await pass_to(scene, 5_000)
        assert await relayed(scene) == [n]
        assert (await scene.begin_row(view, made.id, owner=lifter, task=f"t{n}")).attempt == 1
        assert await later(scene, view, made, lifter, 5_000, task=f"t{n}") == "accepted"
        # Stale jobs of other servers come too early.
        assert {(await scene.begin_row(view, made.id, owner=other, task="t1")).code for other in (lifter, *others)} == {"FENCED"}
        assert await scene.yard.redis.scard(scene.shard().keys.owned(lifter)) == 0
    await pass_to(scene, 5_000)
    start = await scene.begin_row(view, made.id, owner=lifter, task="last")
    assert (start.mode, start.expires) == ("poll", scene.now_ms - 65_000 + HOUR_MS)
    assert (await scene.outcome(view, made.id, owner=lifter, task="last")).code == "accepted"
    again = await scene.start(scene.owners[0])
    assert shown(again)[-1] == f"{made.id}:result"
    await scene.reply(again)


async def test_a_poll_that_nobody_takes_is_handed_out_again_after_half_a_minute_however_often_it_ran(scene: Scene) -> None:
    view, made = await poll(scene)
    lifter = await scene.worker(role="lifted")
    for n in range(1, 6):
        await pass_to(scene, 5_000)
        await scene.begin_row(view, made.id, owner=lifter, task=f"t{n}")
        await later(scene, view, made, lifter, 5_000, task=f"t{n}")
    await pass_to(scene, 5_000)
    await relayed(scene)
    await pass_to(scene, 30_000)
    assert await relayed(scene) == [7]
    await pass_to(scene, 60_000)
    assert await relayed(scene) == [8]


async def test_a_poll_ends_with_its_deadline_although_it_ran_at_that_moment(scene: Scene) -> None:
    view, made = await poll(scene, awaited=True)
    lifter = await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await scene.begin_row(view, made.id, owner=lifter)
    await pass_to(scene, HOUR_MS)
    assert [c.call for c in await scene.told(lifter)] == [made.id]
    assert await later(scene, view, made, lifter, 5_000) == "conflict"
    assert await scene.yard.redis.scard(scene.shard().keys.owned(lifter)) == 0
    again = await scene.start(scene.owners[0])
    assert shown(again)[-1] == f"{made.id}:timeout"
    await scene.reply(again)


@pytest.mark.parametrize("ends", ["a result", "nobody"])
async def test_the_deaths_of_a_polls_workers_are_borne_twice_in_a_row_and_end_in_an_error(scene: Scene, ends: str) -> None:
    view, made = await poll(scene, awaited=True)
    await pass_to(scene, 5_000)
    for n in range(1, 4):
        lifter = await scene.worker(role="lifted")
        start = await scene.begin_row(view, made.id, owner=lifter, task=f"t{n}")
        assert (start.mode, start.attempt) == ("poll", n)
        if ends == "a result" and n == 3:
            await later(scene, view, made, lifter, 0, task="t3")
            assert (await scene.begin_row(view, made.id, owner=lifter, task="t4")).attempt == 1
            await scene.outcome(view, made.id, owner=lifter, task="t4")
        else:
            await scene.tick(lifter, parts="")
    again = await scene.start(scene.owners[0])
    assert shown(again)[-1] == f"{made.id}:{'result' if ends == 'a result' else 'error'}"
    await scene.reply(again)


async def test_a_late_word_that_a_call_is_not_done_changes_nothing(scene: Scene) -> None:
    view, made = await poll(scene)
    await pass_to(scene, 5_000)
    dead, lifter = await scene.worker(role="lifted"), await scene.worker(role="lifted")
    await scene.begin_row(view, made.id, owner=dead, task="t1")
    await scene.tick(dead, parts="")
    await scene.begin_row(view, made.id, owner=lifter, task="t2")
    before = await scene.rows()
    assert await later(scene, view, made, dead, 1, task="t1") == "conflict"
    assert await later(scene, view, made, "", 1, task="") == "conflict"
    assert await scene.rows() == before
    assert await later(scene, view, made, lifter, 9_000, task="t2") == "accepted"
    before = await scene.rows()
    assert await later(scene, view, made, lifter, 1, task="t2") == "duplicate"
    assert await scene.rows() == before


async def test_a_lost_answer_to_later_is_asked_for_again_and_the_call_is_put_off_once(scene: Scene) -> None:
    view, made = await poll(scene)
    lifter = await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await relayed(scene)
    await scene.begin_row(view, made.id, owner=lifter)
    with scene.lost_reply():
        assert await later(scene, view, made, lifter, 0) == "duplicate"
    assert await relayed(scene) == [2]


async def test_the_request_of_a_poll_may_change_with_each_look(scene: Scene) -> None:
    view, made = await poll(scene)
    lifter = await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await scene.begin_row(view, made.id, owner=lifter)
    await later(scene, view, made, lifter, 0, request={"page": 2, "seen": []})
    start = await scene.begin_row(view, made.id, owner=lifter, task="task-2")
    assert (start.mode, start.request) == ("poll", {"page": 2, "seen": []})


async def test_a_lifted_body_that_puts_itself_off_runs_again_within_the_time_it_began_with(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "lift", queue="slow")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False, deadline_ms=60_000, lanes=("arq",))
    lifter = await scene.worker(role="lifted")
    first = await scene.begin_row(view, made.id, owner=lifter)
    assert await later(scene, view, made, lifter, 30_000) == "accepted"
    assert (await scene.begin_row(view, made.id, owner=lifter, task="stale")).code == "FENCED"
    await pass_to(scene, 30_000)
    second = await scene.begin_row(view, made.id, owner=lifter, task="task-2")
    assert (second.code, second.mode, second.expires) == ("OK", "run", first.expires)


async def test_a_cancel_ends_a_call_that_waits_for_its_next_look_and_hands_it_out_once_more_to_be_stopped(scene: Scene) -> None:
    view, made = await poll(scene, awaited=True)
    assert (await scene.control("cancel")).code == "accepted"
    await scene.close_turn(await scene.start(scene.owners[0]))
    (item,) = await take_lane(scene.yard.shards[0], "arq")
    assert [(r.type, r.call, r.extra["qn"]) for r in Lifts(None).wanted(item)] == [("call/cancelled", made.id, "slow")]  # type: ignore[arg-type]
    assert await sent(scene.yard.shards[0], "arq", item)
    for lifter in [await scene.worker(role="lifted") for _ in range(2)]:
        start = await scene.begin_row(view, made.id, owner=lifter)
        assert (start.code, start.mode, start.name, start.request) == ("OFF", "poll", "tool0", {"task": "t-1"})
        assert await scene.yard.redis.scard(scene.shard().keys.owned(lifter)) == 0
    await pass_to(scene, 5_000)
    assert await relayed(scene) == []
    await pass_to(scene, 8 * DAY_MS)
    assert await beside(scene) == []


async def test_a_call_that_is_cancelled_while_somebody_looks_is_stopped_by_whoever_looks(scene: Scene) -> None:
    view, made = await poll(scene, awaited=True)
    lifter, other = [await scene.worker(role="lifted") for _ in range(2)]
    await pass_to(scene, 5_000)
    assert await relayed(scene) == [1]
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "OK"
    assert (await scene.control("cancel")).code == "accepted"
    await scene.close_turn(await scene.start(scene.owners[0]))
    assert await relayed(scene) == []
    assert (await scene.begin_row(view, made.id, owner=other)).code == "FENCED"
