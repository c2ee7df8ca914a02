"""The only way from assigned to running: for its owner, once, with everything the turn needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.protocol.scene import OK, Scene, call, shown
from turnyard.records.commit import Answer, Say
from turnyard.records.ids import new_owner_id, session_key
from turnyard.state import fleet, turns

pytestmark = pytest.mark.asyncio


async def test_begin_opens_a_turn_and_answers_with_its_messages(scene: Scene) -> None:
    owner = await scene.worker()
    accepted = await scene.say("hi")
    view = await scene.start(owner)
    assert (view.code, view.epoch, view.rev, view.ended, shown(view)) == ("OK", 1, 0, False, ["hi"])
    assert (view.jobs, view.head["session"], view.head["agent"], view.head["user"]) == ((accepted.job,), "s", "bot", "ann")
    assert (await scene.job(accepted)).state == "running"
    head = await scene.head()
    assert (head["st"], head["ow"], head["at"]) == ("running", owner, "1")


async def test_the_same_owner_again_gets_already_with_the_same_content(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.begin_as(owner, view.epoch)
    assert (await scene.head())["at"] == "1"
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    again = await scene.begin_as(owner, view.epoch)
    assert again is not None
    assert again.code == "ALREADY"
    assert (shown(again), again.rows, again.turn, again.rev, again.last_seq) == (shown(view), view.rows, view.turn, view.rev, view.last_seq)


async def test_a_lost_answer_of_begin_is_asked_for_again(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.say("hi")
    await scene.dispatch()
    with scene.lost_reply():
        view = await scene.begin(owner)
    assert view is not None
    assert (view.code, shown(view)) == ("ALREADY", ["hi"])


@pytest.mark.parametrize("who", ["another epoch", "another owner", "a stranger", "an expelled owner", "an owner that left"])
async def test_begin_is_refused_and_changes_nothing_for(scene: Scene, who: str) -> None:
    owner, other = await scene.worker(), await scene.worker()
    await scene.say()
    await scene.dispatch()
    epoch = 1
    if who == "another epoch":
        epoch = 2
    elif who == "another owner":
        assert await scene.begin_as(other, 1) is not None
    elif who == "a stranger":
        owner = new_owner_id()
        scene._serials[owner] = 0
    elif who == "an expelled owner":
        await scene.yard.redis.zadd(scene.yard.shards[0].keys.prefix + "workers", {owner: "-inf"})
    else:
        await fleet.leave(scene.yard.shards[0], owner)
    before = await scene.snapshot()
    assert await scene.begin_as(owner, epoch) is None
    assert await scene.snapshot() == before


@pytest.mark.parametrize("state", ["idle", "ready", "parked"])
async def test_begin_is_refused_in_state(scene: Scene, state: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    if state == "idle":
        await scene.reply(view)
    elif state == "ready":
        await scene.commit(view, ending="yield")
    else:
        made = call(view, 0, "callback", awaited=True)
        await scene.park(await scene.ask(view, made), made.id)
    assert await scene.state() == state
    assert await scene.begin_as(owner, view.epoch) is None
    assert await scene.state() == state


async def test_what_the_worker_still_knows_is_not_sent_again(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "one")
    store = view.store
    view = await scene.reply(view, "first")
    known = replace(view, store=store, last_seq=view.entries[-1].seq)
    assert view.ended
    await scene.say("two")
    await scene.dispatch()
    assert await _records_sent(scene, owner, known) == [b"inbox/accepted", b"user/message"]
    again = await scene.begin_as(owner, 2)
    assert again is not None
    assert shown(again) == ["one", "=first", "two"]


@pytest.mark.parametrize("wrong", ["mark", "store", "seq"])
async def test_what_the_worker_knows_wrongly_is_sent_whole(scene: Scene, wrong: str) -> None:
    owner, other = await scene.worker(), await scene.worker()
    view = await scene.open_turn(owner, "one")
    store = view.store
    old = await scene.reply(view, "first")
    known = replace(old, store=store, last_seq=old.entries[-1].seq)
    if wrong == "mark":
        await scene.say("elsewhere")
        await scene.dispatch()
        await scene.take(owner)
        elsewhere = await scene.begin_as(other, 2)
        assert elsewhere is not None
        await scene.reply(elsewhere, "second")
        expected = ["one", "=first", "elsewhere", "=second", "two"]
    elif wrong == "store":
        await scene.control("new")
        expected = ["two"]
    else:
        known = replace(known, last_seq=0)
        expected = ["one", "=first", "two"]
    await scene.say("two")
    view = await scene.start(owner, known=known)
    assert shown(view) == expected


async def test_what_a_strike_took_from_a_known_view_is_gone_from_the_next(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "one")
    store = view.store
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    await scene.say("rather this", mode="rollback")
    await scene.dispatch()
    ended = await scene.commit(view, append=(Answer(made.id, "result", OK),), ending="finish", closing=True)
    known = replace(ended, store=store, last_seq=ended.entries[-1].seq)
    view = await scene.start(owner, known=known)
    fresh = await scene.begin_as(owner, view.epoch)
    assert fresh is not None
    assert shown(view) == shown(fresh) == ["rather this"]


async def test_a_log_longer_than_one_page_reaches_the_worker_whole(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "hi")
    for _ in range(3):
        view = await scene.commit(view, append=tuple(Say({"text": f"t{i}"}) for i in range(90)))
    await scene.commit(view, ending="yield")
    view = await scene.start(owner)
    assert len(view.entries) == 271
    assert [e.seq for e in view.entries] == sorted(e.seq for e in view.entries)
    assert view.last_seq == view.entries[-1].seq
    await scene.reply(view)


@pytest.mark.spec("trap-42")
async def test_entries_larger_than_one_answer_reach_the_worker(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "x" * 400_000)
    assert len(view.entries[0].body["text"]) == 400_000
    view = await scene.commit(view, append=(Say({"text": "y" * 200_000}), Say({"text": "z" * 200_000})))
    raw = await _raw_begin(scene, owner, view.epoch)
    assert (raw[3], raw[4]) == ([], 1)
    again = await scene.begin_as(owner, view.epoch)
    assert again is not None
    assert [len(e.body["text"]) for e in again.entries] == [400_000, 200_000, 200_000]


async def test_begin_counts_its_attempts_at_a_step(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    assert str(view.head["attempt"]) == "1"
    made = call(view, 0, idempotent=True)
    await scene.commit(await scene.ask(view, made), start=(made.id,))
    for attempt in ("1", "2", "3"):
        await scene.tick(owner, who="supervisor")
        owner = await scene.worker()
        view = await scene.start(owner)
        assert str(view.head["attempt"]) == attempt
    await scene.commit(view, append=(Answer(made.id, "result", OK),))
    assert (await scene.head())["at"] == "0"


async def test_a_worker_with_an_older_agent_hands_the_turn_back(scene: Scene) -> None:
    new = await scene.worker(serial=2)
    view = await scene.open_turn(new)
    await scene.commit(view, ending="yield")
    old = await scene.worker(serial=1)
    await scene.dispatch()
    assert await scene.begin_as(old, 2) is None
    assert await scene.state() == "ready"
    assert await scene.running() == 0


async def test_begin_works_after_the_server_forgot_every_script(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.say("hi")
    await scene.dispatch()
    await scene.forget_scripts()
    view = await scene.begin(owner)
    assert view is not None
    assert (view.code, shown(view)) == ("OK", ["hi"])


async def test_a_full_server_lets_a_turn_begin_and_end(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.say("hi")
    await scene.dispatch()
    async with scene.full_server():
        view = await scene.begin(owner)
        assert view is not None
        await scene.commit(view, ending="yield")
    assert await scene.state() == "ready"


async def _raw_begin(scene: Scene, owner: str, epoch: int, *known: object) -> list:
    sid = session_key("default", "s")
    return await scene.yard.shards[0].run("begin", sid, epoch, owner, "turn_x", 0, *(known or ("", 0, "")))


async def _records_sent(scene: Scene, owner: str, known: turns.TurnView) -> list[bytes]:
    """Begin with what is known; return the types of the records that came, but for those of the turn's end before."""
    records = (await _raw_begin(scene, owner, 2, known.store, known.last_seq, known.mark))[3]
    types = [fields[fields.index(b"t") + 1] for _, fields in records]
    assert types.pop(0) == b"turn/end"
    return types


async def test_a_notice_that_was_cleared_while_the_last_step_ran_is_gone_from_a_known_view(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.notice("full")
    view = await scene.open_turn(owner, "one")
    store = view.store
    await scene.notice("", clear=True)
    await scene.dispatch()
    ended = await scene.reply(view)
    known = replace(ended, store=store, last_seq=ended.entries[-1].seq)
    await scene.say("two")
    view = await scene.start(owner, known=known)
    fresh = await scene.begin_as(owner, view.epoch)
    assert fresh is not None
    assert shown(view) == shown(fresh) == ["one", "=bye", "two"]
