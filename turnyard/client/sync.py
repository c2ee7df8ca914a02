"""The client for code without an event loop.

It is the async client on a loop of its own in a thread of its own, so there is one implementation and no second
behaviour. It may be used from several threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from turnyard.client.approvals import SyncApprovals
from turnyard.client.files import FilesClient
from turnyard.client.handle import JobHandle, JsonObject
from turnyard.client.http import DEFAULT_URL, Client, Content
from turnyard.wire.events import FeedEvent

T = TypeVar("T")


class SyncJobHandle:
    """One job; as `JobHandle`."""

    def __init__(self, client: SyncClient, handle: JobHandle) -> None:
        self._client = client
        self._handle = handle

    @property
    def id(self) -> str:
        """Return the job's id."""
        return self._handle.id

    @property
    def data(self) -> JsonObject:
        """Return the job's object as it was read last."""
        return self._handle.data

    @property
    def session(self) -> str:
        """Return the session that the job runs in."""
        return self._handle.session

    def result(self, timeout: float | None = None) -> Any:
        """Return the job's answer; as `JobHandle.result`."""
        return self._client.wait_for(lambda: self._handle.result(timeout))

    def events(self, after: str | None = None) -> Iterator[FeedEvent]:
        """Yield the job's events to its last."""
        return self._client.each(lambda: self._handle.events(after))

    def cancel(self, *, cascade: bool = False) -> None:
        """Ask for the job to be cancelled; with `cascade` the sessions that its calls started go, too."""
        self._client.wait_for(lambda: self._handle.cancel(cascade=cascade))


