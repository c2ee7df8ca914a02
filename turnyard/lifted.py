"""How a lifted call reaches a process that runs it: the only module that knows arq.

arq carries the name of a call and nothing else, and its word on a task counts for nothing: the call's row says who
runs it and what came of it. arq refuses an id that it still holds, so each relay of a call has an id of its own, and
arq's mark of a running job is kept short and renewed: what a dead process held is free again within a minute. arq looks
for jobs by asking again and again; here an idle process waits for a hint instead, and looks once a second in case it
was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson
from arq.connections import ArqRedis
from arq.worker import Worker, func
from redis import exceptions as rx

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.state.connection import connect, describe

if TYPE_CHECKING:
    from turnyard.ports import Clock

log = logging.getLogger("turnyard.lifted")

_FUNCTION = "lifted"
_BUSY_POLL_S = 0.05
_IDLE_POLL_S = 1.0
_HINTS = 9
_HINT_LIFE_S = 60
_JOB_TIMEOUT_S = 400 * 86_400  # the row has the deadline that counts
_IN_PROGRESS_S = 60.0
_RENEW_S = 20.0
_LOOK_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class LiftedTask:
    """Which call to run: `shard` and `store` say where its row is."""

    shard: int
    store: str
    call: str


Run = Callable[[LiftedTask, str], Awaitable[None]]


def queue_key(queue: str) -> str:
    """Return the key under which arq keeps a queue of lifted calls."""
    return f"arq:ty:{queue}"


def hint_key(queue: str) -> str:
    """Return the key of the list on which idle processes wait for a queue to hold something."""
    return f"{queue_key(queue)}:hint"


def job_id(call: str, relays: int) -> str:
    """Return arq's id of one relay of a call."""
    return f"{call}:{relays}"


def _client(url: str) -> ArqRedis:
    pool = cast("Any", connect(url).connection_pool)
    return ArqRedis(pool, job_serializer=orjson.dumps, job_deserializer=orjson.loads)


async def _close(redis: ArqRedis) -> None:
    await redis.aclose()
    await cast("Any", redis.connection_pool).disconnect()


class LiftQueue:
    """The sending end, used by relays."""

    def __init__(self, url: str) -> None:
        self._redis = _client(url)

    async def enqueue(self, task: LiftedTask, *, job: str, queue: str) -> bool:
        """Hand a task to the processes that serve `queue`; False when arq has this job already.

        Raises:
            StoreUnavailable: arq's server did not answer; the job may be there: enqueue it again under the same id.
        """
        try:
            sent = await self._redis.enqueue_job(_FUNCTION, task.shard, task.store, task.call, _job_id=job, _queue_name=queue_key(queue))
            await self._hint(queue)
        except (rx.RedisError, OSError) as error:
            raise StoreUnavailable(f"server {describe(self._redis)} did not take lifted call {task.call}; it is relayed again") from error
        return sent is not None

    async def _hint(self, queue: str) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.lpush(hint_key(queue), b"1")
            pipe.ltrim(hint_key(queue), 0, _HINTS)
            pipe.expire(hint_key(queue), _HINT_LIFE_S)
            await pipe.execute()

    async def aclose(self) -> None:
        """Let go of the connections."""
        await _close(self._redis)


class LiftRunner:
    """The taking end: runs tasks of one queue, at most `most` at a time."""

    def __init__(self, url: str, queue: str, run: Run, *, most: int, clock: Clock) -> None:
        self._redis = _client(url)
        self._ears = connect(url, blocking=True, max_connections=2)
        self._queue = queue
        self._run = run
        self._clock = clock
        self._worker = Worker(
            [func(cast("Any", self._task), name=_FUNCTION, max_tries=1, keep_result=0)],
            queue_name=queue_key(queue),
            redis_pool=self._redis,
            max_jobs=most,
            job_timeout=_JOB_TIMEOUT_S,
            keep_result=0,
            max_tries=1,
            retry_jobs=False,
            handle_signals=False,
            log_results=False,
            job_serializer=orjson.dumps,
            job_deserializer=orjson.loads,
        )
        self._worker.in_progress_timeout_s = _IN_PROGRESS_S

    async def serve(self, drain: asyncio.Event) -> None:
        """Take and run tasks until `drain` is set and those in hand are done; the caller bounds the wait."""
        poller = asyncio.create_task(self._poll())
        renewer = asyncio.create_task(self._renew())
        drained = asyncio.create_task(drain.wait())
        try:
            await asyncio.wait((drained, poller), return_when=asyncio.FIRST_COMPLETED)
            if poller.done():
                poller.result()  # it only ends by a defect, which the caller must not outlive
            self._worker.allow_pick_jobs = False
            while not all(task.done() for task in self._worker.tasks.values()):
                await self._clock.sleep(_LOOK_AGAIN_S)
        finally:
            for helper in (drained, poller, renewer):
                helper.cancel()

    async def _task(self, ctx: dict[str, Any], shard: int, store: str, call: str) -> None:
        await self._run(LiftedTask(shard, store, call), ctx["job_id"])

    async def _poll(self) -> None:
        """Keep arq going whatever becomes of its server; tasks in hand go on meanwhile."""
        backoff = Backoff()
        while True:
            try:
                await cast("Any", self._worker)._poll_iteration()  # noqa: SLF001 - arq's own loop is this and a fixed delay
                await self._pause()
            except (rx.RedisError, OSError) as error:
                if not backoff.failing:
                    log.warning("the queue of lifted calls is out of reach", extra={"queue": self._queue, "reason": str(error)})
                await self._clock.sleep(backoff.next_s())
            else:
                backoff.reset()

    async def _pause(self) -> None:
        """Wait until it is worth looking again: soon while tasks run and make room, at the next hint when idle."""
        if self._worker.tasks:
            await self._clock.sleep(_BUSY_POLL_S)
        else:
            await cast("Any", self._ears).blpop([hint_key(self._queue)], timeout=_IDLE_POLL_S)

    async def _renew(self) -> None:
        """Keep arq's mark on the jobs in hand: without it arq would give them to another process, in vain."""
        while True:
            await self._clock.sleep(_RENEW_S)
            try:
                await self._mark(list(self._worker.tasks))
            except (rx.RedisError, OSError):
                continue

    async def _mark(self, jobs: Sequence[str]) -> None:
        for job in jobs:
            await self._redis.pexpire(f"arq:in-progress:{job}", int(_IN_PROGRESS_S * 1000))

    async def aclose(self) -> None:
        """Stop what is still running and let go of the connections."""
        for task in list(self._worker.tasks.values()):
            task.cancel()
        await asyncio.gather(*self._worker.tasks.values(), return_exceptions=True)
        await self._ears.aclose()
        await _close(self._redis)
