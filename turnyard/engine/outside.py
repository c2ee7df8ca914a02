"""What is done outside a turn in this process, where nobody else would do it: lifted calls, and the agents that calls ask.

Each result becomes the outcome of its call's row, as it would from outside; what is stopped becomes cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turnyard.engine.approving import edited
from turnyard.engine.effects import AskApproval, Failure, Parked, RunTool, ToolResult
from turnyard.engine.memory import CallRow, MemorySession
from turnyard.engine.narration import Narration
from turnyard.engine.runner import Means
from turnyard.records import ids
from turnyard.records.children import no_child
from turnyard.records.commit import TurnView


@dataclass(frozen=True, slots=True)
class Outside:
    """Does the parked calls of one session. `stoppable` does something and returns None when it was stopped."""

    memory: MemorySession
    narration: Narration
    means: Means
    stoppable: Callable[[Awaitable[Any]], Awaitable[Any]]

    async def work(self) -> bool:
        """Do what is parked and can be done here; tell whether there was anything."""
        parked = self.memory.parked()
        if lifts := [row for row in parked if row.kind == "lift"]:
            for row in lifts:
                await self._lifted(row)
            return True
        if children := [row for row in parked if row.kind == "child"]:
            await self._children(children)
            return True
        return False

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
        memory = self.memory
        result = await self.stoppable(self.means.run_call(*self._run(row)))
        if isinstance(result, Failure):  # the turn it was made in goes on without it
            result = ToolResult(result.answer or result.message, is_error=True)
        if isinstance(result, Parked | AskApproval):
            result = ToolResult(f"{row.name} is lifted and cannot park", is_error=True)
        if result is None:
            memory.outcome(row.call, "cancelled", None)
        else:
            memory.outcome(row.call, "error" if result.is_error else "result", result.body)
