"""What is done outside a turn in this process, where nobody else would do it.

That is lifted calls, those to be looked at or whose vendor said something, bodies beside their turns, and agents that calls ask. Each result becomes the outcome of its call's row, as it would from outside; what is stopped becomes cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turnyard.engine.approving import edited
from turnyard.engine.beside import NotYet
from turnyard.engine.effects import AskApproval, Failure, Parked, RunTool, ToolResult
from turnyard.engine.memory import CallRow, MemorySession
from turnyard.engine.narration import Narration
from turnyard.engine.runner import Means
from turnyard.records import ids
from turnyard.records.children import no_child
from turnyard.records.commit import TurnView


def outstanding(memory: MemorySession) -> bool:
    """Tell whether something that waits outside the turns can be done here, now or in time."""
    return any(row.kind in ("lift", "child") or row.raw or row.task for row in memory.parked())


@dataclass(frozen=True, slots=True)
class Outside:
    """Does the parked calls of one session. `stoppable` does something and returns None when it was stopped."""

    memory: MemorySession
    narration: Narration
    means: Means
    stoppable: Callable[[Awaitable[Any]], Awaitable[Any]]

    async def work(self) -> bool:
        """Do what is parked and can be done here now; tell whether there was anything."""
        parked = self.memory.parked()
        if due := [(row, doing) for row in parked if (doing := self._due(row)) is not None]:
            for row, doing in due:
                await doing(row)
            return True
        if children := [row for row in parked if row.kind == "child"]:
            await self._children(children)
            return True
        return False

    def _due(self, row: CallRow) -> Callable[[CallRow], Awaitable[None]] | None:
        """Return what is to be done about a parked call now, None when there is nothing."""
        if row.raw and self.means.read is not None:
            return self._read
        if row.task is not None:
            one = self.means.beside.get(row.call)
            return self._ended if one is None or one.body.done() else None
        if row.look_ms is not None:
            return self._look if row.look_ms <= self.memory.clock.now_ms() else None
        return self._lifted if row.kind == "lift" else None

    def bodies(self) -> list[asyncio.Future[Any]]:
        """Return the bodies that go on beside their turns; those whose call has an outcome by now are stopped."""
        beside, waiting = self.means.beside, {row.call for row in self.memory.parked() if row.task is not None}
        for call in [call for call in beside if call not in waiting]:
            beside.pop(call).stop()
        return [one.body for one in beside.values()]

    async def stop(self) -> None:
        """Stop the bodies that go on beside their turns: what they give nevertheless is their result, else they are cancelled."""
        stopped = dict(self.means.beside)
        self.means.beside.clear()
        for one in stopped.values():
            one.stop()
        await asyncio.gather(*(one.body for one in stopped.values()), return_exceptions=True)
        for call, one in stopped.items():
            self._settled(self.memory.rows[call], one.result)

    def _run(self, row: CallRow) -> tuple[TurnView, RunTool]:
        """Return a parked call as one that is to be run."""
        memory = self.memory
        key = ids.idempotency_key(memory.head["tenant"], memory.head["session"], row.turn, row.call)
        entries = tuple(r for r in memory.log if r.is_entry)
        view = TurnView("OK", "local", memory.store, row.turn, memory.epoch, memory.rev, entries, head=memory.head)
        seen = row.row()
        given = edited(seen)
        return view, RunTool(seen, row.name, row.args if given is None else given, key)

    async def _children(self, rows: Sequence[CallRow]) -> None:
        """Have the agents work that these calls ask, all at the same time."""

        async def work() -> None:
            await asyncio.gather(*(self._child(row) for row in rows))

        await self.stoppable(work())
        for row in rows:
            if row.outcome is None:
                self.memory.outcome(row.call, "cancelled", None)

    async def _child(self, row: CallRow) -> None:
        spawn = self.means.spawn
        if not row.answered:
            self.narration.tool_started(row.call, row.name, row.args)
        outcome, body = await spawn(*self._run(row)) if spawn else ("error", no_child("no agent can be asked here"))
        self.memory.outcome(row.call, outcome, body)
        if not row.answered:
            self.narration.tool_ended(row.call, row.name, body["content"], is_error=body["is_error"])

    async def _lifted(self, row: CallRow) -> None:
        """Run a lifted call, as no other process will."""
        result = await self.stoppable(self.means.run_call(*self._run(row)))
        if isinstance(result, Failure):  # the turn it was made in goes on without it
            result = ToolResult(result.answer or result.message, is_error=True)
        if isinstance(result, Parked | AskApproval):
            result = ToolResult(f"{row.name} is lifted and cannot park", is_error=True)
        self._settled(row, result)

    async def _ended(self, row: CallRow) -> None:
        """Take in what a body gave that went on beside its turn."""
        one = self.means.beside.pop(row.call, None)
        self._settled(row, one.result if one is not None else None)

    async def _look(self, row: CallRow) -> None:
        """Look for the result of a call that was left open."""
        looking, request = self.means.look, row.request or {}
        done = await self.stoppable(looking(*self._run(row), request)) if looking is not None else None
        if not isinstance(done, NotYet):
            self._settled(row, done)
            return
        row.request = done.request or row.request
        row.look_ms = None if done.after_ms is None else self.memory.clock.now_ms() + done.after_ms

    async def _read(self, row: CallRow) -> None:
        """Read the oldest of what came to the callback URL of a call."""
        reading, raw = self.means.read, row.raw.pop(0)
        done = await self.stoppable(reading(*self._run(row), raw)) if reading is not None else None
        if not isinstance(done, NotYet):
            self._settled(row, done)

    def _settled(self, row: CallRow, result: ToolResult | None) -> None:
        """Give a call its result; None: it was stopped."""
        if result is None:
            self.memory.outcome(row.call, "cancelled", None)
        else:
            self.memory.outcome(row.call, "error" if result.is_error else "result", result.body)
