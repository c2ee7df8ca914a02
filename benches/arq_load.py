"""The same loads for arq: one job under way per session, or jobs by the clock."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from arq import create_pool
from arq.connections import ArqRedis

from benches.arq_worker import CHANNEL, settings
from benches.stack import Stack, server, wait_for
from benches.stamps import marked

VARIANTS = {"arq": "default", "arq_tuned": "tuned"}
AT_ONCE = 64
HEALTH = "arq:queue:health-check"


@contextlib.contextmanager
def arq_yard(variant: str) -> Iterator[Stack]:
    """Run two arq workers, `default` or `tuned`."""
    with server() as stack:
        for n in range(2):
            stack.start(f"arq{n}", "-m", "benches.arq_worker", stack.url, variant)
        wait_for(lambda: stack.redis.exists(HEALTH), "arq's workers", stack)
        yield stack


class ArqSubmitter:
    """Enqueues jobs and waits for their ends."""

    def __init__(self, pool: ArqRedis, steps: int) -> None:
        self._pool = pool
        self._steps = steps
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)  # arq opens a connection for each enqueue that is under way
        self._count = 0

    async def ask(self, session: str, text: str = "hello there") -> None:
        """Run one job to its end."""
        self._count += 1
        job = f"{session}-{self._count}"
        future = self._waiting[job] = asyncio.get_running_loop().create_future()
        async with self._room:
            await self._pool.enqueue_job("turn", session, text, self._steps, _job_id=job)
        await future

    async def listen(self, listening: asyncio.Event) -> None:
        """Hear of ends until cancelled."""
        async with self._pool.pubsub() as pubsub:
            await pubsub.subscribe(CHANNEL)
            listening.set()
            async for message in pubsub.listen():
                if message["type"] == "message" and (future := self._waiting.pop(_text(message["data"]), None)):
                    future.set_result(None)


@contextlib.asynccontextmanager
async def arq_submitter(url: str, steps: int) -> AsyncGenerator[ArqSubmitter]:
    """Open a submitter."""
    pool = await create_pool(settings(url))
    submit, listening = ArqSubmitter(pool, steps), asyncio.Event()
    ears = asyncio.create_task(submit.listen(listening))
    await listening.wait()
    try:
        yield submit
    finally:
        ears.cancel()
        await asyncio.gather(ears, return_exceptions=True)
        await pool.aclose()


async def arq_closed_loop(url: str, *, steps: int, sessions: int, seconds: float, warmup_s: float) -> float:
    """Keep one job under way in each session; return jobs per second after a warm-up."""
    done = 0

    async def writer(submit: ArqSubmitter, session: str) -> None:
        nonlocal done
        while True:
            await submit.ask(session)
            done += 1

    async with arq_submitter(url, steps) as submit:
        tasks = [asyncio.create_task(writer(submit, f"s{i}")) for i in range(sessions)]
        await asyncio.sleep(warmup_s)
        first, began = done, time.monotonic()
        await asyncio.sleep(seconds)
        per_s = (done - first) / (time.monotonic() - began)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return per_s


async def arq_open_loop(url: str, *, per_s: float, seconds: float) -> dict[int, int]:
    """Enqueue by the clock; return when each was sent, in nanoseconds of CLOCK_MONOTONIC."""
    sent: dict[int, int] = {}

    async def one(submit: ArqSubmitter, n: int) -> None:
        sent[n] = time.monotonic_ns()
        await submit.ask(f"o{n % 100}", marked(n))

    async with arq_submitter(url, 1) as submit, asyncio.TaskGroup() as group:
        await submit.ask("first")
        began = time.monotonic()
        for n in range(int(per_s * seconds)):
            await asyncio.sleep(max(0.0, began + n / per_s - time.monotonic()))
            group.create_task(one(submit, n))
    return sent


def _text(raw: Any) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw)
