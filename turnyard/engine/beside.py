"""A body that goes on beside its turn, and what a look at a call that waits may come to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from turnyard.engine.effects import AskApproval, Failure, Parked, ToolResult


@dataclass(slots=True, eq=False)
class Detached:
    """A body that its turn waits for no longer. With `stopping` it was asked to stop."""

    call: str
    name: str
    attempt: int
    body: asyncio.Future[ToolResult | Parked | AskApproval | Failure] = field(init=False)
    stopping: bool = False

    def stop(self) -> None:
        """Ask the body to stop, and stop waiting for it."""
        self.stopping = True
        self.body.cancel()

    @property
    def result(self) -> ToolResult | None:
        """Return what a body that has ended gave; None when it was stopped before.

        Raises:
            Exception: what came out of a body against all rules.
        """
        if self.body.cancelled():
            return None
        result = self.body.result()
        if isinstance(result, ToolResult):
            return result
        if isinstance(result, Failure):  # of a hook; its turn goes on without it
            return ToolResult(result.answer or result.message, is_error=True)
        what = "cannot park" if isinstance(result, Parked) else "can ask nobody any more: it is to ask before it does anything"
        return ToolResult(f"{self.name} went on beside its turn and {what}", is_error=True)


@dataclass(frozen=True, slots=True)
class NotYet:
    """A call that was looked at has no result yet. It is looked at again after `after_ms`; None: when somebody says something.

    `request` is what has to be known then; None: what was known now.
    """

    after_ms: int | None = None
    request: dict[str, Any] | None = None
