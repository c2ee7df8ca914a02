"""The API over a real yard: server, dispatcher, worker, lifted worker and two doors as processes."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.http.conftest import Stack
from tests.integration.http.wire import wire_to
from tests.processes import ROOT
from tests.unit.http.server import reading
from turnyard.client import Client, RedisClient, SyncClient
from turnyard.errors import AlreadyFinished, JobCancelled, NotFound, SessionBusy
from turnyard.testing import wait_until


def fresh() -> str:
    return f"s-{secrets.token_hex(4)}"


def names(events: list[Any]) -> list[str]:
    return [event.event for event in events]


TOOL_TURN = [
    "inbox/accepted",
    "turn/start",
    "inbox/claimed",
    "message/start",
    "message/end",
    "tool/call",
    "tool/result",
    "message/start",
    "message/end",
    "turn/end",
    "job",
]


async def test_a_job_that_is_waited_for_is_answered_in_one_request(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/jobs", json={"agent": "hello", "input": "add 2 3"}, headers={"prefer": "wait=30"})
    job = response.json()
    assert (response.status_code, job["state"], job["text"]) == (200, "succeeded", "it is 5")
    assert job["input"] == [{"type": "text", "text": "add 2 3"}]
    assert job["started_at"] <= job["finished_at"]
    assert (await http.get(f"/v1/jobs/{job['id']}")).json() == job


async def test_a_session_s_stream_tells_a_tool_turn_from_its_acceptance_to_its_answer(client: Client, stack: Stack) -> None:
    session = fresh()
    job = await client.submit("hello", "add 2 3", session=session, user="u7")
    await job.result(timeout=30)
    async with reading(stack.url, f"/v1/sessions/{session}/events?deltas=false") as reader:
        events = (await reader.until("job"))[1:]
    assert names(events) == TOOL_TURN
    told = {event.event: json.loads(event.data) for event in events}
    assert told["inbox/accepted"]["data"] == {"job": job.id, "user": "u7", "mode": "steer", "position": None}
    assert (told["tool/call"]["data"]["name"], told["tool/call"]["data"]["args"]) == ("add", {"a": 2, "b": 3})
    assert (told["tool/result"]["data"]["name"], told["tool/result"]["data"]["content"]) == ("add", "5")
    assert told["message/end"]["data"]["text"] == "it is 5"
    assert told["job"]["data"]["state"] == "succeeded"
    assert {told[name]["job"] for name in told} == {job.id}


async def test_a_job_s_stream_is_live_and_ends_with_the_job(client: Client, stack: Stack) -> None:
    session = fresh()
    job = await client.submit("hello", "slowly", session=session)
    events = [event async for event in job.events()]
    assert (names(events)[0], names(events)[-1]) == ("hello", "job")
    said = "".join(e.data["data"]["delta"] for e in events if e.event == "message/update")
    (end,) = [e for e in events if e.event == "message/end"]
    # Deltas may be lost at either end; the message at its end is whole.
    assert said
    assert said in end.data["data"]["text"]
    assert events[-1].data["data"]["state"] == "succeeded"
    async with reading(stack.url, f"/v1/jobs/{job.id}/events", Last_Event_ID=str(events[-1].id)) as reader:
        assert reader.response.status_code == 204


@pytest.mark.spec("rival-52")
async def test_a_follower_goes_on_at_another_door_where_it_stopped(client: Client, stack: Stack) -> None:
    session = fresh()
    await client.run("hello", "add 2 3", session=session)
    async with reading(stack.url, f"/v1/sessions/{session}/events?deltas=false") as reader:
        whole = (await reader.until("job"))[1:]
    middle = next(event for event in whole if event.event == "tool/call")
    async with reading(stack.second_url, f"/v1/sessions/{session}/events?deltas=false", Last_Event_ID=middle.id) as reader:
        assert names((await reader.until("job"))[1:]) == TOOL_TURN[TOOL_TURN.index("tool/call") + 1 :]
        await client.run("hello", "hi", session=session)
        assert names(await reader.until("turn/end"))[-1] == "turn/end"


@pytest.mark.spec("runner-52")
async def test_a_remote_follower_hears_all_in_the_same_order_although_its_connection_breaks_again_and_again(
    client: Client, stack: Stack
) -> None:
    session = fresh()
    async with wire_to(stack.url) as wire, Client(wire.url) as afar:
        jobs = [await client.submit("hello", text, session=session, mode="follow_up") for text in ("slowly", "add 2 3", "slowly")]
        heard: list[Any] = []
        async for event in afar.events(session):
            heard.append(event)
            if event.event != "hello" and len(heard) % 3 == 0 and wire.cuts < 12:
                wire.cut()
            if event.event == "job" and event.data["job"] == jobs[-1].id:
                break
    near = [event async for event in first_events(client, session, jobs[-1].id)]
    assert wire.cuts >= 5
    assert lasting(heard) == lasting(near)
    pieces = [(e.id, e.data["data"]["delta"]) for e in heard if e.event == "message/update"]
    # A piece that was under way as the connection broke may be missing; none comes twice.
    assert len(set(pieces)) == len(pieces)


async def first_events(client: Client, session: str, job: str) -> AsyncIterator[Any]:
    """The events of a session to the end of a job, as one who is never cut off hears them."""
    async for event in client.events(session, deltas=False):
        yield event
        if event.event == "job" and event.data["job"] == job:
            return


def lasting(events: list[Any]) -> list[tuple[str, Any]]:
    """What everybody hears, in order: all but the pieces of a message, and what tells where a stream begins."""
    return [(e.event, e.data["data"]) for e in events if e.event not in ("message/update", "message/start", "gap", "hello")]


STOP = """
import asyncio, sys
from turnyard.client import RedisClient

