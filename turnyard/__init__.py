"""Turnyard: AI-agent turns on many machines over Redis.

The names below are the public face of the library. Each is imported when it is first used, so that importing the
package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnyard.app import Agent, App, Limits, Stopping, TurnContext, load_app
    from turnyard.client import Client, JobHandle, RedisClient, SyncClient
    from turnyard.engine.local import CallMade, LocalSession, ParkedCall, RunResult
    from turnyard.engine.messages import Image, Message
    from turnyard.engine.shaper import ShaperPolicy
    from turnyard.engine.strategy import Strategy
    from turnyard.errors import (
        AgentVersionGone,
        ConfigError,
        JobCancelled,
        JobFailed,
        ModelError,
        SessionBusy,
        SessionClosed,
        StoreUnavailable,
        ToolError,
        TurnyardError,
    )
    from turnyard.tools import ApprovalRequired, Ask, Deny, Detailed, Pack, Park, Secret, Tool, ToolContext, secret, tool
    from turnyard.tools.mcp import MCP

__all__ = [
    "MCP",
    "Agent",
    "AgentVersionGone",
    "App",
    "ApprovalRequired",
    "Ask",
    "CallMade",
    "Client",
    "ConfigError",
    "Deny",
    "Detailed",
    "Image",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "Limits",
    "LocalSession",
    "Message",
    "ModelError",
    "Pack",
    "Park",
    "ParkedCall",
    "RedisClient",
    "RunResult",
    "Secret",
    "SessionBusy",
    "SessionClosed",
    "ShaperPolicy",
    "Stopping",
    "StoreUnavailable",
    "Strategy",
    "SyncClient",
    "Tool",
    "ToolContext",
    "ToolError",
    "TurnContext",
    "TurnyardError",
    "load_app",
    "secret",
    "tool",
]

_HOMES = {
    "turnyard.app": ("Agent", "App", "Limits", "Stopping", "TurnContext", "load_app"),
    "turnyard.client": ("Client", "JobHandle", "RedisClient", "SyncClient"),
    "turnyard.engine.local": ("CallMade", "LocalSession", "ParkedCall", "RunResult"),
    "turnyard.engine.messages": ("Image", "Message"),
    "turnyard.engine.shaper": ("ShaperPolicy",),
    "turnyard.engine.strategy": ("Strategy",),
    "turnyard.errors": (
        "AgentVersionGone",
        "ConfigError",
        "JobCancelled",
        "JobFailed",
        "ModelError",
        "SessionBusy",
        "SessionClosed",
        "StoreUnavailable",
        "ToolError",
        "TurnyardError",
    ),
    "turnyard.tools": ("ApprovalRequired", "Ask", "Deny", "Detailed", "Pack", "Park", "Secret", "Tool", "ToolContext", "secret", "tool"),
    "turnyard.tools.mcp": ("MCP",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'turnyard' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
