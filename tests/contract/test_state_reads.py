"""What readers of the store may rely on: sessions, jobs, agents and demand, each tenant its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.scene import Scene, call
from turnyard.records.commit import Park
from turnyard.records.manifest import Manifest
from turnyard.state import explain as explaining
from turnyard.state import jobs
from turnyard.state.agents import AgentsCache, publish, read_agents
from turnyard.state.flows import set_limits
from turnyard.state.jobs import JobWatch, read_job
from turnyard.state.scale import scale
from turnyard.state.sessions import list_sessions, read_session

pytestmark = pytest.mark.asyncio


# -- sessions


async def test_a_session_shows_what_it_is_doing(scene: Scene) -> None:
    accepted = await scene.say("hi", platform="slack")
    seen = await read_session(scene.yard, tenant="default", session="s")
    assert seen is not None
    assert (seen.state, seen.inbox, seen.agent, seen.user, seen.platform, seen.turn) == ("idle", 1, "bot", "ann", "slack", None)
    owner = await scene.worker()
    view = await scene.start(owner)
    seen = await read_session(scene.yard, tenant="default", session="s")
    assert seen is not None
    assert (seen.state, seen.holder, seen.turn, seen.inbox, seen.attempt) == ("running", owner, view.turn, 0, 1)
    made = call(view, 0, "approval", awaited=True)
    view = await scene.ask(view, made, usage={"input_tokens": 5})
    await scene.commit(view, park=(Park(made.id, 60_000),), ending="park")
    seen = await read_session(scene.yard, tenant="default", session="s")
    assert seen is not None
    assert (seen.state, seen.rev, seen.usage) == ("parked", 2, {"input_tokens": 5})
    assert [(p.call, p.tool, p.kind, p.awaited, p.deadline_ms) for p in seen.parked] == [
        (made.id, "tool0", "approval", True, scene.now_ms + 60_000)
    ]
    assert accepted.job is not None


async def test_another_tenant_sees_neither_session_nor_job(scene: Scene) -> None:
    accepted = await scene.say()
    assert await read_session(scene.yard, tenant="other", session="s") is None
    assert await list_sessions(scene.yard, tenant="other") == []
    assert await read_job(scene.yard, accepted.job or "", tenant="other") is None
    assert await explaining.explain(scene.yard, tenant="other", session="s") is None


async def test_sessions_are_listed_by_their_latest_arrival(scene: Scene) -> None:
    for name in ("a", "b", "c", "a"):
        await scene.pass_ms(1)
        await scene.say(session=name)
    assert [view.id for view in await list_sessions(scene.yard, tenant="default")] == ["a", "c", "b"]


@pytest.mark.parametrize("same_moment", [1, 7, 40])
async def test_pages_of_sessions_hold_each_one_once_however_many_came_in_one_moment(three_shards: Scene, same_moment: int) -> None:
    scene = three_shards
    for i in range(40):
        if i % same_moment == 0:
            await scene.pass_ms(1)
        await scene.say(session=f"s{i}")
    seen: list[str] = []
    before = None
    while page := await list_sessions(scene.yard, tenant="default", limit=6, before_ms=before):
        seen += [view.id for view in page]
        before = page[-1].updated_ms
    assert len(seen) == 40
    assert set(seen) == {f"s{i}" for i in range(40)}


# -- jobs


async def test_a_job_tells_its_whole_life(scene: Scene) -> None:
    accepted = await scene.say("hi", metadata={"k": "v"}, complete_when="turn")
    job = await scene.job(accepted)
    assert (job.state, job.done, job.input, job.started_ms, job.finished_ms) == ("queued", False, {"text": "hi"}, None, None)
    view = await scene.start(await scene.worker())
    job = await scene.job(accepted)
    assert (job.state, job.turn, job.input, job.started_ms) == ("running", view.turn, {"text": "hi"}, scene.now_ms)
    await scene.pass_ms(250)
    await scene.reply(view, "bye")
    job = await scene.job(accepted)
    assert (job.state, job.done, job.output, job.error) == ("succeeded", True, {"text": "bye", "output": "bye"}, None)
    assert (job.input, job.metadata, job.finished_ms) == ({"text": "hi"}, {"k": "v"}, scene.now_ms)


async def test_a_job_waits_for_the_calls_that_were_opened_for_it(scene: Scene) -> None:
    owner = await scene.worker()
    accepted = await scene.say("hi")
    view = await scene.start(owner)
    made = call(view, 0, "callback")
    view = await scene.launch(await scene.ask(view, made), made.id)
    await scene.reply(view, "started")
    job = await scene.job(accepted)
    assert (job.state, job.open, job.output) == ("waiting", 1, None)
    await scene.outcome(view, made.id)
    await scene.reply(await scene.start(owner), "finished")
    job = await scene.job(accepted)
    assert (job.state, job.open, job.output) == ("succeeded", 0, {"text": "finished", "output": "finished"})


@pytest.mark.spec("rival-21")
@pytest.mark.parametrize("kind", ["approval", "callback", "lift", "child", "question"])
async def test_a_job_whose_turn_is_parked_waits_and_runs_again_when_the_turn_does(scene: Scene, kind: Any) -> None:
    owner = await scene.worker()
    accepted = await scene.say("hi")
    view = await scene.start(owner)
    made = call(view, 0, kind, awaited=True)
    view = await scene.ask(view, made)
    assert (await scene.job(accepted)).state == "running"
    await scene.commit(view, park=(Park(made.id, 60_000),), ending="park")
    job = await scene.job(accepted)
    assert (job.state, job.done, job.turn) == ("waiting", False, view.turn)
    seen = await read_session(scene.yard, tenant="default", session="s")
    assert seen is not None
    assert [(c.call, c.kind, c.awaited, c.since_ms) for c in seen.parked] == [(made.id, kind, True, scene.now_ms)]
    behind = await scene.say("later", mode="follow_up")
    assert (await scene.job(behind)).state == "queued"
    await scene.outcome(view, made.id, "allow" if kind == "approval" else "result", secret_hash=None)
    await scene.start(owner)
    assert (await scene.job(accepted)).state == "running"


@pytest.mark.parametrize("pages", [1, 2, 100])
async def test_a_job_has_its_answer_however_much_lies_between_that_and_its_message(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    monkeypatch.setattr(jobs, "_PAGE", 2)
    monkeypatch.setattr(jobs, "_PAGES", pages)
    owner = await scene.worker()
    accepted = await scene.say("hi")
    view = await scene.start(owner)
    made = call(view, 0, "callback")
    view = await scene.launch(await scene.ask(view, made), made.id)
    await scene.reply(view, "started")
    for _ in range(3):
        await scene.reply(await scene.open_turn(owner, "and more"), "more")
    await scene.outcome(view, made.id)
    await scene.reply(await scene.start(owner), "finished")
    job = await scene.job(accepted)
    assert (job.state, job.input, job.output) == ("succeeded", {"text": "hi"}, {"text": "finished", "output": "finished"})


@pytest.mark.parametrize("job", ["", "job_", "job_zz" + "a" * 16, "job_05" + "a" * 16, "job_00" + "é" * 16, "x" * 1000])
async def test_what_is_no_job_of_this_yard_is_none(scene: Scene, job: str) -> None:
    assert await read_job(scene.yard, job, tenant="default") is None


async def test_the_end_of_a_job_is_told_to_who_waits_before_and_after_it(scene: Scene) -> None:
    watch = await JobWatch.start(scene.yard)
    accepted = await scene.say(notify=watch.channel)
    waiting = [asyncio.create_task(watch.done(accepted.job or "", timeout_s=10)) for _ in range(3)]
    await scene.reply(await scene.start(await scene.worker()), "bye")
    jobs = await asyncio.gather(*waiting, watch.done(accepted.job or "", timeout_s=10))
    assert {job.state for job in jobs} == {"succeeded"}
    await watch.aclose()


async def test_a_job_whose_announcement_was_lost_is_found_ended_all_the_same(scene: Scene) -> None:
    watch = await JobWatch.start(scene.yard)
    accepted = await scene.say()  # it names no channel
    waiting = asyncio.create_task(watch.done(accepted.job or "", timeout_s=10))
    await scene.reply(await scene.start(await scene.worker()))
    assert (await waiting).state == "succeeded"
    await watch.aclose()


async def test_who_gives_up_waiting_leaves_nothing_behind_and_the_others_wait_on(scene: Scene) -> None:
    watch = await JobWatch.start(scene.yard)
    accepted = await scene.say(notify=watch.channel)
    job = accepted.job or ""
    patient = asyncio.create_task(watch.done(job, timeout_s=20))
    with pytest.raises(TimeoutError):
        await watch.done(job, timeout_s=0.01)
    await scene.reply(await scene.start(await scene.worker()))
    assert (await patient).state == "succeeded"
    other = await scene.say(session="t", notify=watch.channel)
    with pytest.raises(TimeoutError):
        await watch.done(other.job or "", timeout_s=0.01)
    assert watch._waiting == {}
    await watch.aclose()


# -- agents and demand


async def test_a_version_keeps_its_serial_and_the_newest_one_is_seen(scene: Scene) -> None:
    first = await publish(scene.yard, Manifest("bot", "v1"))
    second = await publish(scene.yard, Manifest("bot", "v2"))
    again = await publish(scene.yard, Manifest("bot", "v1"))
    assert (first.serial, second.serial, again.serial) == (1, 2, 1)
    assert (await read_agents(scene.yard))["bot"].version == "v2"


async def test_many_workers_that_publish_at_once_agree_on_serials(scene: Scene) -> None:
    made = await asyncio.gather(*(publish(scene.yard, Manifest("bot", f"v{i % 3}")) for i in range(30)))
    serials = {m.version: {n.serial for n in made if n.version == m.version} for m in made}
    assert sorted(n for group in serials.values() for n in group) == [1, 2, 3]
    assert (await read_agents(scene.yard))["bot"].serial == 3


async def test_an_agent_that_was_just_published_is_found_by_a_cache_that_does_not_know_it(scene: Scene) -> None:
    cache = AgentsCache(scene.yard, max_age_s=0.0)
    assert await cache.get("bot") is None
    await publish(scene.yard, Manifest("bot", "v1"))
    found = await cache.get("bot")
    assert found is not None
    assert replace(found, published_at=0) == Manifest("bot", "v1", serial=1)


async def test_demand_counts_what_runs_and_what_could_run(scene: Scene) -> None:
    await publish(scene.yard, Manifest("bot", "v1"))
    await publish(scene.yard, Manifest("other", "v1", pool="gpu"))
    await set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    await scene.worker()
    for i in range(4):
        await scene.say(session=f"s{i}")
    await scene.say(session="t", agent="other", pool="gpu")
    await scene.dispatch()
    demand = await scale(scene.yard, "default")
    assert (demand.ready, demand.running, demand.desired_turns) == (3, 1, 4)
    demand = await scale(scene.yard, "gpu")
    assert (demand.ready, demand.running) == (1, 0)


# -- why it does not move


async def test_a_reason_is_named_for_each_way_of_standing_still(scene: Scene) -> None:
    async def code(session: str = "s") -> str:
        found = await explaining.explain(scene.yard, tenant="default", session=session)
        assert found is not None
        assert found.fix
        return found.code

    await set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    await scene.say()
    assert await code() == "no_dispatcher"
    await scene.tick()
    await scene.dispatch()
    assert await code() == "no_worker_for_pool"
    owner = await scene.worker()
    view = await scene.start(owner)
    assert await code() == "running"
    await scene.say(session="behind")
    await scene.dispatch()
    assert await code("behind") == "no_capacity"
    made = call(view, 0, "approval", awaited=True)
    await scene.commit(await scene.ask(view, made), park=(Park(made.id, 60_000),), ending="park")
    assert await code() == "approval"
    await set_limits(scene.yard.shards[0], max_concurrent_turns=9, tenants={"default": 1})
    await scene.dispatch()
    await scene.say(session="third")
    await scene.dispatch()
    assert await code("third") == "tenant_cap"
    await scene.say(session="slow", delay_ms=5000)
    await scene.dispatch()
    assert await code("slow") == "delayed"
    await scene.control("pause", session="third")
    await scene.dispatch()
    assert await code("third") == "paused"
    assert await scene.state("third") == "idle"