async def main(url, what, job):
    async with RedisClient(url) as client:
        if what == "stop":
            await client.cancel(job)
        else:
            waiting = asyncio.ensure_future(client.wait_job(job, timeout_s=30))
            print("waits", flush=True)
            end = await waiting
            print(end["state"], end["stop_reason"], flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.spec("runner-49")
async def test_a_turn_is_stopped_from_a_second_process_and_awaited_from_a_third(client: Client, stack: Stack, tmp_path: Path) -> None:
    script = tmp_path / "stop.py"
    script.write_text(STOP)
    gate = fresh().replace("-", "_")
    job = await client.submit("hello", f"once {gate}", session=fresh())

    async def running() -> bool:
        return bool(stack.app.ran("once")) and (await client.job(job.id)).data["state"] == "running"

    await wait_until(running, description="the tool to run")

    async def process(what: str) -> asyncio.subprocess.Process:
        words = (str(script), stack.redis, what, job.id)
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE, env=env)

    third = await process("wait")
    assert third.stdout is not None
    assert await third.stdout.readline() == b"waits\n"
    second = await process("stop")
    assert await second.wait() == 0
    told, _ = await third.communicate()
    assert told.decode().split() == ["cancelled", "user"]
    # It returned because the end is stored: whoever reads now sees it.
    assert (await client.job(job.id)).data["state"] == "cancelled"
    assert [e["type"] for e in await client.entries(job.session)][-1] == "tool/result"


async def test_a_job_may_be_waited_for_at_another_door_than_its_own(client: Client, stack: Stack) -> None:
    job = await client.submit("hello", "slowly")
    async with Client(stack.second_url) as other:
        assert (await (await other.job(job.id)).result(timeout=30))["text"].startswith("one two")


