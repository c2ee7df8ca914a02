"""Work for a deployment: sessions that each send a message, wait for its answer, and send the next; or messages by the clock.

The submitter is one process that uses the state functions, as a service with a RedisClient does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from benches.results import Unmeasured
from benches.stamps import marked
from turnyard.records.ids import new_job_id, session_key, shard_of
from turnyard.records.messages import UserMessage
from turnyard.state.ingress import accept_message
from turnyard.state.jobs import JobWatch
from turnyard.state.yard import Yard

T = TypeVar("T")
TEXT = "hello there"
DRAIN_S = 15.0


@dataclass(frozen=True)
class Load(Generic[T]):
    """What a load did: answers in `seconds`, and what `probe` said before and after them."""

    turns: int
    seconds: float
    before: T
    after: T

    @property
    def per_s(self) -> float:
        """Turns per second."""
        return self.turns / self.seconds


class Submitter:
    """Sends messages and waits for their answers."""

    def __init__(self, yard: Yard, watch: JobWatch, agent: str) -> None:
        self._yard = yard
        self._watch = watch
        self._agent = agent

    async def send(self, session: str, text: str = TEXT, *, tenant: str = "default") -> str:
        """Send one message; return its job, which ends with its turn."""
        job = new_job_id(shard_of(session_key(tenant, session), len(self._yard.shards)))
        message = UserMessage(tenant, session, self._agent, {"text": text}, job, "h", complete_when="turn", notify=self._watch.channel)
        answer = await accept_message(self._yard, message)
        if answer.code != "accepted":
            raise Unmeasured(f"a message for session {session} was not accepted: {answer.code}")
        return job

    async def ended(self, job: str) -> None:
        """Wait for an answer."""
        await self._watch.ended(job)

    async def ask(self, session: str, text: str = TEXT) -> None:
        """Send one message and wait for its answer."""
        await self.ended(await self.send(session, text))


@asynccontextmanager
async def submitter(url: str, agent: str) -> AsyncGenerator[Submitter]:
    """Open a submitter."""
    yard = await Yard.open(url)
    watch = await JobWatch.start(yard)
    try:
        yield Submitter(yard, watch, agent)
    finally:
        await watch.aclose()
        await yard.aclose()


async def closed_loop(url: str, agent: str, *, sessions: int, seconds: float, warmup_s: float, probe: Callable[[], T]) -> Load[T]:
    """Keep one message under way in each of `sessions` sessions; count the answers after a warm-up."""
    done = 0
    stop = asyncio.Event()

    async def writer(submit: Submitter, session: str) -> None:
        nonlocal done
        while not stop.is_set():
            await submit.ask(session)
            done += 1

    async with submitter(url, agent) as submit:
        tasks = [asyncio.create_task(writer(submit, f"{agent}-{i}")) for i in range(sessions)]
        await asyncio.sleep(warmup_s)
        first, before, began = done, probe(), time.monotonic()
        await asyncio.sleep(seconds)
        turns, took, after = done - first, time.monotonic() - began, probe()
        stop.set()
        await _over(tasks)
    return Load(turns, took, before, after)


async def bounded(url: str, agent: str, *, sessions: int, turns: int) -> int:
    """Run exactly `turns` turns in each of `sessions` sessions to their ends; return how many that were."""

    async def writer(submit: Submitter, session: str) -> None:
        for _ in range(turns):
            await submit.ask(session)

    async with submitter(url, agent) as submit, asyncio.TaskGroup() as group:
        for i in range(sessions):
            group.create_task(writer(submit, f"{agent}-b{i}"))
    return sessions * turns


async def open_loop(url: str, agent: str, *, per_s: float, seconds: float, sessions: int = 100) -> dict[int, int]:
    """Send by the clock, whatever comes back; return when each message was sent, in nanoseconds of CLOCK_MONOTONIC."""
    sent: dict[int, int] = {}

    async def one(submit: Submitter, n: int) -> None:
        sent[n] = time.monotonic_ns()
        await submit.ask(f"{agent}-o{n % sessions}", marked(n))

    async with submitter(url, agent) as submit, asyncio.TaskGroup() as group:
        await submit.ask(f"{agent}-first")  # connections are open and scripts known before the clock starts
        began = time.monotonic()
        for n in range(int(per_s * seconds)):
            await asyncio.sleep(max(0.0, began + n / per_s - time.monotonic()))
            group.create_task(one(submit, n))
    return sent


async def _over(tasks: list[asyncio.Task[None]]) -> None:
    _, late = await asyncio.wait(tasks, timeout=DRAIN_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
