"""The stream of a session and of a job.

First comes `hello`, with where the session stands; then, when records that the follower asked for are gone or were
lost, `gap`; then the records after the position, as events, for as long as the consumer listens. A job's stream is
its session's, cut to the turns that work for the job, and it ends with the job.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from turnyard.errors import InvalidRequest, NotFound
from turnyard.records import ids, log
from turnyard.records.approvals import approval_id
from turnyard.records.jobs import Job
from turnyard.records.log import LogRecord
from turnyard.wire.edge import Edge
from turnyard.wire.events import FeedEvent, Renderer
from turnyard.wire.feed_ids import FeedPosition, read_position
from turnyard.wire.views import job_shape

if TYPE_CHECKING:
    from turnyard.records.live import Live
    from turnyard.state.feed import FeedItem
    from turnyard.state.sessions import SessionView

# What precedes the follower's position is read this far back, to know whose turn is open and how its calls are named.
_LOOK_BACK = 64
# A job that is done has all its records written; a feed that is silent for so long after that has given them all.
_SILENCE_S = 0.5
_SCAN_PAGE, _SCAN_PAGES = 500, 20
_NEVER_S = 400 * 86_400.0
_UNDER_WAY = frozenset({"running", "waiting"})


class _Stream:
    """One follower's way through one session's feed."""

    def __init__(self, edge: Edge, view: SessionView, *, tenant: str, after: FeedPosition | None, deltas: bool) -> None:
        self.edge = edge
        self.view = view
        self.tenant = tenant
        self.deltas = deltas
        self.key = ids.session_key(tenant, view.id)
        self.head = FeedPosition(view.ordinal, view.last_seq)
        self.asked = after
        self.at = self._start(after)
        self.renderer = Renderer(view.id)
        self.told: dict[str, str] = {}
        self.before: Sequence[LogRecord] = ()
        self.deltas_seen = (self.at.seq, self.at.k)

    def _start(self, after: FeedPosition | None) -> FeedPosition:
        if after is None:
            return FeedPosition(self.view.ordinal, 0)
        if after.ordinal == self.head.ordinal and after.seq > self.head.seq:
            # A failover lost records that the follower has seen: it goes on from the log's end.
            return self.head
        return after

    async def opening(self) -> list[FeedEvent]:
        """Return hello and, where it is due, gap; and learn what came before."""
        first = await self.edge.read_log(self.key, self.at.ordinal, after=0, limit=1)
        oldest = FeedPosition(self.at.ordinal, first[0].seq) if first else self.head
        events = [self.renderer.envelope("hello", {"position": str(self.head), "state": self.view.state, "oldest": str(oldest)})]
        if self.asked is not None and self.at < self.asked:
            events.append(self._gap(self.asked, self.at))
        elif self.asked is not None and oldest.seq > self.at.seq + 1:
            events.append(self._gap(self.at, oldest))
            self.at = oldest._replace(seq=oldest.seq - 1)
        if self.at.seq:
            back = max(0, self.at.seq - _LOOK_BACK)
            self.before = await self.edge.read_log(self.key, self.at.ordinal, after=back, limit=self.at.seq - back)
            self.renderer.prime(self.before)
        return events

    def items(self) -> AsyncGenerator[FeedItem]:
        """Return the feed from where the follower is."""
        return self.edge.feed(self.key, after=str(self.at), deltas=self.deltas)

    async def take(self, item: FeedItem) -> list[FeedEvent]:
        """Return the events of one item; the last one carries its id."""
        record = item.record
        if isinstance(record, LogRecord):
            events = await self._record(record, read_position(str(item.id)))
        else:
            events = self._delta(record)
        if events:
            last = events[-1]
            events[-1] = FeedEvent(last.event, last.data, str(self.at))
        return events

    async def _record(self, record: LogRecord, at: FeedPosition) -> list[FeedEvent]:
        expected = self.at.seq + 1 if at.ordinal == self.at.ordinal else 1
        events = [self._gap(self.at, at)] if at.seq > expected else []
        self.at = at
        events += self.renderer.render(await self._complete(record, at))
        events += await self._jobs(record)
        return events

    def _delta(self, live: Live) -> list[FeedEvent]:
        """Return the events of a delta; one that came after its message is dropped.

        A delta is numbered behind the last entry, and events may have come since: the follower's place never goes back.
        """
        events = self.renderer.render_live(live)
        if not events:
            return []
        before, known = self.at, self.deltas_seen
        self.at = self.at._replace(k=live.k if live.seq == self.at.seq else self.at.k + 1)
        self.deltas_seen = (live.seq, live.k)
        lost = live.k > (known[1] + 1 if known[0] == live.seq else 1)
        return [self._gap(before, self.at), *events] if lost else events

    async def _complete(self, record: LogRecord, at: FeedPosition) -> LogRecord:
        """Return an acceptance with what its job says of it, what people are asked with the id to answer by; others as they are."""
        if record.type in (log.REQUEST, log.DECIDED):
            call = str(record.call or record.body.get("call") or "")
            ident = approval_id(self.edge.shard_of(self.key), ids.store_key(self.key, at.ordinal), call)
            return replace(record, body={**record.body, "id": ident})
        if record.type != log.ACCEPTED or not record.jobs:
            return record
        job = await self.edge.read_job(record.jobs[0], tenant=self.tenant)
        return record if job is None else replace(record, body={**record.body, "user": job.user or None, "mode": job.mode})

    async def job_event(self, job_id: str, *, at_ms: int | None = None, only: frozenset[str] | None = None) -> list[FeedEvent]:
        """Return a job's event when its state differs from the one told last.

        A row says only its present state. `at_ms` is the time of the record that may have changed it: an end that came
        later than that record is not told yet.
        """
        job = await self.edge.read_job(job_id, tenant=self.tenant)
        if job is None or self.told.get(job_id) == job.state or (only is not None and job.state not in only):
            return []
        if at_ms is not None and job.finished_ms is not None and job.finished_ms > at_ms:
            return []
        self.told[job_id] = job.state
        session = await self.edge.read_session(job.session, tenant=self.tenant) if job.state == "waiting" else None
        data = job_shape(job, session=session).model_dump(mode="json")
        return [self.renderer.envelope("job", data, turn=job.turn, job=job.id)]

    async def _jobs(self, record: LogRecord) -> list[FeedEvent]:
        jobs, only = self._may_have_changed(record)
        return [event for job in jobs for event in await self.job_event(job, at_ms=record.at_ms, only=only)]

    def _may_have_changed(self, record: LogRecord) -> tuple[Sequence[str], frozenset[str] | None]:
        """Return the jobs whose state a record may have changed, and to which states; None: any."""
        if record.type in (log.TURN_END, log.JOB):
            return record.jobs, None
        if self.at <= self.head:
            return (), None  # what it was then, no row says
        if record.type == log.USER:
            return record.jobs, _UNDER_WAY
        if record.turn != self.renderer.turn:
            return (), None
        if record.type == log.PARKED and record.outcome == "awaited":
            return tuple(self.renderer.jobs), _UNDER_WAY
        return tuple(job for job in self.renderer.jobs if self.told.get(job) == "waiting"), _UNDER_WAY

    def _gap(self, start: FeedPosition, end: FeedPosition) -> FeedEvent:
        return self.renderer.envelope("gap", {"from": str(start), "to": str(end)})


async def _open(edge: Edge, session: str, *, tenant: str, after: FeedPosition | None, deltas: bool) -> _Stream:
    view = await edge.read_session(session, tenant=tenant)
    if view is None:
        raise NotFound(f"no session {session!r}: check the id, or send it a message first")
    if (
        after is not None
        and after.ordinal > view.ordinal
        and not await edge.read_log(ids.session_key(tenant, view.id), after.ordinal, after=0, limit=1)
    ):
        # Behind the end of a history a follower may be after a failover, and is told of the gap. A history that there never was is a mistake.
        raise InvalidRequest(f"no event {after} in this session: use the id of one of its events", pointer="/after")
    return _Stream(edge, view, tenant=tenant, after=after, deltas=deltas)


async def session_events(
    edge: Edge, session: str, *, tenant: str, after: FeedPosition | None = None, deltas: bool = True
) -> AsyncGenerator[FeedEvent]:
    """Yield a session's events from a position on, without end.

    Raises:
        NotFound: there is no such session.
        InvalidRequest: the position is in a history that the session does not have.
    """
    stream = await _open(edge, session, tenant=tenant, after=after, deltas=deltas)
    async with contextlib.aclosing(stream.items()) as items:
        for event in await stream.opening():
            yield event
        async for item in items:
            for event in await stream.take(item):
                yield event


async def job_events(
    edge: Edge, job_id: str, *, tenant: str, after: FeedPosition | None = None, deltas: bool = True
) -> AsyncGenerator[FeedEvent]:
    """Yield the events of a job; the last one is `job` with its last state.

    Raises:
        NotFound: there is no such job.
        InvalidRequest: the position is in a history that the job's session does not have.
    """
    job = await _job(edge, job_id, tenant)
    stream = await _open(edge, job.session, tenant=tenant, after=after, deltas=deltas and not job.done)
    job = await _job(edge, job_id, tenant)
    if after is None and job.state == "queued":
        # Nothing of it is in the log yet but that it was accepted: what came before need not be read.
        stream.at = stream.head
    mine = _Mine(job)
    done = asyncio.create_task(edge.wait_job(job_id, tenant=tenant, timeout_s=_NEVER_S))
    try:
        async with contextlib.aclosing(_until(stream.items(), done)) as items:
            for event in (*await stream.opening(), *(await stream.job_event(job_id) if not job.done else [])):
                yield event
            for record in stream.before:
                mine.covers(record)
            async for item in items:
                for event in await _cut(stream, item, mine):
                    yield event
                    if is_last(event, job_id):
                        return
        for event in await stream.job_event(job_id):
            yield FeedEvent(event.event, event.data, str(max(stream.at, stream.head)))
    finally:
        done.cancel()


async def _job(edge: Edge, job_id: str, tenant: str) -> Job:
    job = await edge.read_job(job_id, tenant=tenant)
    if job is None:
        raise NotFound(f"no job {job_id!r}: check the id; ended jobs are kept for seven days")
    return job


async def job_end(edge: Edge, job_id: str, *, tenant: str, timeout_s: float) -> Job:
    """Return a job once it has ended, whichever process it was submitted through.

    Raises:
        TimeoutError: it has not ended in time; it goes on.
        NotFound: there is no such job.
    """
    async with asyncio.timeout(timeout_s), contextlib.aclosing(job_events(edge, job_id, tenant=tenant, deltas=False)) as events:
        async for _ in events:
            pass
    return await _job(edge, job_id, tenant)


class _Mine:
    """Which turns work for a job: those that name it, and those that take up the result of a call it made."""

    def __init__(self, job: Job) -> None:
        self.job = job.id
        self.turns = {job.turn} if job.turn else set[str]()
        self._calls: set[str] = set()

    def covers(self, record: LogRecord) -> bool:
        """Tell whether a record belongs to the job; its turns and calls are learnt on the way."""
        if record.turn and (self.job in record.jobs or record.call in self._calls):
            self.turns.add(record.turn)
        mine = self.job in record.jobs or record.turn in self.turns
        if mine and record.type == log.CALL and record.call:
            self._calls.add(record.call)
        return mine


async def _cut(stream: _Stream, item: FeedItem, mine: _Mine) -> Sequence[FeedEvent]:
    record = item.record
    covered = mine.covers(record) if isinstance(record, LogRecord) else record.turn in mine.turns
    events = await stream.take(item)
    if not covered:
        return ()
    return [event for event in events if event.event != "job" or event.data["job"] == mine.job]


async def _until(items: AsyncGenerator[FeedItem], done: asyncio.Task[Job]) -> AsyncGenerator[FeedItem]:
    """Yield items until the job is done and the feed has fallen silent."""
    async with contextlib.aclosing(items) as source:
        step = asyncio.ensure_future(anext(source))
        try:
            while True:
                if done.done():
                    await asyncio.wait({step}, timeout=_SILENCE_S)
                    if not step.done():
                        return
                else:
                    await asyncio.wait({step, done}, return_when=asyncio.FIRST_COMPLETED)
                if step.done():
                    try:
                        item = step.result()
                    except StopAsyncIteration:
                        return
                    step = asyncio.ensure_future(anext(source))
                    yield item
        finally:
            step.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, Exception):
                await step


def is_last(event: FeedEvent, job_id: str) -> bool:
    """Tell whether an event is the one with which a job's stream ends."""
    return event.event == "job" and event.data["job"] == job_id and event.data["data"]["finished_at"] is not None


async def job_feed_is_over(edge: Edge, job: Job, after: FeedPosition) -> bool:
    """Tell whether a follower of a job has seen all there will be: the job is done and nothing of it comes after."""
    if not job.done:
        return False
    mine, seq = _Mine(job), after.seq
    for _ in range(_SCAN_PAGES):
        page = await edge.read_log(job.session_key, after.ordinal, after=seq, limit=_SCAN_PAGE)
        if any(mine.covers(record) for record in page):
            return False
        if len(page) < _SCAN_PAGE:
            break
        seq = page[-1].seq
    return True
