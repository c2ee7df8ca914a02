"""How calls reach the server: in effect once, whatever the wire does, and a script that is missing costs its own call alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis import exceptions as rx

from tests.protocol.scene import Scene
from turnyard.errors import StoreUnavailable
from turnyard.records.commit import Say
from turnyard.state import flows
from turnyard.state.reads import reading
from turnyard.state.scripts import Library, ScriptFailed
from turnyard.state.yard import Yard

pytestmark = pytest.mark.asyncio


class Wire:
    """What goes over the wire of a scene: `sent` holds the batches of calls; `before` and `after` may meddle."""

    def __init__(self, scene: Scene) -> None:
        self.sent: list[int] = []
        self.before: Any = None
        self.after: Any = None
        self.real = scene.yard.shards[0].scripts._send
        scene.yard.shards[0].scripts._send = self.send  # type: ignore[method-assign]

    async def send(self, commands: Any) -> list[Any]:
        self.sent.append(sum(command[0] == "FCALL" for command in commands))
        if self.before is not None:
            await self.before(commands)
        replies = await self.real(commands)
        return replies if self.after is None else self.after(replies)


@pytest.mark.spec("trap-37")
async def test_a_script_forgotten_in_the_middle_of_a_batch_repeats_only_the_calls_that_did_not_run(scene: Scene) -> None:
    await scene.say("warm up")
    wire = Wire(scene)
    real = wire.real

    async def forgets_half_way(commands: Any) -> list[Any]:
        if len(commands) < 10:
            return await real(commands)
        wire.real = real
        first = await real(commands[:5])
        await scene.forget_scripts()
        return first + await real(commands[5:])

    wire.real = forgets_half_way
    answers = await asyncio.gather(*(scene.say(f"m{i}") for i in range(10)))
    assert [answer.code for answer in answers] == ["accepted"] * 10
    assert wire.sent == [10, 5]
    assert await scene.ingress() == 11


@pytest.mark.spec("L22", "trap-37")
async def test_a_server_that_forgets_whatever_it_has_learned_before_the_next_message_fails_no_call(scene: Scene) -> None:
    wire = Wire(scene)

    async def forgets_first(_: Any) -> None:
        await scene.forget_scripts()

    wire.before = forgets_first
    for i in range(5):
        assert (await scene.say(f"m{i}")).code == "accepted"
    assert wire.sent == [1, 1] * 5


@pytest.mark.spec("trap-37")
async def test_every_script_survives_a_server_that_forgot_all_of_them(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.forget_scripts()
    accepted = await scene.say("hi")
    await scene.forget_scripts()
    await scene.dispatch()
    await scene.forget_scripts()
    view = await scene.begin(owner)
    assert view is not None
    await scene.forget_scripts()
    view = await scene.commit(view, append=(Say({"text": "a"}),))
    await scene.forget_scripts()
    await scene.tick()
    await scene.forget_scripts()
    await scene.reply(view)
    assert (await scene.job(accepted)).state == "succeeded"
    assert await scene.entries() == ["hi", "=a", "=bye"]


async def test_calls_of_the_same_moment_travel_together_and_each_is_answered(scene: Scene) -> None:
    await scene.say("warm up")
    wire = Wire(scene)
    answers = await asyncio.gather(*(scene.say(f"m{i}", session=f"s{i}") for i in range(40)))
    assert [a.session for a in answers] == [f"s{i}" for i in range(40)]
    assert len(wire.sent) < 10


async def test_a_call_that_fails_fails_alone(scene: Scene) -> None:
    await scene.say("warm up")
    shard = scene.yard.shards[0]
    good, bad, other = await asyncio.gather(scene.say("a"), shard.run("accept", "nonsense"), scene.say("b"), return_exceptions=True)
    assert isinstance(bad, ScriptFailed)
    assert [good.code, other.code] == ["accepted", "accepted"]  # type: ignore[union-attr]


async def test_a_server_that_does_not_answer_is_asked_a_few_times_and_then_given_up(scene: Scene) -> None:
    await scene.say("warm up")
    wire = Wire(scene)

    def broken(replies: list[Any]) -> list[Any]:
        raise rx.ConnectionError("gone")

    wire.after = broken
    with pytest.raises(StoreUnavailable, match="no answer"):
        await flows.dispatch(scene.yard.shards[0])
    assert len(wire.sent) == 4
    wire.after = None


@pytest.mark.parametrize(
    "error",
    [
        "LOADING Redis is loading",
        "READONLY You can't write",
        "MASTERDOWN Link",
        "TRYAGAIN Multiple keys",
        "MISCONF Errors writing to the AOF file",
        "NOREPLICAS Not enough good replicas",
    ],
)
async def test_a_server_that_is_not_ready_is_asked_again(scene: Scene, error: str) -> None:
    await scene.say("warm up")
    wire = Wire(scene)
    times = [0]

    def not_ready(replies: list[Any]) -> list[Any]:
        times[0] += 1
        return [rx.ResponseError(error)] * len(replies) if times[0] == 1 else replies

    wire.after = not_ready
    assert (await scene.say("hi")).code == "duplicate"
    assert times == [2]


async def test_a_server_whose_disk_is_full_is_away_and_says_why(scene: Scene) -> None:
    await scene.say("warm up")
    wire = Wire(scene)
    wire.after = lambda replies: [rx.ResponseError("MISCONF Errors writing to the AOF file: No space left on device")] * len(replies)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await scene.say("hi")
    wire.after = None
    with pytest.raises(StoreUnavailable, match="No space left"), reading("jobs"):
        raise rx.ResponseError("MISCONF Errors writing to the AOF file: No space left on device")


async def test_what_still_waits_when_the_process_closes_is_told_so(scene: Scene) -> None:
    await scene.say("warm up")
    wire = Wire(scene)
    waiting = asyncio.Event()

    async def stuck(commands: Any) -> None:
        waiting.set()
        await asyncio.Event().wait()

    wire.before = stuck
    calls = [asyncio.create_task(scene.say(f"m{i}")) for i in range(3)]
    await waiting.wait()
    await scene.yard.shards[0].scripts.aclose()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    wire.before = None


async def test_two_processes_of_different_versions_use_one_server_side_by_side(scene: Scene, clean: str) -> None:
    clock = "local function now() return tonumber(call('GET', P .. 'test:now')) + 0 end\n"
    other = Scene(await Yard.open(clean, library=Library(clock_lua=clock)), clean)
    assert other.yard.shards[0].scripts._library.version != scene.yard.shards[0].scripts._library.version
    owner = await scene.worker()
    await other.say("a")
    await scene.say("b")
    await other.dispatch()
    view = await scene.begin(owner)
    assert view is not None
    assert len(view.entries) == 2
    await other.yard.aclose()
