"""What a door asks of the store.

The HTTP platform and the Redis client see the store only through this, so they answer alike and are tested without a
server. Every method may raise StoreUnavailable; whatever it was asked to write is then safe to ask again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from turnyard.records.approvals import Approval, ApprovalPage, Decided, Decision
from turnyard.records.jobs import Job
from turnyard.records.log import LogRecord
from turnyard.records.manifest import Manifest
from turnyard.records.messages import Accepted, UserMessage

if TYPE_CHECKING:
    from turnyard.state.call_facts import CallFacts
    from turnyard.state.dead import DeadLetter
    from turnyard.state.dead import Decision as LetterDecision
    from turnyard.state.explain import Explanation
    from turnyard.state.feed import FeedItem
    from turnyard.state.fleet import WorkerView
    from turnyard.state.scale import Scale
    from turnyard.state.sessions import SessionView


Control = Literal["cancel", "new", "pause", "resume"]


class Edge(Protocol):
    """The store as a door sees it. `channel` is where the ends of jobs are announced to this process."""

    @property
    def channel(self) -> str:
        """Return the channel on which `wait_job` listens; it goes into a message's `notify`."""
        ...

    async def ping(self) -> None:
        """Return when every shard answers."""
        ...

    def shard_of(self, session_key: str) -> int:
        """Return the number of the shard that owns a session."""
        ...

    async def manifest(self, agent: str) -> Manifest | None:
        """Return what workers published of an agent, None when none ever did."""
        ...

    async def manifests(self) -> Mapping[str, Manifest]:
        """Return every published agent by name."""
        ...

    async def accept_message(self, message: UserMessage) -> Accepted:
        """Take a message in, durably and once."""
        ...

    async def accept_notice(
        self,
        *,
        tenant: str,
        session: str,
        agent: str,
        pool: str,
        group: str,
        key: str,
        body: dict[str, Any],
        event: str,
        clear: bool,
        supersede: bool,
        ttl_ms: int | None,
    ) -> Accepted:
        """Take a notice in, or clear the one of the same group and key."""
        ...

    async def accept_control(
        self, *, tenant: str, session: str, control: Control, event: str, turn: str | None = None, cascade: bool = False
    ) -> Accepted:
        """Take a control in: cancel, new, pause or resume. A cancel with `cascade` goes on to the sessions that the turn started."""
        ...

    async def cancel_job(self, job: str, *, tenant: str, cascade: bool = False) -> Accepted:
        """Ask for a job to be cancelled, with `cascade` the sessions that it started, too; `late` when it has ended, `gone`: there is none."""
        ...

    async def accept_outcome(
        self, *, shard: int, store: str, call: str, outcome: str, body: dict[str, Any], secret_hash: str | None, by: str
    ) -> Accepted:
        """Settle a call from outside; the first answer stands. `secret_hash` None: whoever says it need not prove it."""
        ...

    async def call_facts(self, *, shard: int, store: str, call: str) -> CallFacts | None:
        """Return whose call it is and what its token must prove, None when there is no such call."""
        ...

    async def read_job(self, job: str, *, tenant: str) -> Job | None:
        """Return a job, None when there is none or it is another tenant's."""
        ...

    async def wait_job(self, job: str, *, tenant: str, timeout_s: float) -> Job:
        """Return a job once it has ended.

        Raises:
            TimeoutError: it has not ended in time; it goes on.
        """
        ...

    async def read_session(self, session: str, *, tenant: str) -> SessionView | None:
        """Return a session, None when there is none or it is another tenant's."""
        ...

    async def list_sessions(self, *, tenant: str, limit: int, before: int | None) -> Sequence[SessionView]:
        """Return sessions, last used first; `before` is the `updated_ms` of the last one of the page before."""
        ...

    async def explain(self, session: str, *, tenant: str) -> Explanation | None:
        """Return why a session does not move, None when there is none or it is another tenant's."""
        ...

    async def read_log(self, session_key: str, ordinal: int, *, after: int, limit: int) -> Sequence[LogRecord]:
        """Return up to `limit` records of one history after seq `after`."""
        ...

    def feed(self, session_key: str, *, after: str | None, deltas: bool) -> AsyncGenerator[FeedItem]:
        """Return what happens in a session from a position on: what is there, then what comes."""
        ...

    async def pending_approvals(self, *, tenant: str, limit: int, after: str | None) -> ApprovalPage:
        """Return what waits for a tenant's people, oldest first; `after` is the `next` of the page before."""
        ...

    async def read_approval(self, approval: str, *, tenant: str) -> Approval | None:
        """Return an approval or question, None when there is none or it is another tenant's."""
        ...

    async def decide(self, approval: str, decision: Decision, *, tenant: str) -> Decided:
        """Decide an approval or answer a question; the first who may decides it."""
        ...

    async def dead_letters(self, *, tenant: str, limit: int, before: str | None) -> Sequence[DeadLetter]:
        """Return a tenant's dead letters, newest first; `before` is the id of the last one of the page before."""
        ...

    async def retry_dead(self, letter: str, *, tenant: str) -> LetterDecision:
        """Send what a dead letter holds once more; twice is once."""
        ...

    async def workers(self) -> Sequence[WorkerView]:
        """Return the workers that are alive."""
        ...

    async def scale(self, pool: str) -> Scale:
        """Return how much work a pool has."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
