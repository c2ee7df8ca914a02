"""What workers publish about their agents, so that nobody else has to load user code."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from turnyard.records.ids import body_hash


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What the edge and the relays may know of a tool. `schema` is its JSON Schema of arguments."""

    name: str
    schema: dict[str, Any]
    kind: str = "plain"
    queue: str | None = None
    approval: bool = False
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """One agent as its workers run it.

    `roles` are those of its own that messages may have. `tools` are those that it always has, `providers` the names of those whose
    tools come and go. `serial` counts versions from 1 in order of first publication.
    """

    name: str
    version: str
    pool: str = "default"
    mode: str = "steer"
    complete_when: str = "turn"
    strategy: str = "react"
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    models: tuple[str, ...] = ()
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    tools: tuple[ToolFacts, ...] = ()
    roles: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    app: str = ""
    serial: int = 0
    published_at: int = 0

    def to_json(self) -> bytes:
        """Return the manifest as it is stored."""
        return orjson.dumps(asdict(self))


def parse_manifest(raw: bytes) -> Manifest:
    """Return a stored manifest."""
    data: dict[str, Any] = orjson.loads(raw)
    data["tools"] = tuple(ToolFacts(**t) for t in data["tools"])
    data["models"] = tuple(data["models"])
    data["roles"] = tuple(data.get("roles") or ())
    data["providers"] = tuple(data.get("providers") or ())
    return Manifest(**data)


def derive_version(manifest: Manifest) -> str:
    """Return six hexadecimal digits that change when anything but the serial and the time of publication does."""
    facts = asdict(manifest)
    for volatile in ("version", "serial", "published_at"):
        facts.pop(volatile)
    return body_hash(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS))[:6]
