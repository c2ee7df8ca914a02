"""What comes to the URL of a call whose tool reads it: each answer in its order, by one task at a time."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.outside import HOUR_MS, beside, callback, later, pass_to, poll, raw, relayed
from tests.protocol.scene import SECRET, Scene, call, shown
from turnyard.records.ids import hash_secret

pytestmark = pytest.mark.asyncio


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


@pytest.mark.spec("trap-43")
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
