"""Which processes are at work on a deployment, and of which version each is.

A process shows itself for as long as it runs, by an entry that it renews; one that died is forgotten within a quarter of
a minute. Nothing is decided by it but whether a migration may be finished: the fences of turns are leases, not this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from turnyard.errors import StoreUnavailable
from turnyard.state.keys import PROCESSES
from turnyard.state.reads import reading
from turnyard.state.schema import Schemas

if TYPE_CHECKING:
    from turnyard.ports import Clock

log = logging.getLogger("turnyard.state")

LEASE_MS = 15_000
RENEW_S = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process at work: what it is, where, which schemas it knows, which library of scripts it calls."""

    role: str
    host: str
    pid: int
    schemas: Schemas
    library: str

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.role} (pid {self.pid} on {self.host}, schema {self.schemas})"


def this_process(role: str, schemas: Schemas, library: str) -> Process:
    """Return what this process says of itself."""
    return Process(role, socket.gethostname(), os.getpid(), schemas, library)


async def read_processes(redis: Any) -> list[Process]:
    """Return every process that has shown itself lately.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading("the processes at work"):
        raw = await redis.zrangebyscore(PROCESSES, await _now_ms(redis), "+inf")
    return [_process(orjson.loads(entry)) for entry in raw]


class Presence:
    """One process's entry; it is renewed until `aclose`."""

    def __init__(self, redis: Any, clock: Clock, process: Process) -> None:
        self._redis = redis
        self._clock = clock
        self._entry = orjson.dumps(
            {
                "role": process.role,
                "host": process.host,
                "pid": process.pid,
                "schemas": [process.schemas.oldest, process.schemas.newest],
                "library": process.library,
            }
        )
        self._shown = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Show this process; it is renewed in the background, and a server that is away is waited for."""
        await self._show()
        self._task = asyncio.create_task(self._renew())

    async def aclose(self) -> None:
        """Take the entry back, unless the server is away."""
        if self._task is not None:
            self._task.cancel()
        if self._shown:
            with contextlib.suppress(StoreUnavailable), reading("the processes at work"):
                await self._redis.zrem(PROCESSES, self._entry)

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(RENEW_S)
            await self._show()

    async def _show(self) -> None:
        try:
            with reading("the processes at work"):
                now = await _now_ms(self._redis)
                await self._redis.zadd(PROCESSES, {self._entry: now + LEASE_MS})
                await self._redis.zremrangebyscore(PROCESSES, "-inf", f"({now}")
        except StoreUnavailable as error:
            self._shown = False
            log.debug("this process could not show itself", extra={"reason": str(error)})
        else:
            self._shown = True


async def _now_ms(redis: Any) -> int:
    seconds, micros = await redis.time()
    return seconds * 1000 + micros // 1000


def _process(facts: dict[str, Any]) -> Process:
    return Process(facts["role"], facts["host"], facts["pid"], Schemas(*facts["schemas"]), facts["library"])
