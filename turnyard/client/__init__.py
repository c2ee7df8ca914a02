"""Clients of a deployment: over HTTP (`Client`, `SyncClient`) or straight over Redis (`RedisClient`).

All give the same handles, the same objects and the same errors. Each is imported when it is first used: the HTTP
client needs neither Redis nor a server's packages.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnyard.client.approvals import Approval
    from turnyard.client.direct import RedisClient
    from turnyard.client.handle import JobHandle
    from turnyard.client.http import Client
    from turnyard.client.sync import SyncClient, SyncJobHandle
    from turnyard.wire.events import FeedEvent

__all__ = ["Approval", "Client", "FeedEvent", "JobHandle", "RedisClient", "SyncClient", "SyncJobHandle"]

_HOMES = {
    "Approval": "turnyard.client.approvals",
    "Client": "turnyard.client.http",
    "FeedEvent": "turnyard.wire.events",
    "JobHandle": "turnyard.client.handle",
    "RedisClient": "turnyard.client.direct",
    "SyncClient": "turnyard.client.sync",
    "SyncJobHandle": "turnyard.client.sync",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnyard.client' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
