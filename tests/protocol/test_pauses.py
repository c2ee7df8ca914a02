"""A paused session gets no turn, whatever would start one; what it has open can still be closed."""

from __future__ import annotations

import pytest

from tests.protocol.scene import Scene, call

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("what", ["its worker dies", "it yields", "it ends", "its call is answered", "a message arrives", "an item is due"])
async def test_a_paused_session_stays_out_of_its_flow_until_it_is_resumed(scene: Scene, what: str) -> None:
    owner, _ = await scene.worker(), await scene.worker()
    view = await scene.open_turn(owner)
    if what == "its call is answered":
        made = call(view, 0, "callback", awaited=True)
        await scene.park(await scene.ask(view, made), made.id)
    elif what in ("a message arrives", "an item is due"):
        view = await scene.reply(view)
    await scene.control("pause")
    await scene.dispatch()
    await scene.say("more", mode="follow_up", delay_ms=1000 if what == "an item is due" else 0)
    await scene.dispatch()
    if what == "its worker dies":
        await scene.tick(owner)
    elif what == "it yields":
        await scene.commit(view, ending="yield")
    elif what == "it ends":
        await scene.reply(view)
    elif what == "its call is answered":
        assert (await scene.outcome(view, made.id)).code == "accepted"
        await scene.dispatch()
    elif what == "an item is due":
        await scene.pass_ms(1001)
    await scene.tick()
    assert (await scene.state(), await scene.running()) == ("idle" if not (await scene.head())["tu"] else "parked", 0)
    assert await scene.yard.redis.exists(scene.yard.shards[0].keys.prefix + "flows") == 0
    await scene.control("resume")
    await scene.dispatch()
    assert await scene.state() == "assigned"


async def test_a_cancelled_turn_of_a_paused_session_is_closed_all_the_same(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    await scene.park(await scene.ask(view, made), made.id)
    for control in ("pause", "cancel"):
        await scene.control(control)
        await scene.dispatch()
    assert await scene.state() == "assigned"
    closing = await scene.begin(owner)
    assert closing is not None
    assert closing.cancel == "user"
    await scene.commit(closing, ending="finish", closing=True)
    assert (await scene.state(), (await scene.head())["pz"]) == ("idle", "1")
