"""What a session in this process needs of its agent, and how tools reach the session that runs them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from turnyard.engine.effects import ToolTable
from turnyard.engine.options import Settings
from turnyard.engine.runner import Means

Scope = Callable[[], AbstractAsyncContextManager[Means]]


@dataclass(slots=True)
class Wires:
    """How a tool that runs tells how far it is, and learns that it is to stop. A run connects them."""

    _progress: Callable[[str, float, str], None] | None = None
    _stopping: Callable[[], bool] | None = None

    def connect(self, progress: Callable[[str, float, str], None], stopping: Callable[[], bool]) -> None:
        """Let a run hear of progress (call, fraction, note) and say whether it stops."""
        self._progress, self._stopping = progress, stopping

    async def report(self, call: str, fraction: float, note: str) -> None:
        """Pass on how far a call is."""
        if self._progress is not None:
            self._progress(call, fraction, note)

    def stopping(self) -> bool:
        """Tell whether the run is being stopped."""
        return self._stopping is not None and self._stopping()


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """What a local session needs of its agent.

    `scope` opens the means for as long as something is running; `decode` makes the typed output of a stored one. `settings` are those it stands for, and
    `changed` returns the agent with others; None when they cannot be changed.
    """

    table: ToolTable
    scope: Scope
    decode: Callable[[Any], Any]
    wires: Wires = field(default_factory=Wires)
    settings: Settings = field(default_factory=Settings)
    changed: Callable[[Settings], LocalAgent] | None = None

    def under(self, settings: Settings) -> LocalAgent:
        """Return the agent with these settings."""
        return self if self.changed is None or settings == self.settings else self.changed(settings)
