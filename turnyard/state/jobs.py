"""Jobs: read one, or wait for its end.

The end of a job is announced on the channel that its submitter named. An announcement may be lost, so a waiting job is
also looked at now and then: a lost one costs a second, never the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import orjson
from redis import exceptions as rx

from turnyard.records.ids import job_shard, store_key
from turnyard.records.jobs import TERMINAL, Job
from turnyard.records.log import ASSISTANT, CALL, RESULT, LogRecord, parse_record
from turnyard.state.reads import reading, text
from turnyard.state.turns import flat

if TYPE_CHECKING:
    from turnyard.state.yard import Shard, Yard

_REMEMBER = 10_000
_PAGE, _PAGES = 1000, 10
_FIRST_LOOK_S = 0.75
_LAST_LOOK_S = 10.0
_LOOK_EVERY_S = 0.25
_LOOK_AT_ONCE = 200


async def read_job(yard: Yard, job: str, *, tenant: str) -> Job | None:
    """Return a job, or None when there is none of that id or it is another tenant's.

    A job whose turn waits for something outside is told as waiting, although its row says that it runs: no worker has it.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    n = job_shard(job)
    shard = yard.shard(n) if n is not None else None
    if shard is None:
        return None
    with reading(f"job {job}"):
        row = {text(k): v for k, v in (await shard.redis.hgetall(shard.keys.job(job))).items()}
        if not row or text(row.get("tn")) != tenant:
            return None
        records = await _records(shard, row) if "en" in row else []
        if row["st"] == b"running" and await _is_parked(shard, row):
            row["st"] = b"waiting"
    asked = orjson.loads(row["in"]) if row.get("in") else (records[0].body if records else {})
    said = next((r.body for r in records if r.seq == int(row.get("se", 0))), None)
    found = _job(job, row, asked, said, _usage(records, text(row.get("tu"))))
    return replace(found, partial=_last_words(records, found.turn)) if found.state in ("failed", "cancelled") else found


async def _is_parked(shard: Shard, row: dict[str, bytes]) -> bool:
    """Tell whether the job's own turn is the one that its session has parked."""
    state, turn = await shard.redis.hmget(shard.keys.head(text(row["sid"])), "st", "tu")
    return text(state) == "parked" and turn == row.get("tu")


async def _records(shard: Shard, row: dict[str, bytes]) -> list[LogRecord]:
    """Return what the log holds from the job's message, which is the first, to its answer, which is the last.

    A job that waits for days shares its session with others, so there may be any number between the two: what lies
    behind the first `_PAGE * _PAGES` is left out, the answer never.
    """
    key = shard.keys.log(store_key(text(row["sid"]), int(row.get("eo", b"0"))))
    first, last = text(row["en"]) + "-0", text(row["se"]) + "-0" if row.get("se", b"0") != b"0" else "+"
    records: list[LogRecord] = []
    for _ in range(_PAGES):
        page = await shard.redis.execute_command("XRANGE", key, first, last, "COUNT", _PAGE)
        records += [parse_record(eid, flat(fields)) for eid, fields in page]
        if len(page) < _PAGE:
            return records
        first = "(" + text(page[-1][0])
    if last != "+":
        page = await shard.redis.execute_command("XRANGE", key, last, last)
        records += [parse_record(eid, flat(fields)) for eid, fields in page]
    return records


def _usage(records: list[LogRecord], turn: str) -> dict[str, int]:
    """Add up what the job's turn has used so far, with what its children did whose results it has."""
    total: dict[str, int] = {"model_calls": 0, "tool_calls": 0}
    for record in records:
        if record.turn != turn:
            continue
        total["model_calls"] += record.body.get("asked", 1) if record.type == ASSISTANT else 0
        total["tool_calls"] += record.type == CALL
        told = record.type == ASSISTANT or (record.type == RESULT and record.kind == "child")
        usage: dict[str, int] = record.body.get("usage") or {} if told else {}
        for name, n in usage.items():
            total[name] = total.get(name, 0) + n
    return total


def _last_words(records: list[LogRecord], turn: str | None) -> str:
    """Return what the model said last in a turn that came to no answer."""
    said = (r.body.get("text") for r in reversed(records) if r.type == ASSISTANT and r.turn == turn)
    return next((words for words in said if words), "")


