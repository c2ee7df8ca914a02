"""An assignment is begun once, whoever else has heard of it."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.scene import Scene
from turnyard.records.log import USER


@pytest.mark.spec("turn-4")
async def test_each_arrival_is_claimed_once_however_many_race_for_it(scene: Scene) -> None:
    owners = [await scene.worker(capacity=50) for _ in range(20)]
    for i in range(3):
        await scene.say(f"m{i}")
    await scene.dispatch()
    assignment = await scene.take(owners[0])
    assert assignment is not None
    views = await asyncio.gather(*(scene.begin_as(owner, assignment.epoch) for owner in owners))
    claimed = [sum(e.type == USER for e in view.entries) for view in views if view is not None]
    assert claimed == [3]
    (view,) = [view for view in views if view is not None]
    view = await scene.commit(view, claim=True)
    assert sum(e.type == USER for e in view.entries) == 3
    await scene.reply(view)
