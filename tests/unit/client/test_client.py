"""What a client does with answers, with none, and with answers that were lost."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from platforms.http.desk import Desk
from tests.unit.client.conftest import Hasty, Lossy, away, lost
from tests.unit.http.fake_edge import FakeEdge
from tests.unit.http.server import served
from turnyard import errors
from turnyard.client import Client, RedisClient, SyncClient
from turnyard.client.connection import ATTEMPTS
from turnyard.errors import JobCancelled, JobFailed, StoreUnavailable, TurnyardError
from turnyard.records import log
from turnyard.testing import wait_until
from turnyard.wire.events import FeedEvent


async def test_a_submitted_job_is_in_the_handle(client: Client, edge: FakeEdge) -> None:
    job = await client.submit("hello", "hi", session="s1", user="u7", mode="collect", priority=3, metadata={"a": "b"})
    (message,) = edge.messages
    assert (message.session, message.user, message.mode, message.priority, message.metadata) == ("s1", "u7", "collect", 3, {"a": "b"})
    assert (job.id, job.session, job.data["state"]) == (message.job, "s1", "queued")
    assert (await client.job(job.id)).data["id"] == job.id


async def test_broken_text_is_repaired_and_a_broken_id_is_not(client: Client, edge: FakeEdge) -> None:
    await client.submit("hello", "a\udcffb", metadata={"k": "\ud800"})
    (message,) = edge.messages
    assert message.body == {"text": "a\ufffdb", "metadata": {"k": "\ufffd"}}
    assert message.metadata == {"k": "\ufffd"}
    with pytest.raises(errors.InvalidInput, match="/session"):
        await client.submit("hello", "hi", session="\udcff")


@pytest.mark.parametrize("key", ["", "ключ"])
async def test_a_key_that_cannot_travel_is_refused_and_none_is_made_up_for_it(client: Client, edge: FakeEdge, key: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"(?i)idempotency.key"):
        await client.submit("hello", "hi", idempotency_key=key)
    assert edge.messages == []


async def test_an_answer_that_is_no_json_comes_from_somebody_else() -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>"))
    async with Client("http://elsewhere", transport=page) as client:
        with pytest.raises(StoreUnavailable, match="check the address"):
            await client.agents()


async def test_the_result_is_the_answer_once_the_job_has_ended(client: Client, edge: FakeEdge) -> None:
    job = await client.submit("hello", "hi")
    waiting = asyncio.create_task(job.result(timeout=30))
    await asyncio.sleep(0)
    edge.finish(job.id, text="5")
    assert await waiting == {"text": "5", "output": None}
    assert job.data["state"] == "succeeded"


class Answer(BaseModel):
    text: str
    ticket: str | None = None


@dataclass
class Declared:
    name: str = "hello"
    output: Any = Answer


async def test_an_agent_object_gives_answers_of_its_type(client: Client, edge: FakeEdge) -> None:
    job = await client.submit(Declared(), "hi")
    edge.finish(job.id)
    edge.jobs[job.id] = type(edge.jobs[job.id])(
        **{**_fields(edge.jobs[job.id]), "output": {"text": "t", "output": {"text": "t", "ticket": "T1"}}}
    )
    assert await job.result(timeout=5) == Answer(text="t", ticket="T1")


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


async def test_run_is_one_request_when_the_answer_comes_in_time(client: Client, edge: FakeEdge, wire: Lossy) -> None:
    running = asyncio.create_task(client.run("hello", "hi", timeout=30))
    await wait_until(lambda: bool(edge.jobs), description="the job to be accepted")
    edge.finish(next(iter(edge.jobs)), text="5")
    assert await running == {"text": "5", "output": None}
    assert [(r.method, r.headers["prefer"]) for r in wire.requests] == [("POST", "wait=30")]


async def test_a_job_that_failed_or_was_cancelled_is_an_exception(client: Client, edge: FakeEdge) -> None:
    job = await client.submit("hello", "hi")
    edge.finish(job.id, state="failed", error={"code": "model_error", "message": "no", "retryable": True, "ref": "r1"})
    with pytest.raises(JobFailed) as failed:
        await job.result(timeout=5)
    assert (failed.value.code, failed.value.ref, str(failed.value)) == ("model_error", "r1", "no")
    other = await client.submit("hello", "hi")
    edge.finish(other.id, state="cancelled", cause="superseded")
    with pytest.raises(JobCancelled) as cancelled:
        await other.result(timeout=5)
    assert cancelled.value.cause == "superseded"


@pytest.mark.parametrize("limit_s", [0, 0.01])
async def test_a_job_that_takes_too_long_goes_on(client: Client, edge: FakeEdge, limit_s: float) -> None:
    job = await client.submit("hello", "hi")
    with pytest.raises(TimeoutError, match=job.id):
        await asyncio.wait_for(job.result(timeout=limit_s), 5)
    assert edge.jobs[job.id].state == "queued"


@pytest.mark.parametrize("fault", [lost, away])
async def test_a_submit_whose_answer_was_lost_is_made_again_and_counts_once(
    client: Client, edge: FakeEdge, wire: Lossy, clock: Hasty, fault: Any
) -> None:
    wire.faults = [fault, fault]
    job = await client.submit("hello", "hi")
    assert len(wire.requests) == 3
    assert len({r.headers["idempotency-key"] for r in wire.requests}) == 1
    assert [m.job for m in edge.messages] == [job.id]


async def test_a_server_that_says_when_to_come_back_is_obeyed(client: Client, wire: Lossy, clock: Hasty) -> None:
    wire.faults = [away]
    await client.agents()
    assert sum(clock.slept) >= 7


async def test_every_submit_has_a_key_of_its_own_unless_one_is_given(client: Client, edge: FakeEdge, wire: Lossy) -> None:
    for key in (None, None, "k", "k"):
        await client.submit("hello", "hi", idempotency_key=key)
    keys = [r.headers["idempotency-key"] for r in wire.requests]
    assert len(set(keys)) == 3
    assert keys[2] == keys[3] == "k"
    assert len(edge.messages) == 3


async def test_a_server_that_stays_silent_is_given_up_after_a_few_attempts(client: Client, wire: Lossy) -> None:
    wire.unreachable = 100
    with pytest.raises(StoreUnavailable, match="http://localhost does not answer"):
        await client.agents()
    assert len(wire.requests) == ATTEMPTS


async def test_a_store_that_stays_away_is_told(client: Client, edge: FakeEdge) -> None:
    edge.down = True
    with pytest.raises(StoreUnavailable):
        await client.submit("hello", "hi")


async def test_waiting_survives_a_server_that_is_away_for_a_while(client: Client, edge: FakeEdge, wire: Lossy) -> None:
    job = await client.submit("hello", "hi")
    wire.unreachable = ATTEMPTS + 2
    edge.finish(job.id, text="5")
    assert (await job.result(timeout=600))["text"] == "5"


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda c: c.submit("nobody", "hi"), errors.UnknownAgent),
        (lambda c: c.submit("hello", ""), errors.InvalidInput),
        (lambda c: c.submit("hello", "hi", mode="now"), errors.InvalidInput),
        (lambda c: c.submit("hello", "x" * 300_000), errors.TooLarge),
        (lambda c: c.job("job_00aaaaaaaaaaaaaaaa"), errors.NotFound),
        (lambda c: c.session("nobody"), errors.NotFound),
        (lambda c: c.cancel("job_00aaaaaaaaaaaaaaaa"), errors.NotFound),
    ],
)
async def test_a_problem_becomes_the_exception_that_it_stands_for(client: Client, act: Any, error: type[TurnyardError]) -> None:
    with pytest.raises(error) as raised:
        await act(client)
    assert type(raised.value) is error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("busy", errors.SessionBusy),
        ("inbox_full", errors.InboxFull),
        ("quota", errors.QuotaExceeded),
        ("mismatch", errors.IdempotencyMismatch),
    ],
)
async def test_a_refusal_is_an_exception_of_its_own(client: Client, edge: FakeEdge, answer: str, error: type[TurnyardError]) -> None:
    edge.answers = [answer]
    with pytest.raises(error):
        await client.submit("hello", "hi")


async def test_an_answer_that_is_no_problem_object_is_still_told(client: Client, wire: Lossy) -> None:
    wire.faults = [lambda request, _: httpx.Response(502, text="bad gateway", request=request)]
    with pytest.raises(TurnyardError, match="502"):
        await client.agents()


async def test_a_refused_value_says_where_it_stands(client: Client) -> None:
    with pytest.raises(errors.InvalidInput) as raised:
        await client.submit("hello", "hi", priority=99)
    assert raised.value.pointer == "/priority"


async def test_a_session_may_have_any_printable_id(client: Client, edge: FakeEdge) -> None:
    for session in ("a/b", "a b?c#d", "ü%2F"):
        await client.messages(session, "hi", agent="hello")
        assert (await client.session(session))["id"] == session


async def test_a_cancel_takes_along_what_was_started_only_when_it_says_so(client: Client, edge: FakeEdge) -> None:
    job = await client.submit("hello", "hi")
    await client.cancel(job.id)
    await job.cancel(cascade=True)
    assert edge.cascades == [False, True]
    edge.session("s1")
    await client.cancel_session("s1")
    await client.cancel_session("s1", turn="t", cascade=True)
    assert [(c["turn"], c["cascade"]) for c in edge.controls] == [(None, False), ("t", True)]


async def test_the_rest_of_the_api_is_reached(client: Client, edge: FakeEdge) -> None:
    edge.session("s1")
    edge.write("s1", log.USER, turn="t", jobs=("job_1",), body={"text": "hi"})
    await client.notice("s1", "42", group="stock", key="ACME")
    await client.new("s1")
    await client.cancel_session("s1", turn="t")
    assert [e["body"] for e in await client.entries("s1")] == [{"text": "hi"}]
    assert (await client.explain("s1"))["code"] == "idle"
    assert [a["name"] for a in await client.agents()] == ["hello"]
    assert (await client.workers())[0]["pid"] == 1
    assert (await client.scale("default"))["desired_turns"] == 1
    assert [s["id"] for s in await client.sessions()] == ["s1"]
    assert edge.notices[0]["body"]["text"] == "42"
    assert [c["control"] for c in edge.controls] == ["new", "cancel"]


async def test_a_job_is_followed_to_its_end(edge: FakeEdge, desk: Desk) -> None:
    async with served(desk) as url, Client(url) as client:
        job = await client.submit("hello", "hi", session="s1")
        names: list[str] = []
        async for event in job.events():
            names.append(event.event)
            if event.event == "hello":
                edge.run_turn("s1", job.id)
        assert names[0] == "hello"
        assert names[-1] == "job"
        assert [e async for e in job.events(after="0.3-0")] == []


def cut_after(count: int) -> Any:
    """Let a stream break after so many events."""

    def cut(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        async def body() -> AsyncIterator[bytes]:
            text = "".join([chunk.decode() async for chunk in response.aiter_raw()])
            for block in text.split("\n\n")[:count]:
                yield f"{block}\n\n".encode()
            raise httpx.ReadError("reset", request=request)

        return httpx.Response(response.status_code, headers=response.headers, content=body(), request=request)

    return cut


@pytest.mark.spec("L50")
async def test_a_follower_whose_connection_breaks_misses_nothing_and_sees_nothing_twice(
    client: Client, edge: FakeEdge, wire: Lossy
) -> None:
    job = await client.submit("hello", "hi", session="s1")
    edge.run_turn("s1", job.id)
    whole = [(e.event, e.data["seq"]) async for e in job.events()]
    assert len(whole) == 7
    for count in range(len(whole)):
        wire.faults = [cut_after(count)]
        assert [(e.event, e.data["seq"]) async for e in job.events()] == whole
        wire.faults = [cut_after(count), cut_after(2), cut_after(3)]
        assert [(e.event, e.data["seq"]) async for e in job.events()] == whole


async def test_following_a_session_that_does_not_exist_fails_at_once(edge: FakeEdge, desk: Desk) -> None:
    async with served(desk) as url, Client(url) as client:
        with pytest.raises(errors.NotFound):
            async for _ in client.follow("nobody"):
                pass


def direct_on(edge: FakeEdge) -> RedisClient:
    client = RedisClient("redis://unused")
    client._edge = edge  # pyright: ignore[reportPrivateUsage]
    return client


@pytest.mark.spec("turn-62")
@pytest.mark.parametrize("cursor", ["17", "0.1", "1.1-0"])
async def test_following_from_a_place_that_the_session_does_not_have_fails_at_once(
    edge: FakeEdge, desk: Desk, client: Client, cursor: str
) -> None:
    job = await client.submit("hello", "hi", session="s1")
    edge.run_turn("s1", job.id)
    direct = direct_on(edge)
    async with served(desk) as url, Client(url) as remote:
        for source in (remote.follow("s1", cursor), direct.follow("s1", cursor), direct.job_events(job.id, after=cursor)):
            with pytest.raises(errors.InvalidRequest):
                await anext(source)


@pytest.mark.spec("turn-62")
async def test_both_clients_give_exactly_what_is_behind_any_event(edge: FakeEdge, desk: Desk, client: Client) -> None:
    job = await client.submit("hello", "hi", session="s1")
    edge.run_turn("s1", job.id)
    direct = direct_on(edge)
    async with served(desk) as url, Client(url) as remote:
        for source in (remote.follow, direct.follow):
            whole = await told(source("s1"))
            ids = [event.id for event in whole]
            carriers = [i for i, at in enumerate(ids) if at and at not in ids[:i]]
            assert [ids[i] for i in carriers] == ["0.1-0", "0.2-0", "0.3-0"]
            for i in carriers[:-1]:
                assert [e.event for e in await told(source("s1", ids[i]))] == [e.event for e in whole[i + 1 :]]


async def told(events: AsyncGenerator[FeedEvent]) -> list[FeedEvent]:
    """Return what a stream tells, without its hello, to the end of the job."""
    found: list[FeedEvent] = []
    async with contextlib.aclosing(events):
        async for event in events:
            found.append(event)
            if event.event == "job":
                break
    return found[1:]


async def test_following_gives_up_when_nobody_answers(client: Client, wire: Lossy) -> None:
    wire.unreachable = 100
    with pytest.raises(StoreUnavailable):
        async for _ in client.events("s1"):
            pass
    assert len(wire.requests) == ATTEMPTS


async def test_the_sync_client_does_the_same(edge: FakeEdge, desk: Desk) -> None:
    def use(url: str) -> list[str]:
        with SyncClient(url) as client:
            job = client.submit("hello", "hi", session="s1")
            names: list[str] = []
            for event in job.events():
                names.append(event.event)
                if event.event == "hello":
                    loop.call_soon_threadsafe(edge.run_turn, "s1", job.id)
            assert job.result(timeout=5) == {"text": "5", "output": None}
            assert client.session("s1")["id"] == "s1"
            with pytest.raises(errors.UnknownAgent):
                client.run("nobody", "hi")
            return names

    loop = asyncio.get_running_loop()
    async with served(desk) as url:
        names = await asyncio.to_thread(use, url)
    assert (names[0], names[-1]) == ("hello", "job")


def test_the_sync_client_mirrors_the_async_one() -> None:
    hidden = {"wait_job", "job_events", "aclose", "handle"}
    methods = {name for name, _ in inspect.getmembers(Client, callable) if not name.startswith("_")} - hidden
    missing = {name for name in methods if not hasattr(SyncClient, name)}
    assert missing == set()


def test_the_environment_decides_which_client_it_is() -> None:
    assert isinstance(Client.from_env(environ={"TURNYARD_URL": "http://h", "REDIS_URL": "redis://r"}), Client)
    assert isinstance(Client.from_env(environ={"REDIS_URL": "redis://r"}), RedisClient)
    assert isinstance(Client.from_env(environ={}), Client)


def test_the_http_client_loads_neither_redis_nor_a_server() -> None:
    code = "import sys; from turnyard.client import Client, SyncClient; print([m for m in sys.modules if m.partition('.')[0] in {names}])"
    names = {"redis", "arq", "fastapi", "starlette", "uvicorn", "typer", "yaml"}
    found = subprocess.run([sys.executable, "-c", code.replace("{names}", repr(names))], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