async def test_a_repeated_request_is_one_job_whichever_door_it_takes(stack: Stack, client: Client) -> None:
    body = {"agent": "hello", "input": "add 4 4"}
    headers = {"idempotency-key": secrets.token_hex(8), "prefer": "wait=30"}
    async with httpx.AsyncClient(timeout=40) as http:
        urls = [stack.url, stack.second_url] * 4
        answers = await asyncio.gather(*(http.post(f"{url}/v1/jobs", json=body, headers=headers) for url in urls))
    assert {r.status_code for r in answers} == {200}
    assert len({r.json()["id"] for r in answers}) == 1
    assert sum("idempotency-replayed" in r.headers for r in answers) == 7
    session = answers[0].json()["session"]
    assert len([e for e in await client.entries(session) if e["type"] == "user/message"]) == 1


async def test_a_key_with_another_body_is_refused(http: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": secrets.token_hex(8)}
    await http.post("/v1/jobs", json={"agent": "hello", "input": "hi"}, headers=headers)
    other = await http.post("/v1/jobs", json={"agent": "hello", "input": "ho"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")


async def test_a_lifted_call_lets_the_job_wait_and_its_result_ends_it(client: Client, stack: Stack) -> None:
    """The door relays the call to the lifted worker."""
    session = fresh()
    gate = f"g{secrets.token_hex(4)}"
    job = await client.submit("hello", f"render {gate}", session=session)

    async def waiting() -> bool:
        return (await client.job(job.id)).data["state"] == "waiting"

    await wait_until(waiting, description="the job to wait", timeout_s=30)
    data = (await client.job(job.id)).data
    (call,) = data["waiting_for"]
    assert (call["tool"], call["kind"], call["wait"]) == ("render", "lift", False)
    assert data["queue"]["reason"] == "parked"
    stack.app.open(gate)
    await job.result(timeout=30)
    events = [e async for e in job.events()]
    parked, resolved = (next(e for e in events if e.event == name).data["data"] for name in ("call/parked", "call/resolved"))
    assert parked["call"] == resolved["call"] == call["call"]
    assert parked["expires_at"] is not None
    contents = [e.data["data"]["content"] for e in events if e.event == "tool/result"]
    assert f"rendered {gate}" in contents


@pytest.mark.spec("S6")
async def test_a_callback_is_taken_once_and_strangers_are_not_told_anything(client: Client, stack: Stack) -> None:
    stack.app.open("vendor")
    job = await client.submit("hello", "order vendor", session=fresh())
    path = stack.directory / "url"
    await wait_until(path.exists, description="the vendor to be called", timeout_s=30)

    async def waiting() -> bool:
        return (await client.job(job.id)).data["state"] == "waiting"

    await wait_until(waiting, description="the job to wait", timeout_s=30)
    outcome_url = path.read_text()
    assert outcome_url.startswith(f"{stack.url}/v1/outcomes/")
    url = outcome_url.replace("/outcomes/", "/calls/")
    async with httpx.AsyncClient() as vendor:
        forged = await vendor.post(url[:-6] + "AAAAAA", content=b"x")
        assert forged.status_code == 404
        first = await vendor.post(url, json={"data": {"order_id": "1"}})
        again = await vendor.post(url, json={"data": {"order_id": "1"}})
        other = await vendor.post(outcome_url, json={"error": "out of stock"})
    assert [r.status_code for r in (first, again, other)] == [200, 200, 409]
    await job.result(timeout=30)
    results = [e["body"].get("content") for e in await client.entries(job.session) if e["type"] == "tool/result"]
    assert sum("order_id" in str(r) for r in results) == 1
    token = url.rsplit("/", 1)[1]
    assert len(stack.roles) == len(stack.doors) + 3
    assert [role.log().count(token) for role in stack.roles] == [0] * len(stack.roles)
    session = job.session
    told = [await client.entries(session), await client.explain(session), await client.session(session), (await client.job(job.id)).data]
    told += [event.data async for event in job.events()]
    assert token not in json.dumps(told)


async def test_a_running_job_can_be_cancelled(client: Client, stack: Stack) -> None:
    gate = f"never{secrets.token_hex(4)}"
    session = fresh()
    job = await client.submit("hello", f"again {gate}", session=session)

    async def running() -> bool:
        return (await client.session(session))["state"] == "running" and bool(stack.app.ran("again"))

    await wait_until(running, description="the turn to run", timeout_s=30)
    assert (await client.explain(session))["code"] == "running"
    await job.cancel()
    with pytest.raises(JobCancelled) as cancelled:
        await job.result(timeout=30)
    assert cancelled.value.cause == "user"
    with pytest.raises(AlreadyFinished):
        await job.cancel()
    stack.app.open(gate)


@pytest.mark.spec("L41", "rival-1")
async def test_a_job_that_ran_out_of_time_is_cancelled_and_what_waited_behind_it_is_answered(client: Client, stack: Stack) -> None:
    gate = f"never{secrets.token_hex(4)}"
    session = fresh()
    slow = await client.submit("hello", f"again {gate}", session=session, timeout_s=1.5)
    behind = await client.submit("hello", "hi", session=session, mode="follow_up")
    with pytest.raises(JobCancelled) as cancelled:
        await slow.result(timeout=30)
    assert cancelled.value.cause == "deadline"
    assert await behind.result(timeout=30)
    stack.app.open(gate)


async def test_a_notice_is_in_the_context_of_the_next_turn(client: Client) -> None:
    session = fresh()
    await client.run("hello", "hi", session=session)
    await client.notice(session, "41", group="stock", key="ACME")
    await client.notice(session, "42", group="stock", key="ACME")
    await client.run("hello", "hi", session=session)
    notices = [e["body"]["text"] for e in await client.entries(session) if e["type"] == "notification"]
    assert notices == ["42"]


async def test_a_new_history_begins_empty_and_the_stream_goes_on(client: Client, stack: Stack) -> None:
    session = fresh()
    await client.run("hello", "hi", session=session)
    async with reading(stack.url, f"/v1/sessions/{session}/events?deltas=false") as reader:
        await reader.until("job")
        await client.new(session)
        await client.run("hello", "hi", session=session)
        events = await reader.until("job")
        assert events[-1].id.startswith("1.")
    assert (await client.session(session))["store"] == f"{session}:new:1"
    assert len([e for e in await client.entries(session) if e["type"] == "user/message"]) == 1


async def test_sessions_jobs_agents_workers_and_demand_are_listed(client: Client) -> None:
    session = fresh()
    done = await client.submit("hello", "hi", session=session)
    await done.result(timeout=30)
    assert session in [s["id"] for s in await client.sessions()]
    assert [j.id for j in await client.jobs(session=session)] == [done.id]
    assert done.id in [j.id for j in await client.jobs(state="succeeded")]
    assert [m["role"] for m in (await client._connection.get(f"/v1/sessions/{session}/messages"))["data"]] == ["user", "assistant"]
    (agent,) = [a for a in await client.agents() if a["name"] == "hello"]
    assert {"add", "render", "order"} <= {t["name"] for t in agent["tools"]}
    assert {w["role"] for w in await client.workers()} == {"worker", "lifted"}
    assert (await client.scale("default"))["pool"] == "default"
    assert (await client.explain(session))["code"] == "idle"


async def test_any_printable_id_and_text_goes_through_the_whole_yard(client: Client) -> None:
    session = f"a/b:{{c}}*?[d] ü {secrets.token_hex(4)}"
    text = "hi \U0001f600 \u202e \\ud800 \ufffd"
    await client.run("hello", text, session=session)
    assert (await client.session(session))["id"] == session
    assert (await client.entries(session))[0]["body"]["text"] == text


async def test_the_sync_client_runs_a_turn(stack: Stack, client: Client) -> None:
    def use() -> Any:
        with SyncClient(stack.url) as sync:
            return sync.run("hello", "add 2 3")

    assert (await asyncio.to_thread(use))["text"] == "it is 5"


async def test_the_redis_client_does_what_the_http_client_does(stack: Stack, client: Client) -> None:
    session = fresh()
    async with RedisClient(stack.redis) as direct:
        assert (await direct.run("hello", "add 2 3", session=session))["text"] == "it is 5"
        handle = await direct.submit("hello", "add 2 4", session=session)
        assert (await handle.result(timeout=30))["text"] == "it is 6"
        through_http, through_redis = await client.job(handle.id), await direct.job(handle.id)
        assert through_http.data == through_redis.data
        assert await client.entries(session) == await direct.entries(session)
        assert await client.session(session) == await direct.session(session)
        explained = [await door.explain(session) | {"age_ms": 0} for door in (client, direct)]
        assert explained[0] == explained[1]
        http_events = [(e.event, e.id, e.data) async for e in through_http.events()]
        redis_events = [(e.event, e.data) async for e in through_redis.events()]
        assert [(name, data) for name, _, data in http_events] == redis_events


@pytest.mark.spec("S2")
async def test_the_redis_client_of_another_tenant_sees_nothing(stack: Stack, client: Client) -> None:
    session = fresh()
    job = await client.submit("hello", "hi", session=session)
    await job.result(timeout=30)
    async with RedisClient(stack.redis, tenant="acme") as other:
        for act in (other.job(job.id), other.session(session), other.cancel(job.id), other.entries(session), other.explain(session)):
            with pytest.raises(NotFound):
                await act
        assert session not in [s["id"] for s in await other.sessions()]
        await other.run("hello", "hi", session=session)
        assert len(await other.entries(session)) == 2
    assert len(await client.entries(session)) == 2


@pytest.mark.spec("runner-48")
async def test_a_session_that_runs_refuses_at_every_door_who_will_not_wait_and_queues_nothing(
    client: Client, stack: Stack, http: httpx.AsyncClient
) -> None:
    session, gate = fresh(), fresh().replace("-", "_")
    job = await client.submit("hello", f"once {gate}", session=session)

    async def runs() -> bool:
        return (await client.session(session))["state"] == "running"

    await wait_until(runs, description="the session to run")
    async with Client(stack.second_url) as second, RedisClient(stack.redis) as direct:
        for other in (second, direct):
            with pytest.raises(SessionBusy):
                await other.submit("hello", "hi", session=session, mode="reject")
        stack.app.open(gate)
        assert (await job.result(timeout=30))["text"] == f"then: {gate} is open"
        assert (await second.run("hello", "hi", session=session, mode="reject"))["text"] == "hello"
    said = (await http.get(f"/v1/sessions/{session}/messages")).json()["data"]
    assert [m["content"][0]["text"] for m in said if m["role"] == "user"] == [f"once {gate}", "hi"]


@pytest.mark.spec("runner-50")
async def test_what_steers_a_turn_comes_before_what_was_to_follow_it_and_follow_ups_come_one_by_one(client: Client, stack: Stack) -> None:
    session, gate = fresh(), fresh().replace("-", "_")
    await client.submit("hello", f"once {gate}", session=session)

    async def runs() -> bool:
        return (await client.session(session))["state"] == "running"

    await wait_until(runs, description="the session to run")
    async with RedisClient(stack.redis) as other:
        jobs = [await other.submit("hello", f"add {n} {n}", session=session, mode="follow_up") for n in (1, 2)]
        steering = await other.submit("hello", "hi", session=session, mode="steer")
        async for event in client.events(session, deltas=False):
            if event.event == "inbox/accepted" and event.data["job"] == steering.id:
                break
        stack.app.open(gate)
        assert [(await job.result(timeout=30))["text"] for job in jobs] == ["it is 2", "it is 4"]
    said = [entry for entry in await client.entries(session) if entry["type"] in ("user/message", "assistant/message")]
    words = [entry["body"].get("text") for entry in said]
    assert [text for text in words if text] == [f"once {gate}", "hi", "hello", "add 1 1", "it is 2", "add 2 2", "it is 4"]
    turns = {text: entry["turn"] for text, entry in zip(words, said, strict=True)}
    assert turns[f"once {gate}"] == turns["hi"] != turns["add 1 1"] != turns["add 2 2"]
