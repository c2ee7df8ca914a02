"""Strategies that wait, on real workers: for children of their own, for an answer, for a while."""

from __future__ import annotations

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.workers.family_app import FamilyApp
from turnyard.client import RedisClient
from turnyard.errors import JobFailed, NotFound
from turnyard.testing import wait_until


async def parked(client: RedisClient, session: str) -> list[dict[str, str]]:
    """What a session waits for, once it waits."""

    async def waits() -> bool:
        return bool((await client.session(session))["parked"])

    await wait_until(waits, description=f"{session} to wait", timeout_s=30)
    return (await client.session(session))["parked"]


@pytest.mark.spec("turn-54", "turn-55", "turn-56", "turn-59")
async def test_children_questions_timers_and_a_step_that_breaks(client: RedisClient, talk: Talk, family: FamilyApp) -> None:
    fan = await client.submit("fan", "20", session="fan")
    breaks = await client.submit("breaks", "20", session="breaks")
    asks = await client.submit("asks", "60000", session="asks")
    late = await client.submit("asks", "300", session="late")
    sleeps = await client.submit("sleeps", "500", session="sleeps")
    # Children of a strategy's own: once awake, in order, each cost counted once.
    assert (await fan.result(timeout=60))["text"] == " ".join(f"echo n{i}" for i in range(20))
    assert (await client.job(fan.id)).data["usage"]["model_calls"] == 20
    assert (await client.session("fan"))["usage"]["model_calls"] == 20
    assert max(r.epoch for r in await talk.log("fan")) == 2
    # A question: one answer, or none in time.
    (question,) = await parked(client, "asks")
    assert question["kind"] == "question"
    await client.answer("asks", question["call"], "yes")
    assert (await asks.result(timeout=30))["text"] == "told yes"
    with pytest.raises(NotFound):
        await client.answer("asks", question["call"], "no")
    assert (await late.result(timeout=30))["text"] == "told timeout"
    # A timer: both its delays, by the server's clock.
    assert (await sleeps.result(timeout=30))["text"] == "awake"
    records = await talk.log("sleeps")
    assert records[-1].at_ms - records[0].at_ms >= 1000
    # A step that breaks after it asked for children leaves none.
    with pytest.raises(JobFailed):
        await breaks.result(timeout=60)
    assert family.asked("kid") == 20
    assert sum(s["agent"] == "kid" for s in await client.sessions(limit=100)) == 20
    for session in ("fan", "breaks", "asks", "late", "sleeps"):
        check_log(await talk.log(session))
