"""Who hears of what an MCP server says without being asked, and of what: sessions that called its tools not long ago.

A server can reach no session that did not call it, so it learns nothing by what it says, and disturbs nobody else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnyard.errors import ConfigError
from turnyard.tools.context import ToolContext

FOLLOW_S = 3600.0
MOST_FOLLOWERS = 256

_MESSAGES, _RESOURCES, _OWN = "messages", "resources", "notifications/"
Notify = Callable[[str, str, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an app wants to hear of: log messages, changes of the list of resources, of single resources, notifications of the server's own."""

    messages: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether it wants to hear of anything."""
        return self.messages or self.resources or bool(self.uris or self.methods)


def wanted_of(words: Sequence[str]) -> Wanted:
    """Return what `notices=` declares.

    Raises:
        ConfigError: a word means nothing.
    """
    uris = tuple(word for word in words if "://" in word)
    methods = tuple(word for word in words if word.startswith(_OWN))
    if wrong := set(words) - {*uris, *methods, _MESSAGES, _RESOURCES}:
        known = f"{_MESSAGES!r}, {_RESOURCES!r}, the URI of a resource, or a method as in '{_OWN}acme/alert'"
        raise ConfigError(f"MCP notices: {', '.join(sorted(wrong))!r} means nothing; give {known}")
    return Wanted(_MESSAGES in words, _RESOURCES in words, uris, methods)


@dataclass(slots=True)
class Followers:
    """The sessions, the one that called last at the end. `now` is a clock in seconds that never goes back."""

    now: Callable[[], float]
    _heard: OrderedDict[tuple[str, str], tuple[Notify, float]] = field(default_factory=OrderedDict[tuple[str, str], tuple[Notify, float]])

    def follow(self, ctx: ToolContext[Any]) -> None:
        """Have the session of a call hear of the server for an hour from now; the one that called longest ago makes room."""
        key = (ctx.tenant, ctx.session)
        self._heard[key] = (ctx.notify, self.now() + FOLLOW_S)
        self._heard.move_to_end(key)
        if len(self._heard) > MOST_FOLLOWERS:
            self._heard.popitem(last=False)

    def current(self) -> list[Notify]:
        """Return how each of them is told."""
        now = self.now()
        for key in [key for key, (_, until) in self._heard.items() if until <= now]:
            del self._heard[key]
        return [notify for notify, _ in self._heard.values()]
