"""The golden run: one session that uses every part once, driven from outside as users and vendors would.

A message through the chat platform makes the model call a plain tool and a lifted one; its late result opens a turn of
its own; a message over HTTP makes it order something, which a vendor answers over HTTP. Replies go out through the fake
sender. Whoever asks repeats what was not answered, under the same key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.deployment import Deployment
from tests.faults.fake_sender import delivery_id, parts
from turnyard.errors import StoreUnavailable
from turnyard.records.ids import new_job_id, session_key, store_key
from turnyard.records.log import LogRecord
from turnyard.state.fleet import list_workers
from turnyard.state.jobs import read_job
from turnyard.state.log import read_log
from turnyard.state.yard import Yard

TENANT = "default"
BOUND_S = 30.0
_LOOK_S = 0.01
_ASK_AGAIN_S = 0.2


@dataclass
class Golden:
    """One run of it. `tend` is called while it waits: it restarts what died and heals what was broken."""

    deployment: Deployment
    yard: Yard
    marker: str
    tend: Callable[[], None]
    jobs: list[str] = field(default_factory=list[str])

    @property
    def store(self) -> str:
        """The session's only history."""
        return store_key(session_key(TENANT, self.marker), 0)

    async def run(self, *, bound_s: float = BOUND_S) -> None:
        """Do all of it, and wait until nothing is left to do.

        Raises:
            TimeoutError: it did not come to rest within `bound_s`; the message says what was waited for.
        """
        self._doing = "its start"
        try:
            async with asyncio.timeout(bound_s):
                await self._message()
                await self._order()
                await self._until("everything to be sent", self._all_sent)
                await self._until("all slots to be free", self._at_rest)
        except TimeoutError:
            raise TimeoutError(f"waited {bound_s:g} s, at last for {self._doing}") from None

    async def _message(self) -> None:
        job = new_job_id(self.yard.shard_for(session_key(TENANT, self.marker)).n)
        self.jobs.append(job)
        asked, at = 0, 0.0

        def accepted() -> bool:
            nonlocal asked, at
            starts, now = self.deployment.starts["submitter"], self.yard.clock.monotonic()
            if starts != asked or now - at > 1.0:
                self.deployment.submit(f"{self.marker} {job} golden {self.marker}")
                asked, at = starts, now
            return any(line.startswith(job) for line in self.deployment.submitted())

        await self._until("the message to be accepted", accepted)
        await self._until("the first job to end", lambda: self._ended(job))

    async def _order(self) -> None:
        asked = {"input": f"order {self.marker}", "agent": "golden", "complete_when": "settled"}
        answer = await self._post(f"sessions/{self.marker}/messages", asked)
        job = str(answer["id"])
        self.jobs.append(job)
        url = self.deployment.directory / f"{self.marker}.url"

        async def ordered() -> bool:
            return (url.exists() and bool(url.read_text())) or await self._ended(job)

        await self._until("the order to be made", ordered)
        if url.exists():
            await self._post(f"calls/{url.read_text().rpartition('/')[2]}", {"shipped": True})
        await self._until("the second job to end", lambda: self._ended(job))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask until there is an answer that is not about the server's health; a refusal is an answer."""
        self._doing = f"an answer to a POST of {path.partition('/')[0]}"
        while True:
            asked = asyncio.create_task(asyncio.to_thread(self._ask, path, body))
            while not asked.done():
                self.tend()
                await asyncio.sleep(_LOOK_S)
            answer = await asked
            if answer is not None:
                return answer
            await self._rest(_ASK_AGAIN_S)

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        headers = {"content-type": "application/json", "idempotency-key": f"{self.marker}-{path[:5]}"}
        url = f"http://127.0.0.1:{self.deployment.port}/v1/{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=5) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return None if error.code >= 500 or error.code == 429 else {"refused": error.code}
        except OSError:
            return None

    async def _until(self, what: str, holds: Callable[[], bool | Awaitable[bool]]) -> None:
        self._doing = what
        while True:
            self.tend()
            with contextlib.suppress(StoreUnavailable):
                found = holds()
                if await found if isinstance(found, Awaitable) else found:
                    return
            await asyncio.sleep(_LOOK_S)

    async def _rest(self, seconds: float) -> None:
        until = self.yard.clock.monotonic() + seconds
        while self.yard.clock.monotonic() < until:
            self.tend()
            await asyncio.sleep(_LOOK_S)

    async def _ended(self, job: str) -> bool:
        found = await read_job(self.yard, job, tenant=TENANT)
        return found is not None and found.done

    async def log(self) -> list[LogRecord]:
        """Read the session's whole log."""
        out: list[LogRecord] = []
        shard = self.yard.shard_for(session_key(TENANT, self.marker))
        while page := await read_log(shard, self.store, after=out[-1].seq if out else 0):
            out += page
        return out

    def delivered(self) -> list[tuple[str, str]]:
        """Return what the fake sender delivered of this session, as it happened: (id, text)."""
        file = self.deployment.directory / "sent"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [(line["id"], line["text"]) for line in lines if line["store"] == self.store]

    async def replies(self) -> list[tuple[str, str]]:
        """Return what is to be delivered: (id, text) of each part of each reply in the log."""
        return [(delivery_id(self.store, r.seq, n), text) for r in await self.log() for n, text in enumerate(parts(r))]

    async def _all_sent(self) -> bool:
        return {one for one, _ in self.delivered()} >= {one for one, _ in await self.replies()}

    async def _at_rest(self) -> bool:
        prefix, redis = self.yard.shards[0].keys.prefix, self.yard.shards[0].redis
        busy = [await redis.zcard(prefix + name) for name in ("running", "flows", "out:fake", "out:arq")]
        return not any(busy) and not await redis.xlen(prefix + "ingress") and not any(w.running for w in await list_workers(self.yard))
