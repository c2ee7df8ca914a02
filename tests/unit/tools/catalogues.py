"""A provider of tools whose list, changes and faults a test decides. Several may show one list, as the workers of one server do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from turnyard.tools import Tool, tool


def made(name: str, *, said: str = "") -> Tool[..., Any]:
    """Return a tool that answers with its own name."""

    @tool
    async def answer(value: int = 0) -> str:
        del value
        return said or name

    answer.name = answer.given = name
    answer.description = f"Answer {name}."
    return answer


@dataclass
class Listed:
    """What a server has: the tools by name, and a count of changes."""

    tools: dict[str, Tool[..., Any]] = field(default_factory=dict[str, Tool[..., Any]])
    changes: int = 1

    def now_has(self, *names: str) -> None:
        """Have these tools and no others, and tell everybody."""
        self.tools = {name: made(name) for name in names}
        self.changes += 1


class Catalogue:
    """A provider that shows what a server has."""

    def __init__(self, listed: Listed | None = None, *, name: str = "crm", silent: bool = False) -> None:
        self.name = name
        self.listed = listed or Listed()
        self.asked = 0
        self.closed = 0
        self.fault: Exception | None = None
        self.hangs = False
        self._silent = silent

    @property
    def changed(self) -> int:
        """Return the server's count of changes; nothing of them when it is silent about them."""
        return 0 if self._silent else self.listed.changes

    async def list_tools(self) -> Sequence[Tool[..., Any]]:
        """Return what there is, or fail as the test wants it."""
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault
        return list(self.listed.tools.values())

    async def aclose(self) -> None:
        """Count how often it was closed."""
        self.closed += 1
