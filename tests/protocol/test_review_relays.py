"""What a relay took and could not hand on is due again soon, not when its loan ends."""

from __future__ import annotations

from typing import Any, cast

import pytest

from platforms.relays import relay_once
from tests.protocol.scene import Scene, call
from turnyard.errors import StoreUnavailable
from turnyard.lifted import LiftedTask


class Queue:
    """arq's server, which refuses the first `refused` tasks."""

    def __init__(self, refused: int) -> None:
        self.refused = refused
        self.taken: list[str] = []

    async def enqueue(self, task: LiftedTask, *, job: str, queue: str) -> bool:
        del job, queue
        if self.refused:
            self.refused -= 1
            raise StoreUnavailable("arq's server is away")
        self.taken.append(task.call)
        return True


async def test_calls_that_the_queue_refused_are_relayed_a_second_later_and_each_once(scene: Scene) -> None:
    owner = await scene.worker()
    shard = scene.shard()
    made: list[str] = []
    for session in ("a", "b", "c"):
        view = await scene.open_turn(owner, session=session)
        lift = call(view, 0, "lift")
        view = await scene.launch(await scene.ask(view, lift), lift.id, secret=False, lanes=("arq",))
        await scene.reply(view)
        made.append(lift.id)
    queue = Queue(refused=1)
    with pytest.raises(StoreUnavailable):
        await relay_once(shard, cast("Any", queue))
    await scene.pass_ms(1000)
    assert await relay_once(shard, cast("Any", queue)) == 3
    assert sorted(queue.taken) == sorted(made)
    assert await relay_once(shard, cast("Any", queue)) == 0
