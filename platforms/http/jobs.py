"""Jobs over HTTP: submit, look at, list, follow, cancel. A 202 is given only for what is durable."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from turnyard import errors
from turnyard.records import ids
from turnyard.records.jobs import Job
from turnyard.wire.feed_ids import FeedPosition, read_position
from turnyard.wire.follow import job_end, job_events, job_feed_is_over
from turnyard.wire.listing import list_jobs
from turnyard.wire.shapes import JobShape
from turnyard.wire.submit import Submission, raise_refusal, submit
from turnyard.wire.views import job_shape

from .body import validate
from .desk import At, Desk, Tenant
from .replies import job_reply, page, read_key, read_wait, reply
from .requests import JobCancelRequest, JobRequest, body_of
from .sse import open_stream, read_types

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]
After = Annotated[str | None, Query()]


@router.post("", openapi_extra=body_of(JobRequest), status_code=202, response_model=JobShape)
async def submit_job(request: Request, desk: At, tenant: Tenant) -> Response:
    """Submit a job. `Prefer: wait=N` waits for its end; `Idempotency-Key` makes a repeat answer with the same job."""
    wait_s, key = read_wait(request), read_key(request)
    body = validate(JobRequest, await desk.json(request))
    submission = Submission(
        agent=body.agent,
        input=body.input,
        session=body.session,
        key=key,
        user=body.user,
        mode=body.mode,
        complete_when=body.complete_when,
        priority=body.priority,
        delay_s=body.start_after,
        timeout_s=body.timeout_s,
        metadata=body.metadata,
        role=body.role,
    )
    return await answer_submit(desk, submission, tenant=tenant, wait_s=wait_s)


async def answer_submit(desk: Desk, submission: Submission, *, tenant: str, wait_s: int | None) -> Response:
    """Submit, wait if asked to, and answer with the job."""
    done = await submit(desk.edge, submission, tenant=tenant, now_ms=desk.clock.now_ms(), notify=wait_s is not None)
    job = done.job
    if wait_s is not None and not job.done:
        job = await waited(desk, job, desk.edge.wait_job(job.id, tenant=tenant, timeout_s=wait_s), tenant=tenant)
    shape = await shape_of(desk, job, tenant=tenant, position=done.position if job.state == "queued" else None)
    return job_reply(shape, waited_s=wait_s, replayed=done.replayed, done=job.done)


async def waited(desk: Desk, job: Job, end: Awaitable[Job], *, tenant: str) -> Job:
    """Return a job as it is at its end, or as it is when waiting for that took too long."""
    try:
        return await end
    except (TimeoutError, errors.StoreUnavailable):
        # It was accepted, and that is what the answer must say.
        pass
    try:
        return await desk.edge.read_job(job.id, tenant=tenant) or job
    except errors.StoreUnavailable:
        return job


async def shape_of(desk: Desk, job: Job, *, tenant: str, position: int | None = None) -> JobShape:
    """Return a job as clients see it, with what it waits for."""
    session = await desk.edge.read_session(job.session, tenant=tenant) if job.state == "waiting" else None
    return job_shape(job, session=session, position=position)


async def find(desk: Desk, job_id: str, *, tenant: str) -> Job:
    """Return a job of the tenant.

    Raises:
        NotFound: there is none; another tenant's looks the same.
    """
    job = await desk.edge.read_job(job_id, tenant=tenant) if ids.job_shard(job_id) is not None else None
    if job is None:
        raise errors.NotFound("no such job: check the id; ended jobs are kept for seven days")
    return job


@router.get("", response_model=None)
async def get_jobs(
    desk: At,
    tenant: Tenant,
    session: Annotated[str | None, Query()] = None,
    state: Annotated[Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    before: Annotated[str | None, Query()] = None,
) -> Response:
    """List jobs of the sessions used last, newest first within each; `session` lists one session's."""
    jobs, after = await list_jobs(desk.edge, tenant=tenant, session=session, state=state, limit=limit, before=before)
    return page([job_shape(job) for job in jobs], after=after)


@router.get("/{job_id}", response_model=JobShape)
async def get_job(job_id: str, request: Request, desk: At, tenant: Tenant) -> Response:
    """Return a job. `Prefer: wait=N` answers when it has ended, or with what it is after N seconds."""
    wait_s = read_wait(request)
    job = await find(desk, job_id, tenant=tenant)
    if wait_s and not job.done:
        # It may have been submitted through another process, which alone is told of its end: the feed tells everybody.
        job = await waited(desk, job, job_end(desk.edge, job.id, tenant=tenant, timeout_s=wait_s), tenant=tenant)
    headers = {"Preference-Applied": f"wait={wait_s}"} if wait_s is not None else None
    return reply(await shape_of(desk, job, tenant=tenant), headers=headers)


@router.get("/{job_id}/events", response_model=None)
async def get_job_events(
    job_id: str,
    desk: At,
    tenant: Tenant,
    last_event_id: LastEventId = None,
    after: After = None,
    types: Annotated[str | None, Query()] = None,
    deltas: Annotated[bool, Query()] = True,
) -> Response:
    """Follow a job until it has ended. A reader that comes back after the end gets 204 and need not come again."""
    position = read_after(last_event_id, after)
    job = await find(desk, job_id, tenant=tenant)
    if position is not None and await job_feed_is_over(desk.edge, job, position):
        return Response(status_code=204)
    events = job_events(desk.edge, job_id, tenant=tenant, after=position, deltas=deltas)
    return await open_stream(desk, events, read_types(types))


def read_after(last_event_id: str | None, after: str | None) -> FeedPosition | None:
    """Return where a follower goes on. The header wins: it is what a browser sends when it comes back by itself."""
    if last_event_id:
        return read_position(last_event_id, pointer="/Last-Event-ID")
    return read_position(after) if after else None


@router.post("/{job_id}/cancel", status_code=202, openapi_extra=body_of(JobCancelRequest, required=False), response_model=JobShape)
async def cancel_job(job_id: str, request: Request, desk: At, tenant: Tenant) -> Response:
    """Ask for a job to be cancelled; how it ended is seen later."""
    body = validate(JobCancelRequest, await desk.optional_json(request))
    await find(desk, job_id, tenant=tenant)
    raise_refusal(await desk.edge.cancel_job(job_id, tenant=tenant, cascade=body.cascade))
    return reply(await shape_of(desk, await find(desk, job_id, tenant=tenant), tenant=tenant), status=202)
