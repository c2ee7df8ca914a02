"""How the calls of an agent that ask other agents are answered in this process: each by a session of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from turnyard.engine.effects import RunTool
from turnyard.engine.local import LocalSession
from turnyard.engine.runner import Spawn
from turnyard.errors import TurnyardError
from turnyard.records.children import MOST_DEEP, answered, cancelled, child_input, failed, no_child, too_deep
from turnyard.records.commit import TurnView
from turnyard.records.ids import child_session
from turnyard.records.log import ASSISTANT

if TYPE_CHECKING:
    from turnyard.app.agent import Agent

log = logging.getLogger("turnyard.app")

OpenChild = Callable[["Agent", str, str], LocalSession]


def spawner(parent: Agent, open_child: OpenChild, *, depth: int) -> Spawn:
    """Return what has other agents work for the calls of `parent`, which stands `depth` calls deep itself.

    `open_child` opens a session of an agent: its id and its user follow.
    """

    async def spawn(view: TurnView, effect: RunTool) -> tuple[str, dict[str, Any]]:
        agent = parent.home.agents.get(effect.name)
        if agent is None:
            return "error", no_child(f"the app has no agent {effect.name!r}")
        if depth >= MOST_DEEP:
            return "error", no_child(too_deep(MOST_DEEP))
        name = child_session(view.head.get("tenant", ""), view.head.get("session", ""), effect.row.call)
        session = open_child(agent, name, view.head.get("user", ""))
        try:
            return await _work(agent, session, effect.args)
        except TurnyardError as error:
            return "error", no_child(str(error))
        except Exception as error:
            log.exception("child failed", extra={"agent": agent.name, "session": name})
            reason = {"code": "internal", "message": f"{type(error).__name__}: {error}"}
            return failed(agent.name, reason, "", {"session": name, "usage": dict(session.memory.usage)})

    return spawn


async def _work(agent: Agent, session: LocalSession, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Have the session do what the call asks; return the call's outcome and body."""
    result = await session.prompt(child_input(args))
    facts: dict[str, Any] = {"session": session.memory.head["session"], "usage": dict(session.memory.usage)}
    if result.state == "succeeded":
        said = [e.body for e in session.entries if e.type == ASSISTANT]
        return answered(result.text, said[-1].get("output") if said else None, facts)
    if result.state == "cancelled":
        return cancelled(agent.name, result.cause or "user", result.text, facts)
    if result.parked:
        waits = ", ".join(call.tool for call in result.parked)
        reason = {"code": "parked", "message": f"it waits for {waits}, which nobody can answer in this process"}
        return failed(agent.name, reason, result.text, facts)
    return failed(agent.name, result.error or {}, result.text, facts)
