"""A session in memory as a store: the port's words for what `memory` and `transitions` do.

Each client of the session holds one of these; they share the `MemorySession`. Nothing outlives the process.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from turnyard.engine import transitions
from turnyard.engine.memory import MemorySession
from turnyard.errors import FenceLost
from turnyard.ports import Settled
from turnyard.records.commit import Commit, TurnView
from turnyard.records.log import LogRecord
from turnyard.records.notices import Notice, live, shown_notice


class MemoryStore:
    """A `SessionStore` on a session of this process."""

    def __init__(self, session: MemorySession) -> None:
        self.session = session
        self._epoch = 0

    async def begin(self) -> TurnView | None:
        """Take the session's turn, calls that are over given up first; the turn that this client has already is answered again."""
        session = self.session
        if session.state == "running" and session.epoch == self._epoch:
            return transitions.again(session)
        session.expire()
        view = transitions.begin(session)
        self._epoch = 0 if view is None else view.epoch
        return view

    async def commit(self, view: TurnView, change: Commit) -> TurnView:
        """Make one transition, whole."""
        if view.epoch != self._epoch:
            raise FenceLost(f"this client has not begun epoch {view.epoch} of the session")
        return transitions.commit(self.session, view, copy.deepcopy(change))

    async def publish(self, body: dict[str, Any]) -> str:
        """Leave a user message."""
        return self.session.accept(copy.deepcopy(body))

    async def inject(self, body: dict[str, Any], *, wake: bool = False) -> None:
        """Add context."""
        self.session.inject(copy.deepcopy(body), wake=wake)

    async def notice(self, body: dict[str, Any], *, group: str, key: str, supersede: bool = True, ttl_ms: int | None = None) -> None:
        """Leave a notice."""
        self.session.notice(copy.deepcopy(body), group=group, key=key, supersede=supersede, ttl_ms=ttl_ms)

    async def clear(self, *, group: str, key: str) -> None:
        """Take away the notices of a group and key."""
        self.session.clear(group=group, key=key)

    async def notices(self) -> Sequence[Notice]:
        """Return the notices that matter now."""
        shown = [notice for record in self.session.entries if (notice := shown_notice(record)) is not None]
        return live([*shown, *self.session.unshown()], self.session.clock.now_ms())

    async def outcome(self, call: str, outcome: str, body: dict[str, Any]) -> Settled:
        """Give a call its outcome."""
        return self.session.outcome(call, outcome, copy.deepcopy(body))

    async def pending(self) -> int:
        """Return how many items that wake the session wait."""
        return sum(1 for item in self.session.inbox if item.wake)

    async def entries(self) -> Sequence[LogRecord]:
        """Return what a model may see."""
        return [replace(record, body=copy.deepcopy(record.body)) for record in self.session.entries]

    async def entry(self, seq: int) -> LogRecord | None:
        """Return one record of the log."""
        found = next((record for record in self.session.log if record.seq == seq), None)
        return None if found is None else replace(found, body=copy.deepcopy(found.body))
