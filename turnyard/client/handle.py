"""A job in the hands of whoever submitted it, and what its end means to them.

A job that ended without an answer is an exception: it failed, or it was cancelled. That waiting took too long is
neither: the job goes on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, cast

from pydantic import TypeAdapter

from turnyard.errors import JobCancelled, JobFailed
from turnyard.wire.events import FeedEvent

JsonObject = dict[str, Any]


class Jobs(Protocol):
    """What a handle asks of the client it came from."""

    async def wait_job(self, job_id: str, *, timeout_s: float | None) -> JsonObject:
        """Return a job's object once it has ended; TimeoutError when it has not in time."""
        ...

    def job_events(self, job_id: str, *, after: str | None = None) -> AsyncGenerator[FeedEvent]:
        """Yield a job's events until it has ended."""
        ...

    async def cancel(self, job_id: str, *, cascade: bool = False) -> Any:
        """Ask for a job to be cancelled, with `cascade` what it started as well."""
        ...


class JobHandle:
    """One job. `data` is the job's object as it was when the handle was made; `id` names it for ever."""

    def __init__(self, jobs: Jobs, job_id: str, data: JsonObject | Callable[[], JsonObject], *, output_type: Any = None) -> None:
        self.id = job_id
        self._jobs = jobs
        self._data = data
        self._output_type = output_type

    @property
    def data(self) -> JsonObject:
        """Return the job's object."""
        if callable(self._data):
            self._data = self._data()
        return self._data

    @property
    def raw(self) -> JsonObject:
        """Return the same: every answer of a client has its JSON under this name."""
        return self.data

    @property
    def session(self) -> str:
        """Return the session that the job runs in."""
        return self.data["session"]

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - part of the public face; the server waits
        """Return the job's answer once it has ended, waiting up to `timeout` seconds (None: for ever).

        The answer is {"text", "output"}, or, when the job was submitted to an agent object with an output type, a
        value of that type.

        Raises:
            JobFailed: it ended without an answer; `code` says why.
            JobCancelled: it was cancelled; `cause` says by what.
            TimeoutError: it has not ended yet; it goes on.
        """
        self._data = await self._jobs.wait_job(self.id, timeout_s=timeout)
        return answer_of(self._data, self._output_type)

    async def events(self, after: str | None = None) -> AsyncGenerator[FeedEvent]:
        """Yield the job's events after a feed id, to its last; comes back by itself when the connection breaks."""
        async for event in self._jobs.job_events(self.id, after=after):
            yield event

    async def cancel(self, *, cascade: bool = False) -> None:
        """Ask for the job to be cancelled; with `cascade` the sessions that its calls started go, too.

        Raises:
            AlreadyFinished: it has ended.
        """
        await self._jobs.cancel(self.id, cascade=cascade)

    def __repr__(self) -> str:
        state = "" if callable(self._data) else f" {self._data.get('state', '')}"
        return f"<JobHandle {self.id}{state}>"


def answer_of(job: Mapping[str, Any], output_type: Any = None) -> Any:
    """Return the answer of a job's object, or raise what its end means."""
    if job["state"] == "cancelled":
        raise JobCancelled(str(job.get("stop_reason") or "user"))
    if job["state"] == "failed":
        error = cast("Mapping[str, Any]", job.get("error") or {})
        raise JobFailed(str(error.get("code", "internal")), str(error.get("message", "the job failed")), ref=error.get("ref"))
    if output_type is None or output_type is str:
        return {"text": job["text"], "output": job["output"]}
    return TypeAdapter(output_type).validate_python(job["output"])


def agent_name(agent: Any) -> tuple[str, Any]:
    """Return the name of an agent, given by name or as the object an app declared, and the type of its answers."""
    if isinstance(agent, str):
        return agent, None
    return agent.name, getattr(agent, "output", None)


def timed_out(job_id: str, timeout_s: float | None) -> TimeoutError:
    """Return the error that says a job is not done."""
    return TimeoutError(f"job {job_id} has not ended within {timeout_s or 0:g} s; it goes on")
