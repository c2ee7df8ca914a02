"""Who waits for a job hears of its end at once, whoever submitted it."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.family import Family
from tests.protocol.scene import Scene
from turnyard.client import RedisClient
from turnyard.state import jobs

HOUR_S = 3600.0


@pytest.mark.spec("runner-49")
async def test_a_client_that_did_not_submit_a_job_hears_of_its_end_without_looking_now_and_then(
    scene: Scene, clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_FIRST_LOOK_S", HOUR_S)
    family = await Family.of(scene)
    async with RedisClient(clean) as one, RedisClient(clean) as two:
        job = await one.submit("kid", "hi", session="s")
        waiting = [asyncio.ensure_future(client.wait_job(job.id, timeout_s=20)) for client in (one, two)]
        view = await scene.start(family.owner)
        await two.cancel(job.id)
        await scene.dispatch()
        await scene.close_turn(view)
        assert [end["state"] for end in await asyncio.gather(*waiting)] == ["cancelled", "cancelled"]
        # And once it has ended, nobody waits at all.
        assert [(await client.wait_job(job.id, timeout_s=20))["state"] for client in (one, two)] == ["cancelled", "cancelled"]
