"""What a child that runs lifted tasks has of its apps, and how one call is done with it: run, looked at again, or read.

A tool that is run here is given what it is given in a turn, but for what only a turn has: there is no URL to call back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from turnyard.app.calls import time_of
from turnyard.app.hooks import after_tool, before_tool
from turnyard.app.policies import ToolCall
from turnyard.errors import HookFailed
from turnyard.fence import lifted_fence
from turnyard.tools.context import ToolContext
from turnyard.tools.later import NotYet, call_off, look, read_body
from turnyard.tools.runtime import ToolOutcome, run_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from turnyard.app.calls import AnyTool, Hands
    from turnyard.lifted import LiftedTask
    from turnyard.state.calls import RowStart


@dataclass(frozen=True, slots=True)
class Wires:
    """How a body that runs here tells how far it is, and learns that it is to stop."""

    report: Callable[[float, str], Awaitable[None]]
    cancelled: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Bench:
    """Does lifted calls of the agents of this child, each with the hands of its agent."""

    agents: dict[str, Hands]

    async def run(self, task: LiftedTask, start: RowStart, wires: Wires) -> ToolOutcome | NotYet:
        """Do what the row asks for; never raises but for cancellation."""
        hands, tool = await self._find(start)
        if hands is None or tool is None:
            missing = f"this worker has no tool {start.name} of agent {start.agent}; it serves {', '.join(self.agents)}"
            if start.mode == "poll" and hands is not None and hands.toolbox.comes_and_goes:
                return NotYet(failed=missing)  # its provider may be away for a while; the call waits as long as it may
            return ToolOutcome(missing, is_error=True)
        ctx = _context(hands, task, start, wires)
        done = await _done(hands, tool, start, ctx)
        return done if isinstance(done, NotYet) else await hands.shown(start.tenant, start.name, task.call, done)

    async def stop(self, task: LiftedTask, start: RowStart) -> None:
        """Have a call's tool stop what the call left going elsewhere; never raises but for cancellation."""
        hands, tool = await self._find(start)
        if hands is not None and tool is not None:
            await call_off(tool, (start.request or {}).get("state"), _context(hands, task, start, Wires(_unheard, _cancelled)))

    async def _find(self, start: RowStart) -> tuple[Hands | None, AnyTool | None]:
        hands = self.agents.get(start.agent)
        if hands is None:
            return None, None
        await hands.toolbox.look_up((start.name,))
        return hands, hands.toolbox.get(start.name)


async def _unheard(_fraction: float, _note: str) -> None:
    """Drop a progress report: nobody follows a call that is over."""


def _cancelled() -> bool:
    return True


async def _done(hands: Hands, tool: AnyTool, start: RowStart, ctx: ToolContext[Any]) -> ToolOutcome | NotYet:
    """Do it between the app's hooks. One that raises is the call's error: the turn that made it goes on without it."""
    call = ToolCall(tool.name, start.args or {}, tool, ctx.call_id)
    try:
        given = await before_tool(hands.hooks, ctx, call) if start.mode == "run" else call.args
        done = await _brought(tool, start, given, ctx)
        return done if isinstance(done, NotYet) else await after_tool(hands.hooks, ctx, call, done)
    except HookFailed as error:
        return ToolOutcome(error.answer, is_error=True)


async def _brought(tool: AnyTool, start: RowStart, args: dict[str, Any], ctx: ToolContext[Any]) -> ToolOutcome | NotYet:
    if start.mode == "resolve":
        return await read_body(tool, str((start.raw or {}).get("content", "")), ctx)
    if start.mode == "poll":
        return await look(tool, (start.request or {}).get("state"), ctx)
    outcome = await run_tool(tool, args, ctx)
    if outcome.park is None:
        return outcome
    if outcome.park.poll is not None:
        return NotYet(outcome.park, request=outcome.park.request)
    return ToolOutcome(f"{start.name} is lifted and cannot park", is_error=True)


def _context(hands: Hands, task: LiftedTask, start: RowStart, wires: Wires) -> ToolContext[Any]:
    head = {"tenant": start.tenant, "session": start.session}

    async def say(event: str, text: str) -> None:
        await hands.around.say(head, start.turn, task.call, event, text)

    return ToolContext(
        deps=hands.deps,
        tenant=start.tenant,
        session=start.session,
        agent=start.agent,
        agent_version=hands.around.version,
        turn=start.turn,
        call_id=task.call,
        idempotency_key=start.idempotency_key,
        user=start.user,
        attempt=start.attempt,
        fence=lifted_fence(start.attempt),
        approved=start.decided is not None,
        metadata=dict(start.metadata),
        platform=start.platform or "http",
        expires_at=time_of(start.deadline_ms) if start.deadline_ms else None,
        files=hands.files(start.tenant),
        report=wires.report,
        say=say,
        cancel_requested=wires.cancelled,
        notify=partial(hands.around.notify, head),
    )
