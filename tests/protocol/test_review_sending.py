"""A call that cannot even be sent fails alone, and nobody waits for ever because of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.protocol.scene import Scene
from turnyard.state.scripts import ScriptFailed


@pytest.mark.parametrize("argument", [None, "\ud800", object()])
async def test_an_argument_that_cannot_be_sent_fails_its_own_call_alone(scene: Scene, argument: Any) -> None:
    await scene.say("warm up")
    shard = scene.yard.shards[0]
    async with asyncio.timeout(20):
        good, bad, other = await asyncio.gather(scene.say("a"), shard.run("inspect", argument), scene.say("b"), return_exceptions=True)
        assert isinstance(bad, ScriptFailed)
        assert [good.code, other.code] == ["accepted", "accepted"]  # type: ignore[union-attr]
        assert (await scene.say("later")).code == "accepted"