class SyncFiles:
    """The files of a client's tenant; mirrors `FilesClient`."""

    def __init__(self, client: SyncClient, files: FilesClient) -> None:
        self._client = client
        self._files = files

    def put(self, data: bytes, *, name: str = "", media_type: str | None = None) -> JsonObject:
        """Keep a file and return it."""
        return self._client.wait_for(lambda: self._files.put(data, name=name, media_type=media_type))

    def get(self, file: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file, or a part of it."""
        return self._client.wait_for(lambda: self._files.get(file, offset=offset, length=length))

    def stat(self, file: str) -> JsonObject:
        """Return what is known of a file."""
        return self._client.wait_for(lambda: self._files.stat(file))

    def list(self, *, limit: int = 50) -> list[JsonObject]:
        """Return files, newest first."""
        return self._client.wait_for(lambda: self._files.list(limit=limit))

    def delete(self, file: str) -> None:
        """Delete a file."""
        self._client.wait_for(lambda: self._files.delete(file))


class SyncClient:
    """A client of the API at `url`; mirrors `Client`. Use it as a context manager, or end it with `close`."""

    def __init__(self, url: str = DEFAULT_URL, *, api_key: str | None = None, timeout_s: float = 30.0) -> None:
        self._stack = contextlib.ExitStack()
        self._portal: BlockingPortal = self._stack.enter_context(start_blocking_portal())
        self._client = self._portal.call(lambda: Client(url, api_key=api_key, timeout_s=timeout_s))
        self._stack.callback(lambda: self._portal.call(self._client.aclose))
        self.files = SyncFiles(self, self._client.files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections and end the thread."""
        self._stack.close()

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of the async client and return what it returns."""
        return self._portal.call(work)

    def each(self, make: Callable[[], AsyncGenerator[T]]) -> Iterator[T]:
        """Yield what an async generator of the async client yields."""

        async def next_of(generator: AsyncGenerator[T]) -> T | None:
            return await anext(generator, None)

        generator = make()
        try:
            while (item := self._portal.call(next_of, generator)) is not None:
                yield item
        finally:
            self._portal.call(generator.aclose)

    def submit(self, agent: Any, input: Content, **options: Any) -> SyncJobHandle:  # noqa: A002 - the API's own word
        """Submit a job; as `Client.submit`."""
        return SyncJobHandle(self, self.wait_for(lambda: self._client.submit(agent, input, **options)))

    def run(self, agent: Any, input: Content, *, session: str | None = None, timeout: float | None = 30, **options: Any) -> Any:  # noqa: A002 - the API's own word
        """Submit a job and return its answer; as `Client.run`."""
        return self.wait_for(lambda: self._client.run(agent, input, session=session, timeout=timeout, **options))

    def job(self, job_id: str) -> SyncJobHandle:
        """Return a job."""
        return SyncJobHandle(self, self.wait_for(lambda: self._client.job(job_id)))

    def jobs(self, *, session: str | None = None, state: str | None = None, limit: int = 50) -> list[SyncJobHandle]:
        """Return jobs, those of the sessions used last first."""
        return [SyncJobHandle(self, job) for job in self.wait_for(lambda: self._client.jobs(session=session, state=state, limit=limit))]

    def cancel(self, job_id: str, *, cascade: bool = False) -> JsonObject:
        """Ask for a job to be cancelled and return it; with `cascade` the sessions that its calls started go, too."""
        return self.wait_for(lambda: self._client.cancel(job_id, cascade=cascade))

    def messages(self, session: str, content: Content, **options: Any) -> SyncJobHandle:
        """Send a message into a session."""
        return SyncJobHandle(self, self.wait_for(lambda: self._client.messages(session, content, **options)))

    def notice(self, session: str, text: str | None = None, *, group: str, key: str, **options: Any) -> JsonObject:
        """Leave a notice for a session's next model call."""
        return self.wait_for(lambda: self._client.notice(session, text, group=group, key=key, **options))

    def sessions(self, *, limit: int = 50) -> list[JsonObject]:
        """Return sessions, last used first."""
        return self.wait_for(lambda: self._client.sessions(limit=limit))

    def session(self, session: str) -> JsonObject:
        """Return a session."""
        return self.wait_for(lambda: self._client.session(session))

    def entries(self, session: str) -> list[JsonObject]:
        """Return what a model may see of a session's present history."""
        return self.wait_for(lambda: self._client.entries(session))

    def explain(self, session: str) -> JsonObject:
        """Return why a session does not move."""
        return self.wait_for(lambda: self._client.explain(session))

    def cancel_session(self, session: str, *, turn: str | None = None, cascade: bool = False) -> JsonObject:
        """Ask for a session's open turn to be cancelled; with `cascade` the sessions that its calls started go, too."""
        return self.wait_for(lambda: self._client.cancel_session(session, turn=turn, cascade=cascade))

    def new(self, session: str) -> JsonObject:
        """Start a new history for a session."""
        return self.wait_for(lambda: self._client.new(session))

    def events(self, session: str, after: str | None = None, *, deltas: bool = True) -> Iterator[FeedEvent]:
        """Yield a session's events; reconnects by itself and repeats nothing."""
        return self.each(lambda: self._client.events(session, after, deltas=deltas))

    def follow(self, session: str, after: str | None = None) -> Iterator[FeedEvent]:
        """Yield a session's events: the same as `events`."""
        return self.events(session, after)

    @property
    def approvals(self) -> SyncApprovals:
        """Return what waits for people, to list and to decide."""
        return SyncApprovals(self._client.approvals, self.wait_for)

    def agents(self) -> list[JsonObject]:
        """Return the published agents."""
        return self.wait_for(self._client.agents)

    def workers(self) -> list[JsonObject]:
        """Return the workers that are alive."""
        return self.wait_for(self._client.workers)

    def scale(self, pool: str) -> JsonObject:
        """Return how much work a pool has."""
        return self.wait_for(lambda: self._client.scale(pool))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Return a client of TURNYARD_URL, else of the API on this machine."""
        import os

        env = os.environ if environ is None else environ
        return cls(env.get("TURNYARD_URL") or DEFAULT_URL, api_key=env.get("TURNYARD_API_KEY"))
