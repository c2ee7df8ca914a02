"""Which jobs there are.

Jobs have no index of their own: sessions are indexed by last use, and their logs name the jobs. So a list of jobs is
read session by session, and each session shows those that its last records name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnyard.errors import InvalidRequest, NotFound
from turnyard.records import ids
from turnyard.records.jobs import Job
from turnyard.wire.edge import Edge

if TYPE_CHECKING:
    from turnyard.state.sessions import SessionView

_SESSIONS = 25
_RECORDS = 500


def read_cursor(text: str | None) -> int | None:
    """Return the cursor of a list of sessions or jobs.

    Raises:
        InvalidRequest: it did not come from such a list.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidRequest("not a cursor of this list: take the one that `next` gave", pointer="/before")
    return int(text)


async def list_jobs(
    edge: Edge, *, tenant: str, session: str | None, state: str | None, limit: int, before: str | None
) -> tuple[list[Job], str | None]:
    """Return up to `limit` jobs and the cursor behind them.

    Raises:
        NotFound: the session that is asked for does not exist.
    """
    cursor = read_cursor(before)
    if session is not None:
        view = await edge.read_session(session, tenant=tenant)
        if view is None:
            raise NotFound(f"no session {session!r}: check the id")
        return await _jobs_of(edge, view, tenant=tenant, state=state, limit=limit), None
    found: list[Job] = []
    views: Sequence[SessionView] = await edge.list_sessions(tenant=tenant, limit=_SESSIONS, before=cursor)
    for i, view in enumerate(views):
        found += await _jobs_of(edge, view, tenant=tenant, state=state, limit=limit - len(found))
        if len(found) >= limit:
            return found, str(view.updated_ms) if i + 1 < len(views) else None
    return found, str(views[-1].updated_ms) if len(views) >= _SESSIONS else None


async def _jobs_of(edge: Edge, view: SessionView, *, tenant: str, state: str | None, limit: int) -> list[Job]:
    key = ids.session_key(tenant, view.id)
    records = await edge.read_log(key, view.ordinal, after=max(0, view.last_seq - _RECORDS), limit=_RECORDS)
    names = list(dict.fromkeys(job for record in reversed(records) for job in record.jobs))
    jobs: list[Job] = []
    for name in names:
        if len(jobs) >= limit:
            break
        job = await edge.read_job(name, tenant=tenant)
        if job is not None and state in (None, job.state):
            jobs.append(job)
    return jobs
