"""The arq adapter on a real server: what travels, what is refused, what a dead process leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import orjson
import pytest
from redis.asyncio import Redis

from turnyard import lifted
from turnyard.clock import SystemClock
from turnyard.lifted import LiftedTask, LiftQueue, LiftRunner, job_id, queue_key

TASK = LiftedTask(0, "abcd.0", "call_1")


@contextlib.asynccontextmanager
async def running(url: str, run: lifted.Run, *, most: int = 2) -> AsyncGenerator[asyncio.Event]:
    """A runner of the queue `q` for the length of the block; yields its drain."""
    drain = asyncio.Event()
    runner = LiftRunner(url, "q", run, most=most, clock=SystemClock())
    serving = asyncio.create_task(runner.serve(drain))
    try:
        yield drain
        drain.set()
        await serving
    finally:
        serving.cancel()
        await runner.aclose()


@pytest.fixture
async def queue(plain_url: str) -> AsyncIterator[LiftQueue]:
    sender = LiftQueue(plain_url)
    yield sender
    await sender.aclose()


async def test_a_task_runs_once_with_the_name_of_its_call_and_its_job(plain_url: str, queue: LiftQueue, redis_client: Redis) -> None:
    ran: list[tuple[LiftedTask, str]] = []
    done = asyncio.Event()

    async def run(task: LiftedTask, job: str) -> None:
        ran.append((task, job))
        done.set()

    assert await queue.enqueue(TASK, job=job_id("call_1", 0), queue="q")
    async with running(plain_url, run):
        await asyncio.wait_for(done.wait(), 10)
    assert ran == [(TASK, "call_1:0")]
    assert [key for key in await redis_client.keys("arq:*") if not key.endswith((b"health-check", b"hint"))] == []


async def test_what_travels_is_json_and_names_the_call_only(queue: LiftQueue, redis_client: Redis) -> None:
    await queue.enqueue(TASK, job=job_id("call_1", 0), queue="q")
    raw = await redis_client.get("arq:job:call_1:0")
    assert raw is not None
    assert orjson.loads(raw)["a"] == [0, "abcd.0", "call_1"]


async def test_the_same_relay_is_taken_once_and_the_next_one_again(queue: LiftQueue) -> None:
    assert await queue.enqueue(TASK, job=job_id("call_1", 0), queue="q")
    assert not await queue.enqueue(TASK, job=job_id("call_1", 0), queue="q")
    assert await queue.enqueue(TASK, job=job_id("call_1", 1), queue="q")


async def test_a_drain_takes_nothing_more_and_waits_for_what_runs(plain_url: str, queue: LiftQueue, redis_client: Redis) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def run(task: LiftedTask, job: str) -> None:
        started.set()
        await release.wait()
        ended.append(job)

    await queue.enqueue(TASK, job="first", queue="q")
    async with running(plain_url, run) as drain:
        await asyncio.wait_for(started.wait(), 10)
        drain.set()
        await queue.enqueue(TASK, job="second", queue="q")
        release.set()
    assert ended == ["first"]
    assert await redis_client.zrange(queue_key("q"), 0, -1) == [b"second"]


async def test_the_mark_of_a_running_task_lapses_within_a_minute_of_its_process(
    plain_url: str, queue: LiftQueue, redis_client: Redis
) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def run(task: LiftedTask, job: str) -> None:
        started.set()
        await release.wait()

    await queue.enqueue(TASK, job="first", queue="q")
    async with running(plain_url, run):
        await asyncio.wait_for(started.wait(), 10)
        assert 0 < await redis_client.pttl("arq:in-progress:first") <= 60_000
        release.set()
