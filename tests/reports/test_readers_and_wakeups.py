"""Readers that die with something in hand, wake-ups that are lost, and input that comes at the worst moment.

All of it on a real server with its clock held: what a reader took is the server's again by a deadline, whatever wakes
is derived from state, and one transition decides who comes first.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.scene import CLOCK, DAY_MS, OK, Scene, call, shown
from turnyard.records.commit import Answer, Say, Wait
from turnyard.state import fleet, ingress, scripts, upkeep
from turnyard.state.flows import dispatch, set_limits
from turnyard.state.lanes import sent, take_lane
from turnyard.state.scripts import Library
from turnyard.state.yard import Yard

BEGIN_BY_MS = 3000


@pytest.mark.spec("L16")
@pytest.mark.parametrize("shards", [1, 3])
async def test_what_a_dead_reader_took_is_given_out_again_on_every_shard(clean: str, shards: int) -> None:
    scene = await Scene.open(clean, shards=shards)
    names = [f"s{i}" for i in range(6)]
    dead, alive = await scene.worker(), await scene.worker()
    for name in names:
        await scene.say(session=name)
    for shard in scene.yard.shards:
        await scene.dispatch(shard)
    # All of it went off the lists into the hands of one that never says another word.
    assert [await scene.take(dead, name) is not None for name in names] == [True] * 6
    assert await scene.take(alive, names[0]) is None
    await scene.pass_ms(BEGIN_BY_MS + 1)
    for shard in scene.yard.shards:
        await scene.tick(shard=shard)
    for name in names:
        view = await scene.begin(alive, name)
        assert view is not None, f"{name} never came back"
        await scene.reply(view)
    await scene.close()


@pytest.mark.spec("L16")
async def test_what_a_dead_relay_or_lifted_worker_took_is_given_out_again(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view = await scene.open_turn(await scene.worker())
    lift = call(view, 0, "lift", idempotent=True)
    view = await scene.launch(await scene.ask(view, lift), lift.id, secret=False, lanes=("arq",))
    assert len(await take_lane(shard, "arq")) == 1  # a relay that dies with it
    await scene.pass_ms(30_001)
    (item,) = await take_lane(shard, "arq")
    assert await sent(shard, "arq", item)
    dead = await scene.worker(role="lifted")
    assert (await scene.begin_row(view, lift.id, owner=dead)).code == "OK"
    await scene.tick(dead)
    (again,) = await take_lane(shard, "arq")
    assert [(r.type, r.call) for r in again.records] == [("call/relayed", lift.id)]


@pytest.mark.spec("rival-3", "runner-6")
@pytest.mark.parametrize("when", ["dispatched before the ending", "accepted before the ending", "accepted after the ending"])
async def test_a_steer_that_comes_as_the_turn_ends_is_answered(scene: Scene, when: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    late = None if when == "accepted after the ending" else await scene.say("late")
    if when == "dispatched before the ending":
        await scene.dispatch()
    view = await scene.reply(view)
    late = late or await scene.say("late")
    if view.ended:
        view = await scene.start(owner)
    assert shown(view)[-1] == "late"
    await scene.reply(view)
    assert await scene.entries() == ["hello", "=bye", "late", "=bye"]
    assert (await scene.job(late)).state == "succeeded"


def _deaf() -> str:
    """The scripts without any signal: no wake entry is left, and no cancel is pushed to a worker."""
    source = scripts.library_source()
    for signal in (
        "call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'wake')",
        "call('RPUSH', ctl, 'turn ' .. h.sid .. ' ' .. h.ep)",
        "call('RPUSH', P .. 'w:' .. r.tk .. ':ctl', 'call ' .. r.c)",
    ):
        assert signal in source, f"the scripts no longer say {signal}"
        source = source.replace(signal, "local _ = 0")
    return source


@pytest.mark.spec("rival-4")
async def test_with_every_wake_up_lost_the_tick_finds_all_there_is_to_do(clean: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = _deaf()
    monkeypatch.setattr(scripts, "library_source", lambda: deaf)
    scene = await Scene.open(clean)
    await set_limits(scene.yard.shards[0], max_concurrent_turns=4)
    dying, owner = await scene.worker(capacity=2), await scene.worker(capacity=8)
    names = [f"s{i}" for i in range(12)]
    for name in names:
        await scene.say(session=name)
    await scene.dispatch()
    # Somebody dies with a turn and with assignments that it never began; another is cancelled in mid-turn.
    assert await scene.begin(dying, names[0]) is not None
    await scene.tick(dying, who="supervisor")
    stopped = await scene.begin_as(owner, 1, names[1])
    assert stopped is not None
    await scene.control("cancel", session=names[1])
    await scene.dispatch()
    await scene.commit(stopped, ending="finish", closing=True)
    await scene.pass_ms(BEGIN_BY_MS + 1)
    finished = {names[1]}
    for _ in range(8):
        await scene.tick()
        for name in [n for n in names if n not in finished]:
            if (view := await scene.begin(owner, name)) is not None:
                await scene.reply(view)
                finished.add(name)
    assert finished == set(names)
    assert await scene.ingress() == 0
    await scene.close()


async def _run(scene: Scene, owner: str, session: str):
    view = await scene.begin(owner, session)
    assert view is not None
    return view


@pytest.mark.spec("rival-5")
async def test_what_a_turn_took_and_did_not_answer_comes_first_again_in_its_order(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first, "m1")
    await scene.say("m2")
    await scene.dispatch()
    made = call(view, 0)
    view = await scene.ask(view, made, start=(made.id,))
    view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    assert shown(view)[-1] == "m2"
    await scene.tick(first)
    await scene.say("m3")
    view = await scene.start(second)
    assert [w for w in shown(view) if w.startswith("m")] == ["m1", "m2", "m3"]
    await scene.reply(view)
    assert [w for w in await scene.entries() if w.startswith("m")] == ["m1", "m2", "m3"]


@pytest.mark.spec("rival-5")
async def test_what_a_struck_turn_took_from_others_goes_back_to_the_front(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "wrong", user="ann")
    await scene.say("by the way", user="bob", asker=False)
    await scene.dispatch()
    view = await scene.commit(view, append=(Say({"text": "thinking"}),), claim=True)
    assert shown(view)[-1] == "by the way"
    await scene.say("right", user="ann", mode="rollback")
    await scene.dispatch()
    await scene.commit(view, ending="finish", closing=True)
    view = await scene.start(owner)
    assert shown(view) == ["by the way", "right"]
    await scene.reply(view)


@pytest.mark.spec("rival-6")
@pytest.mark.parametrize("state", ["running", "parked"])
async def test_a_steer_and_a_cancel_overtake_what_was_queued_for_later(scene: Scene, state: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "m0")
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    for text in ("later 1", "later 2"):
        await scene.say(text, mode="follow_up")
    if state == "parked":
        await scene.park(view, made.id)
    steer = await scene.say("now")
    await scene.dispatch()
    view = await _run(scene, owner, "s") if state == "parked" else await scene.park(view, made.id)
    assert shown(view)[-1] == "now"
    assert not [w for w in shown(view) if w.startswith("later")]
    await scene.control("cancel")
    await scene.dispatch()
    await scene.commit(view, ending="finish", closing=True)
    assert (await scene.job(steer)).state == "cancelled"
    for text in ("later 1", "later 2"):
        view = await scene.start(owner)
        assert shown(view)[-1] == text
        await scene.reply(view)


@pytest.mark.spec("rival-34", "I1")
async def test_of_many_who_recover_a_dead_workers_turn_one_runs_it(clean: str) -> None:
    scene = await Scene.open(clean)
    others = [await Yard.open(clean, library=Library(clock_lua=CLOCK)) for _ in range(3)]
    dead = await scene.worker()
    for name in "abcd":
        await scene.open_turn(dead, session=name)
    workers = [await scene.worker() for _ in range(3)]
    await asyncio.gather(*(upkeep.tick(yard.shards[0], dead=(dead,)) for yard in [scene.yard, *others] for _ in range(3)))
    for name in "abcd":
        head = await scene.head(name)
        assert (head["st"], head["ep"]) == ("assigned", "2")
        begun = await asyncio.gather(*(scene.begin_as(owner, 2, name) for owner in workers))
        (view,) = [view for view in begun if view is not None]
        owner = workers[begun.index(view)]
        await scene.commit(view, append=(Say({"text": "bye"}),), ending="finish", owner=owner)
        assert await scene.entries(name) == ["hello", "=bye"]
    for yard in others:
        await yard.aclose()
    await scene.close()


@pytest.mark.spec("L20")
@pytest.mark.parametrize("lost_since", ["accepted", "dispatched", "begun", "answered"])
async def test_input_that_comes_again_after_a_failover_makes_no_second_turn(scene: Scene, lost_since: str) -> None:
    """The last writes are lost, whichever they were; then the platform sends its event again, and the old worker goes on."""
    owner = await scene.worker()
    message = scene.message("once")
    await ingress.accept_message(scene.yard, message)
    saved = {"accepted": await scene.snapshot()}
    await scene.dispatch()
    saved["dispatched"] = await scene.snapshot()
    view = await _run(scene, owner, "s")
    saved["begun"] = await scene.snapshot()
    await scene.reply(view)
    saved["answered"] = await scene.snapshot()
    await scene.rewind(saved[lost_since])
    assert (await ingress.accept_message(scene.yard, message)).code == "duplicate"
    await scene.dispatch()
    if lost_since != "answered":
        await scene.tick(owner)
        view = await scene.start(await scene.worker())
        await scene.reply(view)
    assert await scene.entries() == ["once", "=bye"]
    assert await scene.state() == "idle"


@pytest.mark.spec("L42")
@pytest.mark.parametrize("first", ["message", "recovery"])
async def test_a_turn_that_is_resumed_and_a_new_message_share_one_lease(scene: Scene, first: str) -> None:
    dead, owner = await scene.worker(), await scene.worker()
    await scene.open_turn(dead, "m1")
    await scene.say("m2")
    steps = [dispatch(scene.yard.shards[0]), upkeep.tick(scene.yard.shards[0], dead=(dead,))]
    await asyncio.gather(*(steps if first == "message" else reversed(steps)))
    await scene.dispatch()
    view = await _run(scene, owner, "s")
    assert shown(view) == ["m1", "m2"]
    assert await scene.take(owner) is None
    assert await scene.running() == 1
    await scene.reply(view)
    assert (await scene.head())["ep"] == "2"


@pytest.mark.spec("L18")
async def test_a_turn_is_never_parked_on_a_call_that_only_it_can_answer(scene: Scene) -> None:
    dead, owner = await scene.worker(), await scene.worker()
    view = await scene.open_turn(dead)
    made = call(view, 0)
    view = await scene.ask(view, made, start=(made.id,))
    view = await scene.commit(view, ending="park")
    assert (view.ended, await scene.state()) == (False, "running")
    await scene.tick(dead)
    view = await _run(scene, owner, "s")
    assert [(row.call, row.state) for row in view.rows] == [(made.id, "started")]
    await scene.reply(await scene.commit(view, append=(Answer(made.id, "unknown"),)))


@pytest.mark.spec("L18")
@pytest.mark.parametrize("kind", ["callback", "approval", "child", "lift", "timer", "retry"])
async def test_whatever_a_turn_parks_on_has_a_deadline_that_wakes_it(scene: Scene, kind: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    if kind in ("timer", "retry"):
        await scene.commit(view, wait=(Wait("w1", kind, DAY_MS),), ending="park")  # pyright: ignore[reportArgumentType]
    else:
        made = call(view, 0, kind, awaited=True)
        await scene.park(await scene.ask(view, made), made.id)
    assert await scene.state() == "parked"
    await scene.pass_ms(DAY_MS + 1)
    await fleet.beat(scene.yard.shards[0], owner, held=0, lease_ms=2 * DAY_MS)
    await scene.tick()
    view = await _run(scene, owner, "s")
    await scene.reply(view)
