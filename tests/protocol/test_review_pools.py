"""An agent may be given to another pool: what waits for it goes there, once nobody serves it in the old one."""

from __future__ import annotations

import pytest

from tests.protocol.scene import Scene, call
from turnyard.records.commit import TurnView
from turnyard.state import fleet


async def park_in(scene: Scene, owner: str, **more: str) -> tuple[TurnView, str]:
    """A turn that waits for its callback."""
    view = await scene.open_turn(owner, **more)
    made = call(view, kind="callback", awaited=True)
    await scene.park(await scene.ask(view, made), made.id)
    return view, made.id


async def test_a_turn_whose_agent_has_left_its_pool_goes_on_in_the_new_one(scene: Scene) -> None:
    before = await scene.worker(pools=("old",))
    view, made = await park_in(scene, before, pool="old")
    after = await scene.worker(pools=("new",))
    await fleet.leave(scene.yard.shards[0], before)
    await scene.outcome(view, made)
    again = await scene.start(after)
    await scene.reply(again)


@pytest.mark.spec("rival-37")
async def test_a_turn_that_nobody_of_its_pool_can_run_holds_up_no_other_session(scene: Scene) -> None:
    before = await scene.worker(pools=("old",))
    view, made = await park_in(scene, before, pool="old")
    await fleet.leave(scene.yard.shards[0], before)
    await scene.outcome(view, made)
    await scene.dispatch()
    assert (await scene.state(), await scene.running()) == ("ready", 0)
    await scene.say(session="other", pool="new")
    await scene.dispatch()
    after = await scene.worker(pools=("new",))
    await scene.tick()
    for session in ("s", "other"):
        again = await scene.begin(after, session)
        assert again is not None
        await scene.reply(again)


async def test_a_turn_stays_in_its_pool_while_somebody_serves_it_there(scene: Scene) -> None:
    before, after = await scene.worker(pools=("old",)), await scene.worker(pools=("new",))
    view, made = await park_in(scene, before, pool="old")
    await scene.outcome(view, made)
    await scene.dispatch()
    assert await scene.take(after) is None
    again = await scene.begin(before)
    assert again is not None
    await scene.reply(again)


async def test_what_waits_for_the_last_worker_of_its_pool_moves_when_that_one_dies(scene: Scene) -> None:
    before = await scene.worker(pools=("old",), capacity=1)
    view = await scene.open_turn(before, pool="old")
    await scene.say(session="other", pool="old")
    await scene.dispatch()
    after = await scene.worker(pools=("new",))
    await scene.tick()
    assert await scene.take(after, "other") is None
    await scene.tick(before)
    for session in ("s", "other"):
        again = await scene.begin(after, session)
        assert again is not None
        await scene.reply(again)
    assert view.turn
