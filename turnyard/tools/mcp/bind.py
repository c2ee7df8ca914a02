"""What a call tells an MCP server of who makes it: taken from the call's context, never shown to the model.

A value goes as a header, in the request's `_meta`, or into the environment of a server that is started for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnyard.errors import ConfigError
from turnyard.tools.context import ToolContext

_STEADY = ("tenant", "user", "session", "agent")  # those that a process can be started for
_SOURCES = (*_STEADY, "turn", "call")
_METADATA = "metadata."


@dataclass(frozen=True, slots=True)
class Bind:
    """By the name that the server knows: what of the call it is told. `meta` are keys of the request's `_meta`."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    meta: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def headers_of(self, ctx: ToolContext[Any]) -> dict[str, str]:
        """Return the headers of a call's request; a line break in a value would be a header of its own, so there is none."""
        return {name: "".join(c for c in _value(ctx, source) if c.isprintable()) for name, source in self.headers.items()}

    def meta_of(self, ctx: ToolContext[Any]) -> dict[str, str]:
        """Return what joins the `_meta` of a call."""
        return {name: _value(ctx, source) for name, source in self.meta.items()}

    def env_of(self, ctx: ToolContext[Any]) -> tuple[tuple[str, str], ...]:
        """Return what the server's process has in its environment for a call, by name."""
        return tuple((name, _value(ctx, source).replace("\0", "")) for name, source in sorted(self.env.items()))


def bind_of(given: Mapping[str, Mapping[str, str]] | None, *, is_command: bool) -> Bind:
    """Return what `bind=` declares.

    Raises:
        ConfigError: a place or a source that does not exist, or one that this kind of server cannot have.
    """
    given = given or {}
    if wrong := set(given) - {"headers", "meta", "env"}:
        raise ConfigError(f"MCP bind: {', '.join(sorted(wrong))} is no place for a value; there are headers, meta and env")
    if given.get("env") and not is_command:
        raise ConfigError("MCP bind: env is for servers that are started with a command; use headers or meta")
    if given.get("headers") and is_command:
        raise ConfigError("MCP bind: headers are for servers with a URL; use meta or env")
    for place, values in given.items():
        known = _STEADY if place == "env" else _SOURCES
        for source in values.values():
            if source not in known and not (place != "env" and source.startswith(_METADATA)):
                more = "" if place == "env" else f", {_METADATA}NAME"
                raise ConfigError(f"MCP bind: {place} cannot have {source!r}; it may be {', '.join(known)}{more}")
    return Bind(*(dict(given.get(place) or {}) for place in ("headers", "meta", "env")))


def _value(ctx: ToolContext[Any], source: str) -> str:
    if source.startswith(_METADATA):
        return str(ctx.metadata.get(source.removeprefix(_METADATA), ""))
    return str(getattr(ctx, "call_id" if source == "call" else source))
