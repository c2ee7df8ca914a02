"""An agent as a tool of other agents: its call is a session of that agent, which works while the caller waits or goes on.

Nothing of it runs here: a call of it is parked, and its result is what the other session came to.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from turnyard.tools.tool import Tool, tool

_A_DAY = timedelta(days=1)


def delegate(agent: str, *, description: str | None = None, wait: bool = True, timeout: timedelta | float = _A_DAY) -> Tool[..., Any]:
    """Return a tool that asks an agent, named by its name.

    Args:
        agent: the agent that works for each call, in a session of its own.
        description: what models are told of it; None says that it is an agent and knows only what it is told.
        wait: stop the caller's turn until the answer is there; else the answer comes later, as news.
        timeout: how long one call may take, a timedelta or seconds.

    Raises:
        ConfigError: the timeout is not more than zero.
    """

    @tool(park=timeout)
    async def ask(input: str) -> str:  # noqa: A002 - what the model is to call it
        """Ask.

        Args:
            input: everything that the agent has to know for its work.
        """
        raise NotImplementedError(f"{agent} works in a session of its own")

    ask.name, ask.kind, ask.wait = agent, "child", wait
    ask.description = description or f"Ask the agent {agent}. It knows nothing of this conversation but what you tell it."
    return ask