def _job(job: str, row: dict[str, bytes], asked: dict[str, Any], said: dict[str, Any] | None, usage: dict[str, int]) -> Job:
    state = text(row["st"])
    done = state == "succeeded"
    output = {"text": said.get("text", ""), "output": said.get("output", said.get("text", ""))} if done and said is not None else None
    return Job(
        id=job,
        state=state,  # pyright: ignore[reportArgumentType]
        tenant=text(row["tn"]),
        session=text(row["id"]),
        session_key=text(row["sid"]),
        agent=text(row["ag"]),
        user=text(row.get("us")),
        turn=text(row.get("tu")) or None,
        mode=text(row.get("md")) or "steer",
        complete_when=text(row.get("cw")) or "settled",
        open=int(row.get("op", 0)),
        input=asked,
        output=output if output is not None or not done else {"text": "", "output": ""},
        error=orjson.loads(row["er"]) if "er" in row and state == "failed" else None,
        cause=text(row["ca"]) if "ca" in row else None,
        merged_into=text(row["mi"]) if "mi" in row else None,
        metadata=orjson.loads(row["me"]) if row.get("me") else {},
        priority=int(row.get("pr", 0)),
        usage=usage,
        cancel_requested="cq" in row,
        created_ms=int(row["cr"]),
        started_ms=int(row["sa"]) if "sa" in row else None,
        finished_ms=int(row["fi"]) if "fi" in row else None,
    )


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody who waits for a job, and when its row is looked at next should nothing be announced."""

    future: asyncio.Future[None]
    look_at: float
    pause_s: float = _FIRST_LOOK_S


class JobWatch:
    """Who in this process waits for which job to end. `channel` goes into `UserMessage.notify`."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self.channel = f"ty:ended:{secrets.token_hex(8)}"
        self._waiting: dict[str, list[_Waiter]] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, yard: Yard) -> JobWatch:
        """Return a watch that listens; close it with `aclose`.

        Raises:
            StoreUnavailable: the server did not answer.
        """
        watch = cls(yard)
        listening = asyncio.Event()
        watch._tasks = [asyncio.create_task(watch._listen(listening)), asyncio.create_task(watch._look())]
        await listening.wait()
        return watch

    async def aclose(self) -> None:
        """Stop listening; who still waits is cancelled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for waiter in [w for waiters in self._waiting.values() for w in waiters]:
            waiter.future.cancel()

    async def ended(self, job: str) -> None:
        """Return when the job was announced as ended, or is found to be."""
        if job in self._ended:
            del self._ended[job]
            return
        waiter = _Waiter(asyncio.get_running_loop().create_future(), self._yard.clock.monotonic() + _FIRST_LOOK_S)
        self._waiting.setdefault(job, []).append(waiter)
        try:
            await waiter.future
        finally:
            self._waiting[job].remove(waiter)
            if not self._waiting[job]:
                del self._waiting[job]

    async def done(self, job: str, *, tenant: str = "default", timeout_s: float | None = None) -> Job:
        """Return the job once it has ended.

        Raises:
            TimeoutError: it has not within `timeout_s`; it goes on.
            StoreUnavailable: the server did not answer.
        """
        async with asyncio.timeout(timeout_s):
            await self.ended(job)
        found = await read_job(self._yard, job, tenant=tenant)
        if found is None:
            raise LookupError(job)
        return found

    async def _look(self) -> None:
        """Look at the rows of jobs that were waited for in silence, all that are due in one round trip."""
        while True:
            await self._yard.clock.sleep(_LOOK_EVERY_S)
            now = self._yard.clock.monotonic()
            due = [job for job, waiters in self._waiting.items() if any(w.look_at <= now for w in waiters)]
            for at in range(0, len(due), _LOOK_AT_ONCE):
                with contextlib.suppress(rx.RedisError, OSError, TimeoutError):
                    await self._look_at(due[at : at + _LOOK_AT_ONCE], now)

    async def _look_at(self, jobs: list[str], now: float) -> None:
        by_server: dict[int, list[tuple[str, Shard]]] = {}
        for job in jobs:
            shard = self._home(job)
            if shard is None:
                self._announce(job)
            else:
                by_server.setdefault(id(shard.redis), []).append((job, shard))
        for homes in by_server.values():
            await self._look_there(homes)
        for job in jobs:
            for waiter in self._waiting.get(job, []):
                waiter.pause_s = min(_LAST_LOOK_S, waiter.pause_s * 2)
                waiter.look_at = now + waiter.pause_s

    async def _look_there(self, homes: list[tuple[str, Shard]]) -> None:
        """Look at jobs that are on one server."""
        async with homes[0][1].redis.pipeline(transaction=False) as pipe:
            for job, shard in homes:
                pipe.hget(shard.keys.job(job), "st")
            states: list[bytes | None] = await pipe.execute()
        for (job, _), state in zip(homes, states, strict=True):
            if state is None or text(state) in TERMINAL:
                self._announce(job)

    def _home(self, job: str) -> Shard | None:
        n = job_shard(job)
        return self._yard.shard(n) if n is not None else None

    def _announce(self, job: str) -> None:
        waiters = self._waiting.get(job)
        if waiters:
            for waiter in waiters:
                if not waiter.future.done():
                    waiter.future.set_result(None)
            return
        self._ended[job] = None
        if len(self._ended) > _REMEMBER:
            self._ended.popitem(last=False)

    async def _listen(self, listening: asyncio.Event) -> None:
        while True:
            pubsub = self._yard.blocking.pubsub(ignore_subscribe_messages=True)
            try:
                await pubsub.subscribe(self.channel)
                listening.set()
                while True:
                    message = cast("dict[str, Any] | None", await pubsub.get_message(timeout=2.0))
                    if message is not None:
                        self._announce(text(message["data"]))
            except (TimeoutError, rx.RedisError, OSError):
                listening.set()
                await self._yard.clock.sleep(0.2)
            finally:
                with contextlib.suppress(Exception):
                    await pubsub.aclose()
