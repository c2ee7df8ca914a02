"""How a session in this process has its say in what its turns are done with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnyard.engine.bus import EventBus
from turnyard.engine.effects import RunTool, ToolResult
from turnyard.engine.memory import MemorySession
from turnyard.engine.middleware import Ran
from turnyard.engine.narration import Narration
from turnyard.engine.options import Options, guarded, told
from turnyard.engine.queues import MessageQueue
from turnyard.engine.registry import Registry, shown_by
from turnyard.engine.runner import Means, Run
from turnyard.ports import Delta
from turnyard.records.commit import TurnView
from turnyard.records.log import LogRecord


@dataclass(slots=True)
class Shared:
    """What a session and its runs have in common. `active` is the size in tokens of what the model read last."""

    memory: MemorySession
    options: Options
    bus: EventBus
    narration: Narration
    registry: Registry
    steering: MessageQueue
    follow_ups: MessageQueue
    active: int = 0

    def usage(self) -> dict[str, int]:
        """Return the counts over the life of the session."""
        counts = dict(self.memory.usage)
        total = counts.get("input_tokens", 0) + counts.get("output_tokens", 0)
        return counts | {"total": total, "active": self.active}


def wired(means: Means, shared: Shared) -> Means:
    """Return the means with the session's own say around the calls, the pieces of an answer and what is shown."""
    options = shared.options

    def show(entries: Sequence[LogRecord]) -> Sequence[LogRecord]:
        entries = means.show(entries) if means.show else entries
        return shared.registry.shown(entries) if options.convert is None else shown_by(options.convert, entries)

    def heard(_view: TurnView, delta: Delta) -> None:
        shared.narration.heard(delta)
        told(options.on_delta, delta)

    run = _narrated(guarded(means.run, options, steered=lambda: len(shared.steering) > 0), shared)
    return replace(means, run=run, on_delta=heard, show=show)


def _narrated(run: Run, shared: Shared) -> Run:
    """Return `run` so that it tells when a call begins and ends; one that a placeholder answered has been told of."""
    narration, rows = shared.narration, shared.memory.rows

    async def narrated(view: TurnView, effect: RunTool) -> Ran:
        call = effect.row.call
        if call in rows and rows[call].answered:
            return await run(view, effect)
        narration.tool_started(call, effect.name, effect.args)
        result = await run(view, effect)
        if isinstance(result, ToolResult):
            narration.tool_ended(call, effect.name, result.content, is_error=result.is_error, details=result.details)
        return result

    return narrated
