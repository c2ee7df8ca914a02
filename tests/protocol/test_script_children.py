"""Child sessions on the server: their start, their end and their cancel are items of the lane `session`."""

from __future__ import annotations

import pytest

from tests.protocol.scene import DAY_MS, Scene, call
from turnyard.records.commit import Park, TurnView
from turnyard.records.log import CALLED_OFF, JOB, PARKED
from turnyard.records.messages import Accepted
from turnyard.state.lanes import sent, take_lane

pytestmark = pytest.mark.asyncio


async def parent(scene: Scene, owner: str, *, awaited: bool) -> tuple[TurnView, str, Accepted]:
    """A turn that started a child session and whose lane was read so far."""
    asked = await scene.say()
    view = await scene.start(owner)
    made = call(view, 0, "child", awaited=awaited)
    view = await scene.ask(view, made)
    if awaited:
        await scene.commit(view, park=(Park(made.id, DAY_MS),), ending="park")
    else:
        view = await scene.launch(view, made.id, secret=False)
    (item,) = await take_lane(scene.yard.shards[0], "session")
    assert [(r.call, r.kind) for r in item.records if r.type == PARKED] == [(made.id, "child")]
    assert await sent(scene.yard.shards[0], "session", item)
    return view, made.id, asked


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("cascade", [True, False])
async def test_a_cancel_reaches_child_sessions_when_it_is_asked_to_and_else_leaves_them(scene: Scene, awaited: bool, cascade: bool) -> None:
    owner = await scene.worker()
    shard = scene.yard.shards[0]
    view, child, asked = await parent(scene, owner, awaited=awaited)
    await scene.cancel(cascade=cascade, cause="budget")
    await scene.dispatch()
    items = await take_lane(shard, "session")
    called_off = [(r.call, r.extra["ca"]) for item in items for r in item.records if r.type == CALLED_OFF]
    assert called_off == ([(child, "budget")] if cascade else [])
    await scene.close_turn(await scene.start(owner) if awaited else view)
    assert (await scene.job(asked)).cause == "budget"
    # Whatever the child says now, it comes too late.
    assert (await scene.outcome(view, child, secret_hash=None)).code == "conflict"


async def test_a_job_cancelled_with_cascade_takes_the_children_it_waits_for(scene: Scene) -> None:
    owner = await scene.worker()
    view, child, asked = await parent(scene, owner, awaited=False)
    await scene.reply(view)
    await scene.cancel_job(asked, cascade=True)
    await scene.dispatch()
    (item,) = await take_lane(scene.yard.shards[0], "session")
    assert [r.call for r in item.records if r.type == CALLED_OFF] == [child]
    assert (await scene.job(asked)).state == "cancelled"


async def test_a_child_that_is_parked_as_the_cancel_comes_is_called_off_behind_its_start(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "child", awaited=True)
    view = await scene.ask(view, made)
    await scene.cancel(cascade=True)
    await scene.dispatch()
    view = await scene.commit(view, park=(Park(made.id, DAY_MS),), ending="park")
    assert view.cancel == "user"
    await scene.close_turn(view)
    (item,) = await take_lane(scene.yard.shards[0], "session")
    assert [r.type for r in item.records if r.call == made.id and r.type in (PARKED, CALLED_OFF)] == [PARKED, CALLED_OFF]


async def test_the_end_of_a_childs_job_is_on_the_lane_with_the_call_it_answers(scene: Scene) -> None:
    owner = await scene.worker()
    shard = scene.yard.shards[0]
    for how in ("succeeded", "cancelled", "in its queue"):
        asked = await scene.say(session=how, parent=f"0.store.0!call_{how[0]}")
        if how == "in its queue":
            await scene.cancel_job(asked)
        else:
            view = await scene.start(owner, how)
            if how == "cancelled":
                await scene.cancel_job(asked)
                await scene.dispatch()
                await scene.commit(view, ending="finish", closing=True)
            else:
                await scene.reply(view)
        (item,) = await take_lane(shard, "session")
        told = [(r.jobs, r.outcome, r.extra["pa"]) for r in item.records if r.type == JOB]
        assert told == [((asked.job,), "succeeded" if how == "succeeded" else "cancelled", f"0.store.0!call_{how[0]}")]
        assert await sent(shard, "session", item)
    await scene.dispatch()
