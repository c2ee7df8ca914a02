"""The client of the HTTP API.

Whatever it sends carries an idempotency key, so a request whose answer was lost is made again and still counts once.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from turnyard.client.approvals import ApprovalRoutes, Approvals
from turnyard.client.connection import Connection
from turnyard.client.files import FilesClient
from turnyard.client.handle import JobHandle, JsonObject, agent_name, answer_of, timed_out
from turnyard.clock import SystemClock
from turnyard.errors import Overloaded, StoreUnavailable
from turnyard.records.input import MAX_WAIT_S
from turnyard.wire.events import FeedEvent

if TYPE_CHECKING:
    import httpx

    from turnyard.client.direct import RedisClient
    from turnyard.ports import Clock

DEFAULT_URL = "http://127.0.0.1:8420"
# How long one request may wait for a job; shorter than the 60 s that proxies commonly allow.
_WAIT_S = 50
_RETRY_S = 1.0

Content = str | Sequence[Mapping[str, Any]]


class Client:
    """A client of the API at `url`. Use it as an async context manager, or end it with `aclose`.

    `timeout_s` bounds one request, waiting for a job not counted. `files` are the tenant's.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        clock: Clock | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._connection = Connection(url, api_key=api_key, timeout_s=timeout_s, clock=self._clock, transport=transport)
        self.files = FilesClient(self._connection)

    @classmethod
    def from_env(cls, *, tenant: str = "default", environ: Mapping[str, str] = os.environ) -> Client | RedisClient:
        """Return the client that the environment asks for.

        TURNYARD_URL (with TURNYARD_API_KEY) means the HTTP API; else REDIS_URL means Redis itself, as `tenant`; else
        the API on this machine.
        """
        url, redis_url = environ.get("TURNYARD_URL"), environ.get("REDIS_URL")
        if not url and redis_url:
            from turnyard.client.direct import RedisClient

            return RedisClient(redis_url, tenant=tenant)
        return cls(url or DEFAULT_URL, api_key=environ.get("TURNYARD_API_KEY"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._connection.aclose()

    async def submit(
        self,
        agent: Any,
        input: Content,  # noqa: A002 - the API's own word
        *,
        session: str | None = None,
        idempotency_key: str | None = None,
        user: str | None = None,
        mode: str | None = None,
        priority: int | None = None,
        start_after: float | None = None,
        timeout_s: float | None = None,
        complete_when: str | None = None,
        metadata: Mapping[str, str] | None = None,
        role: str | None = None,
    ) -> JobHandle:
        """Submit a job to an agent, given by name or as the object that an app declared; return a handle on it.

        Without a key one is made up, so that a repeat after a lost answer is the same job. A job that has not ended
        `timeout_s` seconds after it may start is cancelled, its cause being `deadline`. `role` is one of the agent's own.

        Raises:
            UnknownAgent: no worker ever published it.
            InvalidInput: a value cannot be taken; `pointer` says which.
            StoreUnavailable: nobody answered; with the same key it may be submitted again.
        """
        name, output_type = agent_name(agent)
        given = {"user": user, "mode": mode, "priority": priority, "start_after": start_after, "timeout_s": timeout_s}
        more = {"complete_when": complete_when, "metadata": dict(metadata) if metadata else None, "role": role}
        body = {"agent": name, "input": input, "session": session, **more, **given}
        data = await self._connection.post("/v1/jobs", _present(body), key=idempotency_key)
        return JobHandle(self, data["id"], data, output_type=output_type)

    async def run(
        self,
        agent: Any,
        input: Content,  # noqa: A002 - the API's own word
        *,
        session: str | None = None,
        timeout: float | None = 30,  # noqa: ASYNC109 - part of the public face; the server waits
        **more: Any,
    ) -> Any:
        """Submit a job and return its answer, waiting up to `timeout` seconds; see `submit` and `JobHandle.result`."""
        name, output_type = agent_name(agent)
        body = _present({"agent": name, "input": input, "session": session, **more})
        key = body.pop("idempotency_key", None)
        started = self._clock.monotonic()
        wait_s = MAX_WAIT_S if timeout is None else min(MAX_WAIT_S, int(timeout))
        data = await self._connection.post("/v1/jobs", body, key=key, wait_s=wait_s)
        if data["finished_at"] is None:
            left_s = None if timeout is None else timeout - (self._clock.monotonic() - started)
            data = await self.wait_job(data["id"], timeout_s=left_s)
        return answer_of(data, output_type)

    async def job(self, job_id: str) -> JobHandle:
        """Return a job; its object is in `data`.

        Raises:
            NotFound: there is no such job.
        """
        return JobHandle(self, job_id, await self._connection.get(f"/v1/jobs/{_quote(job_id)}"))

    async def handle(self, job_id: str) -> JobHandle:
        """Return a handle on a job, to wait for it or to follow it; the same as `job`."""
        return await self.job(job_id)

    async def jobs(self, *, session: str | None = None, state: str | None = None, limit: int = 50) -> list[JobHandle]:
        """Return jobs, those of the sessions used last first."""
        page = await self._connection.get("/v1/jobs", _present({"session": session, "state": state, "limit": limit}))
        return [JobHandle(self, data["id"], data) for data in page["data"]]

    async def cancel(self, job_id: str, *, cascade: bool = False) -> JsonObject:
        """Ask for a job to be cancelled and return it; how it ended is seen later.

        With `cascade` the sessions that its calls started go, too.

        Raises:
            AlreadyFinished: it has ended.
        """
        return await self._connection.post(f"/v1/jobs/{_quote(job_id)}/cancel", {"cascade": True} if cascade else None)

    async def messages(
        self, session: str, content: Content, *, agent: str | None = None, idempotency_key: str | None = None, **more: Any
    ) -> JobHandle:
        """Send a message into a session; it goes to the session's agent. Return a handle on its job."""
        body = _present({"input": content, "agent": agent, **more})
        data = await self._connection.post(f"{_session(session)}/messages", body, key=idempotency_key)
        return JobHandle(self, data["id"], data)

    async def notice(
        self, session: str, text: str | None = None, *, group: str, key: str, clear: bool = False, agent: str | None = None, **more: Any
    ) -> JsonObject:
        """Leave a notice for a session's next model call, in place of an unseen one of the same group and key.

        `more` are further fields of it: tag, origin, metadata, supersede (False: beside an unseen one), ttl_s.
        """
        body = {"kind": "notice", "group": group, "key": key, "input": text, "clear": clear or None, "agent": agent, **more}
        return await self._connection.post(f"{_session(session)}/messages", _present(body))

    async def sessions(self, *, limit: int = 50) -> list[JsonObject]:
        """Return sessions, last used first."""
        return (await self._connection.get("/v1/sessions", {"limit": limit}))["data"]

    async def session(self, session: str) -> JsonObject:
        """Return a session."""
        return await self._connection.get(_session(session))

    async def entries(self, session: str) -> list[JsonObject]:
        """Return what a model may see of a session's present history, oldest first."""
        found: list[JsonObject] = []
        after: str | None = None
        while True:
            page = await self._connection.get(f"{_session(session)}/entries", _present({"after": after, "limit": 500}))
            found += page["data"]
            after = page["next"]
            if after is None:
                return found

    async def explain(self, session: str) -> JsonObject:
        """Return why a session does not move: code, detail, fix."""
        return await self._connection.get(f"{_session(session)}/explain")

    async def cancel_session(self, session: str, *, turn: str | None = None, cascade: bool = False) -> JsonObject:
        """Ask for a session's open turn to be cancelled; with `cascade` the sessions that its calls started go, too.

        Raises:
            AlreadyFinished: no turn is open, or another than `turn`.
        """
        body = _present({"turn": turn, "cascade": cascade or None})
        return await self._connection.post(f"{_session(session)}/cancel", body or None)

    async def new(self, session: str) -> JsonObject:
        """Start a new history for a session."""
        return await self._connection.post(f"{_session(session)}/new")

    async def events(self, session: str, after: str | None = None, *, deltas: bool = True) -> AsyncGenerator[FeedEvent]:
        """Yield a session's events after a feed id, then as they come; reconnects by itself and repeats nothing."""
        path = f"{_session(session)}/events" + ("" if deltas else "?deltas=false")
        async for event in self._connection.events(path, after=after):
            yield event

    async def follow(self, session: str, after: str | None = None) -> AsyncGenerator[FeedEvent]:
        """Yield a session's events: the same as `events`."""
        async for event in self.events(session, after):
            yield event

    @property
    def approvals(self) -> Approvals:
        """Return what waits for people, to list and to decide."""
        return Approvals(ApprovalRoutes(self._connection))

    async def agents(self) -> list[JsonObject]:
        """Return the published agents."""
        return (await self._connection.get("/v1/agents"))["data"]

    async def workers(self) -> list[JsonObject]:
        """Return the workers that are alive."""
        return (await self._connection.get("/v1/workers"))["data"]

    async def scale(self, pool: str) -> JsonObject:
        """Return how much work a pool has."""
        return await self._connection.get(f"/v1/scale/{_quote(pool)}")

    # What a handle asks for.

    async def wait_job(self, job_id: str, *, timeout_s: float | None) -> JsonObject:
        """Return a job's object once it has ended, however often the server goes away meanwhile.

        Raises:
            TimeoutError: it has not ended within `timeout_s` seconds.
            NotFound: there is no such job.
        """
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            left_s = _WAIT_S if deadline is None else max(0.0, deadline - self._clock.monotonic())
            try:
                data = await self._connection.get(f"/v1/jobs/{_quote(job_id)}", wait_s=min(_WAIT_S, math.ceil(left_s)))
            except (StoreUnavailable, Overloaded):
                if deadline is not None and self._clock.monotonic() >= deadline:
                    raise
                await self._clock.sleep(_RETRY_S)
                continue
            if data["finished_at"] is not None:
                return data
            if deadline is not None and self._clock.monotonic() >= deadline:
                raise timed_out(job_id, timeout_s)

    async def job_events(self, job_id: str, *, after: str | None = None) -> AsyncGenerator[FeedEvent]:
        """Yield a job's events after a feed id, to its last."""
        async for event in self._connection.events(f"/v1/jobs/{_quote(job_id)}/events", after=after, job=job_id):
            yield event


def _quote(part: str) -> str:
    return quote(part, safe="")


def _session(session: str) -> str:
    return f"/v1/sessions/{_quote(session)}"


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
