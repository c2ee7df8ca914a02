"""Turns on real worker processes: what comes out, and what a follower hears."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.records.ids import session_key
from turnyard.records.live import Live
from turnyard.state import ingress
from turnyard.state.feed import Feed
from turnyard.state.yard import Yard
from turnyard.testing import wait_until


async def test_a_tool_turn_runs_end_to_end(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    job = await talk.done(await talk.say("s1", "add 2 3"))
    assert (job.state, job.output and job.output["text"]) == ("succeeded", "it is 5")
    assert await talk.story("s1") == ["user: add 2 3", "assistant: ", "call: add", "result: 5", "assistant: it is 5"]
    check_log(await talk.log("s1"))


async def test_one_session_is_answered_in_order_over_two_processes(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    for n in range(8):
        job = await talk.done(await talk.say("s1", f"add {n} 1"))
        assert job.output is not None
        assert job.output["text"] == f"it is {n + 1}"
    check_log(await talk.log("s1"))


async def test_many_sessions_are_answered_and_leave_nothing_behind(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    asked = [await talk.say(f"s{i}", f"add {i} 1") for i in range(60)]
    ended = [await talk.done(job) for job in asked]
    assert [job.output and job.output["text"] for job in ended] == [f"it is {i + 1}" for i in range(60)]
    await wait_until(talk.quiet, description="all slots to be free")
    assert len(app.ran("add")) == 60


async def test_a_tool_that_fails_is_answered_with_a_reference_and_no_detail(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    await talk.done(await talk.say("s1", "loud"))
    [result] = [line for line in await talk.story("s1") if line.startswith("result")]
    assert "tool failed (ref" in result
    assert "secret detail" not in result


@pytest.mark.spec("runner-27")
async def test_a_follower_in_another_process_hears_the_pieces_in_order(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    sid = session_key(TENANT, "s1")
    await talk.done(await talk.say("s1", "hi"))
    await ingress.follow(talk.yard, sid, 30)
    feed = await Feed.start(talk.yard)
    heard: list[str] = []

    async def listen() -> None:
        async for item in feed.follow(sid):
            heard.extend([item.record.text] if isinstance(item.record, Live) else [])

    ears = asyncio.create_task(listen())
    await talk.done(await talk.say("s1", "slowly"))
    text = "one two three four five six seven eight nine ten"
    await wait_until(lambda: len(heard) > 1, description="pieces of the answer")
    ears.cancel()
    await feed.aclose()
    assert text.startswith("".join(heard))


async def test_a_cancel_stops_a_tool_that_runs_and_the_session_goes_on(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    job = await talk.say("s1", "once never")
    await wait_until(lambda: app.ran("once") != [], description="the tool to run")
    await ingress.accept_control(talk.yard, tenant=TENANT, session="s1", control="cancel", event="e1")
    assert (await talk.done(job, timeout_s=8)).state == "cancelled"
    after = await talk.done(await talk.say("s1", "hi"))
    assert after.state == "succeeded"
    check_log(await talk.log("s1"))


async def test_a_cancel_stops_a_model_that_answers(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    job = await talk.say("s1", "slowly")
    await wait_until(lambda: _running(talk, "s1"), description="the turn to run")
    await ingress.accept_control(talk.yard, tenant=TENANT, session="s1", control="cancel", event="e1")
    assert (await talk.done(job)).state == "cancelled"
    assert await talk.story("s1") == ["user: slowly"]


@pytest.mark.spec("runner-17")
async def test_a_model_that_keeps_failing_fails_the_job_and_the_session_goes_on(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    job = await talk.done(await talk.say("s1", "fails"))
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["code"] == "model_error"
    assert (await talk.done(await talk.say("s1", "hi"))).state == "succeeded"


async def _running(talk: Talk, session: str) -> bool:
    return await talk.state(session) == "running"


async def test_a_deployment_of_several_shards_is_served_by_one_worker(clean: str, roles: Roles, app: SampleApp) -> None:
    yard = await Yard.open(clean, shards=4)
    talk = Talk(yard)
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    asked = [await talk.say(f"s{i}", f"add {i} 1") for i in range(24)]
    assert len({yard.shard_for(session_key(TENANT, f"s{i}")).n for i in range(24)}) > 1
    ended = [await talk.done(job) for job in asked]
    assert [job.output and job.output["text"] for job in ended] == [f"it is {i + 1}" for i in range(24)]
    await yard.aclose()
