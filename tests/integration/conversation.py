"""What a test says to a yard and reads back, without any platform in between."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers import SHARDS
from turnyard.records.ids import body_hash, new_job_id, session_key, store_key
from turnyard.records.jobs import Job
from turnyard.records.log import ASSISTANT, CALL, RESULT, USER, LogRecord
from turnyard.records.messages import UserMessage
from turnyard.state import fleet, ingress, jobs, sessions
from turnyard.state.log import read_log
from turnyard.state.yard import Yard
from turnyard.testing import wait_until

TENANT = "default"


class Talk:
    """One tenant's side of a yard."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard

    async def say(self, session: str, text: str, *, complete_when: str = "turn", agent: str = "hello") -> str:
        """Send a message; return its job."""
        job = new_job_id(self.yard.shard_for(session_key(TENANT, session)).n)
        message = UserMessage(TENANT, session, agent, {"text": text}, job, body_hash(text.encode()), complete_when=complete_when)  # pyright: ignore[reportArgumentType]
        accepted = await ingress.accept_message(self.yard, message)
        assert accepted.code == "accepted"
        return job

    async def job(self, job: str) -> Job:
        """Read a job."""
        found = await jobs.read_job(self.yard, job, tenant=TENANT)
        assert found is not None
        return found

    async def done(self, job: str, *, timeout_s: float = 30.0) -> Job:
        """Wait for a job's end."""

        async def ended() -> bool:
            return (await self.job(job)).done

        await wait_until(ended, description=f"job {job} to end", timeout_s=timeout_s)
        return await self.job(job)

    async def state(self, session: str) -> str:
        """Read a session's state."""
        view = await sessions.read_session(self.yard, tenant=TENANT, session=session)
        return view.state if view else "none"

    async def log(self, session: str) -> list[LogRecord]:
        """Read a session's whole log."""
        sid = session_key(TENANT, session)
        out: list[LogRecord] = []
        while page := await read_log(self.yard.shard_for(sid), store_key(sid, 0), after=out[-1].seq if out else 0):
            out += page
        return out

    async def story(self, session: str) -> list[str]:
        """Return the entries of a log in words: who said what."""
        words = {USER: "user", ASSISTANT: "assistant", CALL: "call", RESULT: "result"}
        return [
            f"{words[r.type]}: {r.body.get('text') or r.body.get('content') or r.body.get('name') or r.outcome or ''}"
            for r in await self.log(session)
            if r.type in words
        ]

    async def workers(self) -> list[fleet.WorkerView]:
        """Return the living incarnations."""
        return await fleet.list_workers(self.yard)

    async def enrolled(self, count: int, *, role: str = "worker") -> None:
        """Wait until that many children are registered."""

        async def all_there() -> bool:
            return sum(w.role == role for w in await self.workers()) == count

        await wait_until(all_there, description=f"{count} children of role {role}", timeout_s=30)

    async def quiet(self) -> bool:
        """Tell whether no slot is taken and nothing is counted to any worker."""
        return await self.running() == 0 and not any(w.running for w in await self.workers())

    async def running(self) -> int:
        """Return how many slots are taken."""
        return sum([await shard.redis.zcard(shard.keys.prefix + "running") for shard in self.yard.shards])


def check_log(records: list[LogRecord]) -> None:
    """Check what must hold of every log: no gap, no epoch that falls, each call answered once and in its place."""
    assert [r.seq for r in records] == list(range(1, len(records) + 1))
    epochs = [r.epoch for r in records]
    assert epochs == sorted(epochs)
    open_calls: list[str] = []
    for record in records:
        if record.type == CALL:
            open_calls.append(record.call or "")
        elif record.type == RESULT and not record.aside:
            assert record.call in open_calls
            open_calls.remove(record.call or "")
        elif record.type in (USER, ASSISTANT):
            assert not open_calls
    assert open_calls == []


@pytest.fixture
async def talk(clean: str) -> AsyncIterator[Talk]:
    """A tenant of a fresh yard."""
    yard = await Yard.open(clean, shards=SHARDS)
    yield Talk(yard)
    await yard.aclose()
