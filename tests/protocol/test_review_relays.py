"""What a relay took and could not hand on is due again soon, not when its loan ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from platforms.lifts import Lifts
from platforms.relays import relay_once
from tests.protocol.scene import DAY_MS, OK, Scene, call
from turnyard.errors import StoreUnavailable
from turnyard.lifted import LiftedTask, job_id
from turnyard.records.commit import Answer


class Queue:
    """arq's server, which refuses the first `refused` tasks."""

    def __init__(self, refused: int) -> None:
        self.refused = refused
        self.taken: list[str] = []
        self.jobs: list[str] = []

    async def enqueue(self, task: LiftedTask, *, job: str, queue: str) -> bool:
        del queue
        if self.refused:
            self.refused -= 1
            raise StoreUnavailable("arq's server is away")
        self.taken.append(task.call)
        self.jobs.append(job)
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
        await relay_once(shard, Lifts(cast("Any", queue)))
    await scene.pass_ms(1000)
    assert await relay_once(shard, Lifts(cast("Any", queue))) == 3
    assert sorted(queue.taken) == sorted(made)
    assert await relay_once(shard, Lifts(cast("Any", queue))) == 0


@pytest.mark.spec("trap-67")
async def test_a_lift_behind_a_plain_call_is_relayed_when_it_is_parked_and_not_before(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    first, plain, last = call(view, 0, "lift"), call(view, 1), call(view, 2, "lift")
    view = await scene.ask(view, first, plain, last)
    view = await scene.launch(view, first.id, secret=False, lanes=("arq",), start=(plain.id,))
    queue = Queue(refused=0)
    await relay_once(scene.shard(), Lifts(cast("Any", queue)))
    assert queue.taken == [first.id]
    view = await scene.commit(view, append=(Answer(plain.id, "result", OK),))
    await scene.launch(view, last.id, secret=False, lanes=("arq",))
    await relay_once(scene.shard(), Lifts(cast("Any", queue)))
    assert queue.taken == [first.id, last.id]


async def test_a_relay_that_is_told_to_stop_gives_back_at_once_what_it_has_not_handed_on(scene: Scene) -> None:
    owner = await scene.worker()
    made: list[str] = []
    for session in ("a", "b", "c"):
        view = await scene.open_turn(owner, session=session)
        lift = call(view, 0, "lift")
        await scene.reply(await scene.launch(await scene.ask(view, lift), lift.id, secret=False, lanes=("arq",)))
        made.append(lift.id)
    drain = asyncio.Event()

    class Stopping(Queue):
        async def enqueue(self, task: LiftedTask, *, job: str, queue: str) -> bool:
            drain.set()
            return await super().enqueue(task, job=job, queue=queue)

    stopping, next_one = Stopping(refused=0), Queue(refused=0)
    await relay_once(scene.shard(), Lifts(cast("Any", stopping)), drain=drain)
    assert len(stopping.taken) == 1
    assert await relay_once(scene.shard(), Lifts(cast("Any", next_one))) == 2
    assert sorted(stopping.taken + next_one.taken) == sorted(made)


async def test_of_several_relays_of_a_call_that_lie_behind_the_cursor_only_the_last_is_handed_on(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    lift = call(view, 0, "lift")
    await scene.reply(await scene.launch(await scene.ask(view, lift), lift.id, secret=False, lanes=("arq",)))
    for _ in range(2):
        await scene.pass_ms(DAY_MS // 4)
        await scene.tick(parts="d")
    queue = Queue(refused=0)
    assert await relay_once(scene.shard(), Lifts(cast("Any", queue))) == 1
    assert queue.jobs == [job_id(lift.id, 3)]


async def test_a_record_that_nothing_can_be_made_of_becomes_a_letter_and_the_next_one_is_carried(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    first, second = call(view, 0, "lift"), call(view, 1, "lift")
    view = await scene.ask(view, first, second)
    view = await scene.launch(view, first.id, secret=False, lanes=("arq",))
    await scene.reply(await scene.launch(view, second.id, secret=False, lanes=("arq",)))

    class Choking(Queue):
        async def enqueue(self, task: LiftedTask, *, job: str, queue: str) -> bool:
            if task.call == first.id:
                raise ValueError("no such thing")
            return await super().enqueue(task, job=job, queue=queue)

    queue = Choking(refused=0)
    while await relay_once(scene.shard(), Lifts(cast("Any", queue))):
        pass
    assert queue.taken == [second.id]
    (letter,) = await scene.dead()
    assert (letter[b"reason"], letter[b"la"]) == (b"delivery_failed", b"arq")
