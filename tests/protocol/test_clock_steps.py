"""The server's clock may step: what waits for a time is woken all the same, once that time has come again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.scene import Scene

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("waiting", [{"delay_ms": 5000}, {"mode": "collect", "window_ms": 5000}])
async def test_a_delayed_message_whose_deadline_passed_before_the_clock_went_back_is_woken_when_it_is_due(
    scene: Scene, waiting: dict[str, Any]
) -> None:
    worker = await scene.worker()
    view = await scene.open_turn(worker)
    await scene.say("later", **waiting)
    await scene.dispatch()
    await scene.pass_ms(6000)
    assert (await scene.tick(parts="d")).due == 1  # a turn is open: nobody to wake
    await scene.pass_ms(-4000)
    await scene.reply(view)
    assert await scene.state() == "idle"
    await scene.pass_ms(4000)
    await scene.tick(parts="d")
    assert await scene.state() == "assigned"
