"""Calls that wait outside and need their app's code again: when they are handed out, and who reads what came for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from platforms.lifts import Lifts
from tests.protocol.scene import DAY_MS, OK, SECRET, Scene, call, shown
from turnyard.records.commit import Answer, NewCall, Park, TurnView
from turnyard.records.ids import hash_secret
from turnyard.records.live import read_progress
from turnyard.records.messages import Accepted
from turnyard.state import calls, ingress
from turnyard.state.explain import explain
from turnyard.state.lanes import sent, take_lane
from turnyard.state.sessions import read_session

pytestmark = pytest.mark.asyncio

HOUR_MS = 3_600_000
RIPE = {"content": "slept", "is_error": False}


async def poll(scene: Scene, *, awaited: bool = False, after_ms: int = 5_000, **more: Any) -> tuple[TurnView, NewCall]:
    """A turn whose call is looked at again every few seconds, for an hour at most."""
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "lift", awaited=awaited, queue="slow", timeout_ms=60_000)
    view = await scene.ask(view, made)
    parked = Park(made.id, HOUR_MS, after_ms=after_ms, request={"task": "t-1"}, **more)
    if awaited:
        await scene.commit(view, park=(parked,), ending="park")
        return view, made
    return await scene.commit(view, append=(Answer(made.id, "placeholder", OK),), park=(parked,)), made


async def callback(scene: Scene, *, awaited: bool = False, queue: str | None = "slow", **more: Any) -> tuple[TurnView, NewCall]:
    """A turn whose call waits for what comes to its URL, which its tool reads."""
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=awaited, queue=queue)
    view = await scene.ask(view, made)
    parked = Park(made.id, HOUR_MS, hash_secret(SECRET), **more)
    if awaited:
        await scene.commit(view, park=(parked,), ending="park")
        return view, made
    return await scene.commit(view, append=(Answer(made.id, "placeholder", OK),), park=(parked,)), made


async def raw(scene: Scene, view: TurnView | str, made: NewCall, text: str = "a", **more: Any) -> Accepted:
    return await scene.outcome(view, made.id, "raw", body={"content": text}, **more)


async def later(scene: Scene, view: TurnView, made: NewCall, owner: str, after_ms: int | None, *, task: str = "task-1", **more: Any) -> str:
    shard = scene.yard.shards[0]
    said = await calls.put_off(scene.yard, shard, view.store, made.id, owner=owner, task=task, after_ms=after_ms, **more)
    return said.code


async def relayed(scene: Scene) -> list[int]:
    """Carry what the lane owes; return the numbers of the relays that a carrier would make of it."""
    found: list[int] = []
    for item in await take_lane(scene.yard.shards[0], "arq"):
        found += [int(r.extra["re"]) for r in Lifts(None).wanted(item)]  # type: ignore[arg-type]
        await sent(scene.yard.shards[0], "arq", item)
    return found


async def beside(scene: Scene, ordinal: int = 0) -> list[str]:
    """Return the kinds of fields that stand beside the rows."""
    shard = scene.shard()
    raw = await shard.redis.hkeys(shard.keys.calls(f"{scene.sid()}.{ordinal}"))
    return sorted({k.decode().rpartition(":")[2] for k in raw if b":" in k})


async def pass_to(scene: Scene, ms: int) -> None:
    await scene.pass_ms(ms)
    await scene.tick(parts="d")


# -- polls


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
    lifter = await scene.worker(role="lifted")
    for n in range(1, 13):
        await pass_to(scene, 5_000)
        assert await relayed(scene) == [n]
        assert (await scene.begin_row(view, made.id, owner=lifter, task=f"t{n}")).attempt == 1
        assert await later(scene, view, made, lifter, 5_000, task=f"t{n}") == "accepted"
        # Another server's stale job comes too early.
        assert (await scene.begin_row(view, made.id, owner=lifter, task="t1")).code == "FENCED"
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


async def test_a_cancel_ends_a_call_that_waits_for_its_next_look(scene: Scene) -> None:
    await poll(scene, awaited=True)
    assert (await scene.control("cancel")).code == "accepted"
    view = await scene.start(scene.owners[0])
    await scene.close_turn(view)
    await pass_to(scene, 5_000)
    assert await relayed(scene) == []
    await pass_to(scene, 8 * DAY_MS)
    assert await beside(scene) == []


# -- answers that the call's tool reads


@pytest.mark.spec("runner-32")
async def test_an_answer_is_read_by_a_task_and_what_that_says_is_the_result(scene: Scene) -> None:
    view, made = await callback(scene, awaited=True)
    lifter = await scene.worker(role="lifted")
    assert await relayed(scene) == []
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "FENCED"
    assert (await raw(scene, view, made)).code == "accepted"
    assert await relayed(scene) == [1]
    start = await scene.begin_row(view, made.id, owner=lifter)
    assert (start.code, start.mode, start.kind, start.raw) == ("OK", "resolve", "callback", {"content": "a"})
    assert (await scene.outcome(view, made.id, owner=lifter, task="task-1")).code == "accepted"
    assert await beside(scene) == ["r"]
    again = await scene.start(scene.owners[0])
    assert shown(again) == ["hello", "=", f"?{made.id}", f"{made.id}:result"]
    await scene.reply(again)


async def test_answers_are_read_in_order_one_task_at_a_time_until_one_is_final(scene: Scene) -> None:
    view, made = await callback(scene)
    lifter = await scene.worker(role="lifted")
    for text in "abc":
        assert (await raw(scene, view, made, text)).code == "accepted"
    assert await relayed(scene) == [1]
    for n, text in enumerate("abc", 1):
        start = await scene.begin_row(view, made.id, owner=lifter, task=f"t{n}")
        assert start.raw == {"content": text}
        again = await scene.begin_row(view, made.id, owner=lifter, task=f"t{n}")
        assert (again.code, again.raw) == ("ALREADY", start.raw)
        assert (await scene.begin_row(view, made.id, owner=lifter, task="other")).code == "FENCED"
        assert await later(scene, view, made, lifter, None, task=f"t{n}") == "accepted"
        assert await relayed(scene) == ([n + 1] if n < 3 else [])
    assert (await scene.begin_row(view, made.id, owner=lifter, task="t4")).code == "FENCED"
    assert (await raw(scene, view, made, "d")).code == "accepted"
    assert await relayed(scene) == [4]


async def test_an_answer_that_comes_while_another_is_read_waits_its_turn(scene: Scene) -> None:
    view, made = await callback(scene)
    lifter = await scene.worker(role="lifted")
    await raw(scene, view, made, "a")
    await relayed(scene)
    await scene.begin_row(view, made.id, owner=lifter)
    await raw(scene, view, made, "b")
    assert await relayed(scene) == []
    await later(scene, view, made, lifter, None)
    assert await relayed(scene) == [2]
    assert (await scene.begin_row(view, made.id, owner=lifter, task="t2")).raw == {"content": "b"}


@pytest.mark.spec("rival-15")
async def test_the_same_answer_twice_is_kept_once_and_the_seventeenth_is_refused(scene: Scene) -> None:
    view, made = await callback(scene)
    said = [(await raw(scene, view, made, f"{i % 16}")).code for i in range(32)]
    assert said == ["accepted"] * 16 + ["duplicate"] * 16
    assert (await raw(scene, view, made, "one more")).code == "inbox_full"
    lifter = await scene.worker(role="lifted")
    await scene.begin_row(view, made.id, owner=lifter)
    await later(scene, view, made, lifter, None)
    assert (await raw(scene, view, made, "one more")).code == "accepted"
    # What was read and changed nothing may come again: it may say that something new is to be seen.
    await scene.begin_row(view, made.id, owner=lifter, task="t2")
    await later(scene, view, made, lifter, None, task="t2")
    assert (await raw(scene, view, made, "0")).code == "accepted"


async def test_an_answer_after_the_outcome_is_a_repeat_or_a_conflict_and_after_the_deadline_too_late(scene: Scene) -> None:
    view, made = await callback(scene)
    lifter = await scene.worker(role="lifted")
    await raw(scene, view, made, "a")
    await scene.begin_row(view, made.id, owner=lifter)
    await scene.outcome(view, made.id, owner=lifter, task="task-1")
    assert (await raw(scene, view, made, "a")).code == "duplicate"
    assert (await raw(scene, view, made, "b")).code == "conflict"
    await scene.dispatch()
    await scene.reply(await scene.commit(view, claim=True))
    view, made = await callback(scene, awaited=True)
    await scene.pass_ms(HOUR_MS)
    assert (await raw(scene, view, made, "b")).code == "expired"
    await scene.tick(parts="d")
    assert (await raw(scene, view, made, "b")).code == "expired"


@pytest.mark.parametrize("how", ["guessed", "another call", "another history", "another session"])
async def test_an_answer_without_the_calls_own_secret_is_gone_and_changes_nothing(scene: Scene, how: str) -> None:
    view, made = await callback(scene)
    before = await scene.rows()
    if how == "guessed":
        said = await raw(scene, view, made, secret_hash=hash_secret(b"x" * 32))
    elif how == "another call":
        said = await scene.outcome(view, made.id[:-1] + "x", "raw")
    elif how == "another history":
        said = await raw(scene, f"{view.session}.1", made)
    else:
        said = await raw(scene, f"{scene.sid('s', 'other')}.0", made)
    assert said.code == "gone"
    assert await scene.rows() == before


async def test_without_a_tool_that_reads_it_an_answer_is_the_result(scene: Scene) -> None:
    view, made = await callback(scene, queue=None)
    assert (await raw(scene, view, made)).code == "accepted"
    await scene.dispatch()
    view = await scene.commit(view, claim=True)
    assert shown(view)[-1] == f"{made.id}:result"
    assert (await raw(scene, view, made)).code == "duplicate"
    assert (await raw(scene, view, made, "b")).code == "conflict"


async def test_an_answer_to_a_lifted_call_is_gone(scene: Scene) -> None:
    view, made = await poll(scene)
    assert (await raw(scene, view, made)).code == "gone"


@pytest.mark.spec("trap-21", "trap-43")
@pytest.mark.parametrize("worker", ["goes on", "dies"])
async def test_an_answer_that_comes_before_the_call_is_parked_is_read_when_it_is(scene: Scene, worker: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True, queue="slow")
    view = await scene.ask(view, made, start=(made.id,), tokens=((made.id, hash_secret(SECRET)),))
    assert (await raw(scene, view, made)).code == "accepted"
    assert await relayed(scene) == []
    if worker == "dies":
        await scene.tick(owner, parts="")
        second = await scene.worker()
        view = await scene.start(second)
        assert [(r.state, r.outcome) for r in view.rows] == [("started", None)]
    await scene.park(view, made.id)
    assert await relayed(scene) == [1]
    lifter = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, made.id, owner=lifter)).raw == {"content": "a"}


async def test_the_worker_that_reads_an_answer_dies_and_the_next_one_reads_the_same(scene: Scene) -> None:
    view, made = await callback(scene, awaited=True)
    await raw(scene, view, made)
    for n in range(1, 4):
        lifter = await scene.worker(role="lifted")
        start = await scene.begin_row(view, made.id, owner=lifter, task=f"t{n}")
        assert (start.mode, start.raw, start.attempt) == ("resolve", {"content": "a"}, n)
        await scene.tick(lifter, parts="")
    again = await scene.start(scene.owners[0])
    assert shown(again)[-1] == f"{made.id}:error"
    assert await beside(scene) == ["r"]
    await scene.reply(again)


@pytest.mark.parametrize("first", ["the deadline", "a cancel"])
async def test_what_waits_to_be_read_goes_when_the_call_ends_otherwise(scene: Scene, first: str) -> None:
    view, made = await callback(scene, awaited=True)
    lifter = await scene.worker(role="lifted")
    await raw(scene, view, made, "a")
    await raw(scene, view, made, "b")
    await scene.begin_row(view, made.id, owner=lifter)
    if first == "the deadline":
        await pass_to(scene, HOUR_MS)
    else:
        await scene.control("cancel")
        await scene.dispatch()
    assert await beside(scene) == []
    assert [c.call for c in await scene.told(lifter)] == [made.id]
    said = await scene.outcome(view, made.id, owner=lifter, task="task-1")
    # What was read in time counts as a late result after a timeout, and as nothing after a cancel.
    assert said.code == ("accepted" if first == "the deadline" else "conflict")
    again = await scene.start(scene.owners[0])
    await scene.commit(again, ending="finish", closing=True)


async def test_a_callback_that_is_also_looked_at_is_handed_out_for_whichever_comes_first(scene: Scene) -> None:
    view, made = await callback(scene, after_ms=5_000, request={"order": 7})
    lifter = await scene.worker(role="lifted")
    await raw(scene, view, made)
    assert await relayed(scene) == [1]
    assert (await scene.begin_row(view, made.id, owner=lifter)).mode == "resolve"
    await later(scene, view, made, lifter, 5_000)
    await pass_to(scene, 5_000)
    assert await relayed(scene) == [2]
    start = await scene.begin_row(view, made.id, owner=lifter, task="t2")
    assert (start.mode, start.kind, start.request) == ("poll", "callback", {"order": 7})


@pytest.mark.spec("trap-27")
async def test_an_answer_that_comes_after_new_is_read_and_its_result_goes_to_the_history_that_asked(scene: Scene) -> None:
    view, made = await callback(scene)
    await scene.reply(view)
    await scene.control("new")
    await scene.dispatch()
    lifter = await scene.worker(role="lifted")
    assert (await raw(scene, view, made)).code == "accepted"
    assert (await scene.begin_row(view, made.id, owner=lifter)).mode == "resolve"
    await scene.outcome(view, made.id, owner=lifter, task="task-1")
    again = await scene.start(scene.owners[0])
    assert again.store == view.store
    assert shown(again)[-1] == f"{made.id}:result"
    await scene.reply(again)


@pytest.mark.spec("L26")
async def test_answers_to_two_calls_in_reverse_order_each_reach_their_own(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = [call(view, i, "callback", awaited=True, queue="slow") for i in range(2)]
    view = await scene.ask(view, *made)
    await scene.park(view, *(m.id for m in made))
    lifter = await scene.worker(role="lifted")
    for i in (1, 0):
        await raw(scene, view, made[i], f"for {i}")
    for i in (0, 1):
        start = await scene.begin_row(view, made[i].id, owner=lifter, task=f"t{i}")
        assert (start.name, start.raw) == (f"tool{i}", {"content": f"for {i}"})
        await scene.outcome(view, made[i].id, owner=lifter, task=f"t{i}", body={"content": f"of {i}", "is_error": False})
    again = await scene.start(scene.owners[0])
    assert [e.body["content"] for e in again.entries[-2:]] == ["of 0", "of 1"]
    await scene.reply(again)


async def test_of_two_relays_of_an_answer_one_reads_it(scene: Scene) -> None:
    view, made = await callback(scene)
    lifters = [await scene.worker(role="lifted") for _ in range(3)]
    await raw(scene, view, made)
    await pass_to(scene, 30_000)
    starts = await asyncio.gather(*(scene.begin_row(view, made.id, owner=o, task=f"t{i}") for i, o in enumerate(lifters)))
    assert sorted(s.code for s in starts) == ["FENCED", "FENCED", "OK"]


# -- what a deadline gives


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_ripe_call_has_its_result_when_its_time_is_over(scene: Scene, awaited: bool) -> None:
    view, made = await callback(scene, awaited=awaited, queue=None, ripe=RIPE)
    if not awaited:
        await scene.reply(view)
    await pass_to(scene, HOUR_MS - 1)
    assert await beside(scene) == ["p"]
    await pass_to(scene, 1)
    again = await scene.start(scene.owners[0])
    assert shown(again)[-1] == f"{made.id}:result"
    assert again.entries[-1].body == RIPE
    assert [(r.outcome, r.extra["by"]) for r in await scene.log() if r.type == "call/resolved"] == [("result", "tick")]
    await scene.reply(again)


@pytest.mark.parametrize("first", ["an outcome", "a cancel"])
async def test_what_comes_before_a_ripe_calls_time_counts_instead(scene: Scene, first: str) -> None:
    view, made = await callback(scene, awaited=True, queue=None, ripe=RIPE)
    if first == "an outcome":
        assert (await scene.outcome(view, made.id, body={"content": "woken", "is_error": False})).code == "accepted"
    else:
        await scene.control("cancel")
    again = await scene.start(scene.owners[0])
    assert await beside(scene) == (["r"] if first == "an outcome" else [])
    again = await scene.commit(again, ending="finish", closing=True)
    told = [(r.outcome, r.body.get("content")) for r in await scene.log() if r.type == "tool/result"]
    assert told == [("result", "woken") if first == "an outcome" else ("cancelled", None)]


# -- what a task says on its way


async def test_what_a_task_reports_stands_beside_its_row_until_the_call_ends(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view, made = await poll(scene, awaited=True)
    lifter = await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await scene.begin_row(view, made.id, owner=lifter)
    length = len(await scene.log())
    await ingress.follow(scene.yard, view.session, 60)
    for i in range(3):
        assert await calls.report(shard, view.store, made.id, owner=lifter, task="task-1", fraction=i / 4, note=f"frame {i}")
    assert len(await scene.log()) == length
    assert "g" in await beside(scene)
    said = {"fraction": 0.5, "note": "frame 2", "at": scene.now_ms}
    shown_session = await read_session(scene.yard, tenant="default", session="s")
    assert shown_session is not None
    assert [parked.progress for parked in shown_session.parked] == [said]
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert (why.code, why.facts["progress"]) == ("lifted_running", said)
    assert "lifted tool tool0 looks again" in why.detail
    assert "at 50% frame 2" in why.detail
    told = [fields[b"b"].decode() for _, fields in await shard.redis.xrange(shard.keys.live(view.store))]
    assert [read_progress(text) for text in told] == [(made.id, i / 4, f"frame {i}") for i in range(3)]
    assert not await calls.report(shard, view.store, made.id, owner=lifter, task="task-2", note="not mine")
    await scene.outcome(view, made.id, owner=lifter, task="task-1")
    assert not await calls.report(shard, view.store, made.id, owner=lifter, task="task-1", note="too late")
    assert "g" not in await beside(scene)


async def test_what_a_tool_says_to_the_user_stands_in_the_log_once(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    said = [await ingress.say(scene.yard, "default", "s", "half way", event="e1", turn=view.turn, call="call_1") for _ in range(2)]
    assert [a.code for a in said] == ["accepted", "duplicate"]
    (record,) = [r for r in await scene.log() if r.type == "message/sent"]
    assert (record.turn, record.call, record.body) == (view.turn, "call_1", {"text": "half way", "call": "call_1"})
    assert (await ingress.say(scene.yard, "default", "nobody", "x", event="e2")).code == "gone"
    assert (await ingress.say(scene.yard, "other", "s", "x", event="e2")).code == "gone"
    view = await scene.commit(view, claim=True)
    assert shown(view) == ["hello"]
    await scene.reply(view)


async def test_who_follows_sees_what_a_task_reports(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view, made = await poll(scene)
    lifter = await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await scene.begin_row(view, made.id, owner=lifter)
    await calls.report(shard, view.store, made.id, owner=lifter, task="task-1", note="nobody looks")
    await ingress.follow(scene.yard, view.session, 30)
    await calls.report(shard, view.store, made.id, owner=lifter, task="task-1", fraction=0.5, note="half")
    ((_, seen),) = await shard.redis.xrange(shard.keys.live(view.store))
    assert (seen[b"k"], read_progress(seen[b"b"].decode())) == (b"progress", (made.id, 0.5, "half"))
    # The turn's own deltas still find their place behind it.
    at = await shard.redis.xadd(shard.keys.live(view.store), {"k": "text"}, id=f"{view.last_seq}-*")
    assert at.startswith(b"%d-" % view.last_seq)


async def test_that_nobody_knows_how_a_call_ended_is_said_by_its_own_task_alone(scene: Scene) -> None:
    view, made = await poll(scene, awaited=True)
    lifter, other = await scene.worker(role="lifted"), await scene.worker(role="lifted")
    await pass_to(scene, 5_000)
    await scene.begin_row(view, made.id, owner=lifter)
    assert (await scene.outcome(view, made.id, "unknown", owner=other, task="task-1")).code == "conflict"
    assert (await scene.outcome(view, made.id, "unknown", secret_hash=None)).code == "conflict"
    assert (await scene.rows())[made.id].get("o") is None
    assert (await scene.outcome(view, made.id, "unknown", owner=lifter, task="task-1")).code == "accepted"
    assert (await scene.outcome(view, made.id, "unknown", owner=lifter, task="task-1")).code == "conflict"
    again = await scene.start(scene.owners[0])
    assert shown(again)[-1] == f"{made.id}:unknown"
    await scene.reply(again)


async def test_why_a_session_waits_names_when_its_call_is_looked_at_again_and_who_reads_an_answer(scene: Scene) -> None:
    await poll(scene, awaited=True)
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert (why.code, why.facts["due_ms"]) == ("timer", scene.now_ms + 5_000)
    assert "looks again in 5.0 s" in why.detail
    await pass_to(scene, 5_000)
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert (why.code, why.facts["relays"]) == ("lifted_queued", 1)
    await scene.control("cancel")
    await scene.close_turn(await scene.start(scene.owners[0]))
    view, made = await callback(scene, awaited=True)
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert "from outside" in why.detail
    await raw(scene, view, made)
    why = await explain(scene.yard, tenant="default", session="s")
    assert why is not None
    assert why.code == "lifted_queued"
