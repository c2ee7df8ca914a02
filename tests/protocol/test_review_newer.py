"""Turns that only some of the workers may run are handed out as surely as any others."""

from __future__ import annotations

from tests.protocol.scene import Scene, call
from turnyard.records.commit import TurnView
from turnyard.state import fleet


async def test_turns_of_a_newer_agent_that_wake_together_all_reach_its_workers(scene: Scene) -> None:
    new = await scene.worker(serial=2)
    parked: list[tuple[str, TurnView, str]] = []
    for name in "abc":
        view = await scene.open_turn(new, session=name)
        made = call(view, kind="callback", awaited=True)
        view = await scene.ask(view, made)
        await scene.park(view, made.id)
        parked.append((name, view, made.id))
    await scene.worker(serial=1)
    scene.hears(new, (await fleet.beat(scene.yard.shards[0], new, held=-1)).lists)
    for name, view, made in parked:
        await scene.outcome(view, made, session=name)
    await scene.dispatch()
    for name, _, _ in parked:
        again = await scene.begin(new, name)
        assert again is not None
        await scene.reply(again)


async def test_a_cancelled_turn_is_closed_by_whoever_is_there_however_old(scene: Scene) -> None:
    new = await scene.worker(serial=2)
    accepted = await scene.say()
    view = await scene.start(new)
    await scene.commit(view, ending="yield")
    await fleet.leave(scene.yard.shards[0], new)
    old = await scene.worker(serial=1)
    await scene.dispatch()
    assert await scene.begin(old) is None
    await scene.control("cancel")
    await scene.dispatch()
    await scene.tick()
    closing = await scene.begin(old)
    assert closing is not None
    assert closing.cancel == "user"
    await scene.commit(closing, ending="finish", closing=True)
    assert ((await scene.job(accepted)).state, await scene.state()) == ("cancelled", "idle")
    await scene.reply(await scene.open_turn(old, "again"))


async def test_a_session_that_any_worker_may_run_does_not_wait_behind_one_that_needs_a_newer_worker(scene: Scene) -> None:
    new = await scene.worker(serial=2)
    await scene.commit(await scene.open_turn(new, session="newer"), ending="yield")
    await fleet.leave(scene.yard.shards[0], new)
    old = await scene.worker(serial=1)
    await scene.dispatch()
    assert await scene.state("newer") == "ready"
    for session in ("first", "second"):
        await scene.reply(await scene.open_turn(old, session=session))
    assert await scene.state("newer") == "ready"
    await scene.worker(serial=2)
    await scene.dispatch()
    assert await scene.state("newer") == "assigned"


async def test_a_cancel_lets_a_turn_that_waits_for_a_newer_worker_be_closed_at_once(scene: Scene) -> None:
    new = await scene.worker(serial=2)
    await scene.commit(await scene.open_turn(new), ending="yield")
    await fleet.leave(scene.yard.shards[0], new)
    old = await scene.worker(serial=1)
    await scene.dispatch()
    assert await scene.begin(old) is None
    await scene.control("cancel")
    await scene.commit(await scene.start(old), ending="finish", closing=True)
