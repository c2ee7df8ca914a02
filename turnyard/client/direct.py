"""The client that speaks to Redis itself, for services inside the deployment's own network.

It does what the HTTP platform does, through the same code, without the platform: who may reach Redis is trusted, and
says itself whose sessions it means.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

import orjson

from turnyard.client.approvals import Approvals
from turnyard.client.handle import JobHandle, JsonObject, agent_name, answer_of, timed_out
from turnyard.clock import SystemClock
from turnyard.errors import NotFound
from turnyard.records import ids
from turnyard.records.input import check_id
from turnyard.records.jobs import Job
from turnyard.state.yard import Yard
from turnyard.text import scrub
from turnyard.wire import follow, views
from turnyard.wire.approvals import Verdict, decide_approval, find_approval, list_approvals
from turnyard.wire.events import FeedEvent
from turnyard.wire.feed_ids import read_position
from turnyard.wire.listing import list_jobs
from turnyard.wire.submit import Submission, Submitted, raise_refusal, submit
from turnyard.wire.yard_edge import YardEdge

if TYPE_CHECKING:
    from turnyard.client.http import Content
    from turnyard.ports import Clock
    from turnyard.records.messages import CompleteWhen, Mode
    from turnyard.wire.edge import Edge

_FOREVER_S = 400 * 86_400.0
_PAGE = 500
_REMEMBER = 10_000


class RedisClient:
    """A client of the deployment at a Redis URL, acting for one tenant. Use it as an async context manager."""

    def __init__(self, url: str, *, tenant: str = "default", shards: int | None = None, clock: Clock | None = None) -> None:
        self._url = url
        self._tenant = check_id(tenant, pointer="/tenant")
        self._shards = shards
        self._clock = clock or SystemClock()
        self._stack = contextlib.AsyncExitStack()
        self._edge: Edge | None = None
        # Jobs whose end is announced to this client alone, the oldest first.
        self._announced: dict[str, None] = {}

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            StoreUnavailable: the server does not answer.
            Unsupported: it must not be used.
        """
        yard = await Yard.open(self._url, shards=self._shards)
        self._stack.push_async_callback(yard.aclose)
        await yard.attend("client")
        edge = await YardEdge.start(yard)
        self._stack.push_async_callback(edge.aclose)
        self._edge = edge
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of connections."""
        self._edge = None
        await self._stack.aclose()

    @property
    def edge(self) -> Edge:
        """Return the store as this client sees it."""
        if self._edge is None:
            raise RuntimeError("open the client first: async with RedisClient(url) as client")
        return self._edge

    async def submit(
        self,
        agent: Any,
        input: Content,  # noqa: A002 - the API's own word
        *,
        session: str | None = None,
        idempotency_key: str | None = None,
        user: str | None = None,
        mode: Mode | None = None,
        priority: int = 0,
        start_after: float = 0,
        timeout_s: float | None = None,
        complete_when: CompleteWhen = "settled",
        metadata: Mapping[str, str] | None = None,
        role: str | None = None,
    ) -> JobHandle:
        """Submit a job and return a handle on it; as `Client.submit`."""
        name, output_type = agent_name(agent)
        submission = Submission(
            agent=name,
            input=input,
            session=session,
            key=idempotency_key,
            user=user,
            mode=mode,
            complete_when=complete_when,
            priority=priority,
            delay_s=start_after,
            timeout_s=timeout_s,
            metadata=metadata or {},
            platform="redis",
            role=role,
        )
        done = await submit(self.edge, submission, tenant=self._tenant, now_ms=self._clock.now_ms(), notify=True, read_back=False)
        if not done.replayed:
            self._announced[done.job.id] = None
            if len(self._announced) > _REMEMBER:
                del self._announced[next(iter(self._announced))]
        return JobHandle(self, done.job.id, _shaped(done), output_type=output_type)

    async def run(
        self,
        agent: Any,
        input: Content,  # noqa: A002 - the API's own word
        *,
        session: str | None = None,
        timeout: float | None = 30,  # noqa: ASYNC109 - part of the public face
        **more: Any,
    ) -> Any:
        """Submit a job and return its answer, waiting up to `timeout` seconds."""
        handle = await self.submit(agent, input, session=session, **more)
        return answer_of(await self.wait_job(handle.id, timeout_s=timeout), agent_name(agent)[1])

    async def job(self, job_id: str) -> JobHandle:
        """Return a job.

        Raises:
            NotFound: this tenant has no such job.
        """
        job = await self._job(job_id)
        return JobHandle(self, job_id, await self._shape(job))

    async def jobs(self, *, session: str | None = None, state: str | None = None, limit: int = 50) -> list[JobHandle]:
        """Return jobs, those of the sessions used last first."""
        found, _ = await list_jobs(self.edge, tenant=self._tenant, session=session, state=state, limit=limit, before=None)
        return [JobHandle(self, job.id, views.job_shape(job).model_dump(mode="json")) for job in found]

    async def cancel(self, job_id: str, *, cascade: bool = False) -> JsonObject:
        """Ask for a job to be cancelled and return it; with `cascade` the sessions that its calls started go, too.

        Raises:
            AlreadyFinished: it has ended.
            NotFound: this tenant has no such job.
        """
        raise_refusal(await self.edge.cancel_job(job_id, tenant=self._tenant, cascade=cascade))
        return await self._shape(await self._job(job_id))

    async def messages(self, session: str, content: Content, *, agent: str | None = None, **more: Any) -> JobHandle:
        """Send a message into a session; it goes to the session's agent. Return a handle on its job."""
        name = agent or (await self.session(session))["agent"]
        options: dict[str, Any] = {"complete_when": "turn", **more}
        return await self.submit(name, content, session=session, **options)

    async def session(self, session: str) -> JsonObject:
        """Return a session.

        Raises:
            NotFound: this tenant has no such session.
        """
        view = await self.edge.read_session(session, tenant=self._tenant)
        if view is None:
            raise NotFound(f"no session {session!r}: check the id, or send it a message first")
        return views.session_shape(view).model_dump(mode="json")

    async def sessions(self, *, limit: int = 50) -> list[JsonObject]:
        """Return sessions, last used first."""
        found = await self.edge.list_sessions(tenant=self._tenant, limit=limit, before=None)
        return [views.session_shape(view).model_dump(mode="json") for view in found]

    async def entries(self, session: str) -> list[JsonObject]:
        """Return what a model may see of a session's present history, oldest first."""
        view = await self.edge.read_session(session, tenant=self._tenant)
        if view is None:
            raise NotFound(f"no session {session!r}: check the id")
        key, after = ids.session_key(self._tenant, session), 0
        found: list[JsonObject] = []
        while page := await self.edge.read_log(key, view.ordinal, after=after, limit=_PAGE):
            found += [views.entry_shape(record).model_dump(mode="json") for record in page if record.is_entry]
            after = page[-1].seq
        return found

    async def explain(self, session: str) -> JsonObject:
        """Return why a session does not move: code, detail, fix."""
        explanation = await self.edge.explain(session, tenant=self._tenant)
        if explanation is None:
            raise NotFound(f"no session {session!r}: check the id")
        return views.explain_shape(session, explanation).model_dump(mode="json")

    async def answer(self, session: str, question: str, value: Any, *, by: str = "") -> None:
        """Answer a question that a session's turn waits for, named by its call; the first answer stands.

        `value` is shown to the model as text, or as JSON when it is not a string; `by` says who answered.

        Raises:
            NotFound: no such question is open: it was answered, its time is over, or it never was.
            AlreadyDecided: another answer came first.
        """
        view = await self.edge.read_session(session, tenant=self._tenant)
        open_now = [call.call for call in view.parked if call.kind == "question"] if view else []
        if view is None or question not in open_now:
            raise NotFound(f"session {session!r} has no open question {question!r}; it has {', '.join(open_now) or 'none'}")
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        where: dict[str, Any] = {"shard": self.edge.shard_of(view.key), "store": view.store, "call": question, "secret_hash": None}
        body = {"content": scrub(text), "is_error": False}
        raise_refusal(await self.edge.accept_outcome(**where, outcome="result", body=body, by=by or "client"))

    @property
    def approvals(self) -> Approvals:
        """Return what waits for people, to list and to decide."""
        return Approvals(_ApprovalDoor(self.edge, self._tenant))

    async def new(self, session: str) -> None:
        """Start a new history for a session."""
        event = secrets.token_hex(12)
        raise_refusal(await self.edge.accept_control(tenant=self._tenant, session=session, control="new", event=event))

    async def follow(self, session: str, after: str | None = None, *, deltas: bool = True) -> AsyncGenerator[FeedEvent]:
        """Yield a session's events after a feed id, then as they come."""
        start = read_position(after) if after else None
        async for event in follow.session_events(self.edge, session, tenant=self._tenant, after=start, deltas=deltas):
            yield event

    events = follow

    # What a handle asks for.

    async def wait_job(self, job_id: str, *, timeout_s: float | None) -> JsonObject:
        """Return a job's object once it has ended.

        Raises:
            TimeoutError: it has not ended within `timeout_s` seconds.
        """
        try:
            job = await self._ended(job_id, _FOREVER_S if timeout_s is None else timeout_s)
        except TimeoutError:
            raise timed_out(job_id, timeout_s) from None
        self._announced.pop(job_id, None)
        return views.job_shape(job).model_dump(mode="json")

    async def _ended(self, job_id: str, timeout_s: float) -> Job:
        """Return a job once it has ended. One that another client submitted is followed: only that one is told of its end."""
        if job_id in self._announced:
            return await self.edge.wait_job(job_id, tenant=self._tenant, timeout_s=timeout_s)
        job = await self._job(job_id)
        return job if job.done else await follow.job_end(self.edge, job_id, tenant=self._tenant, timeout_s=timeout_s)

    async def job_events(self, job_id: str, *, after: str | None = None) -> AsyncGenerator[FeedEvent]:
        """Yield a job's events after a feed id, to its last."""
        start = read_position(after) if after else None
        async for event in follow.job_events(self.edge, job_id, tenant=self._tenant, after=start):
            yield event

    async def _job(self, job_id: str) -> Job:
        job = await self.edge.read_job(job_id, tenant=self._tenant)
        if job is None:
            raise NotFound(f"no job {job_id!r}: check the id; ended jobs are kept for seven days")
        return job

    async def _shape(self, job: Job) -> JsonObject:
        session = await self.edge.read_session(job.session, tenant=self._tenant) if job.state == "waiting" else None
        return views.job_shape(job, session=session).model_dump(mode="json")


class _ApprovalDoor:
    """What `Approvals` asks, answered by the store."""

    def __init__(self, edge: Edge, tenant: str) -> None:
        self._edge = edge
        self._tenant = tenant

    async def page(self, *, session: str | None, limit: int, after: str | None) -> JsonObject:
        """Return one page of what waits."""
        found, behind = await list_approvals(self._edge, tenant=self._tenant, session=session, limit=limit, after=after)
        return {"data": [views.approval_shape(each).model_dump(mode="json") for each in found], "next": behind}

    async def read(self, approval: str) -> JsonObject:
        """Return an approval."""
        return views.approval_shape(await find_approval(self._edge, approval, tenant=self._tenant)).model_dump(mode="json")

    async def decide(self, approval: str, body: Mapping[str, Any]) -> JsonObject:
        """Decide an approval and return it."""
        decided, _ = await decide_approval(self._edge, approval, Verdict(**body), tenant=self._tenant)
        return views.approval_shape(decided).model_dump(mode="json")


def _shaped(done: Submitted) -> Any:
    def shape() -> JsonObject:
        return views.job_shape(done.job, position=done.position).model_dump(mode="json")

    return cast("Any", shape)
