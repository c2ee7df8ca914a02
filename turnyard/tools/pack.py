"""A named set of tools that belong together, and how what an agent is given becomes tools and providers of tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from turnyard.errors import ConfigError
from turnyard.ports import ToolProvider
from turnyard.tools.tool import Tool

AnyTool = Tool[..., Any]


@dataclass(frozen=True, slots=True)
class Pack:
    """Tools that one plugin brings, under its name. An agent that is given the pack has them all."""

    name: str
    tools: tuple[AnyTool, ...]

    def __init__(self, name: str, tools: Iterable[object]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "tools", tuple(_tool(one, f"pack {name}") for one in tools))

    def __iter__(self) -> Iterator[AnyTool]:
        """Yield the tools in the order they were given."""
        return iter(self.tools)

    @property
    def first(self) -> AnyTool:
        """Return the pack's first tool, for an agent that needs no more of it.

        Raises:
            ConfigError: the pack is empty.
        """
        if not self.tools:
            raise ConfigError(f"pack {self.name} has no tools")
        return self.tools[0]


def unpacked(given: Iterable[object], whose: str) -> Iterator[AnyTool | ToolProvider]:
    """Yield the tools and the providers among what was given: each may be a tool, a provider, a pack or a list of them.

    Raises:
        ConfigError: something is none of these.
    """
    for one in given:
        if isinstance(one, Pack | list | tuple):
            yield from unpacked(cast("Iterable[object]", one), whose)
        else:
            yield one if isinstance(one, ToolProvider) else _tool(one, whose)


def _tool(one: object, whose: str) -> AnyTool:
    if not isinstance(one, Tool):
        raise ConfigError(f"{whose}: {one!r} is no tool; put @tool above its def")
    return cast("AnyTool", one)
