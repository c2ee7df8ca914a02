"""What workers have published about agents. A manifest stays when no worker serves it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from turnyard.records.manifest import Manifest, parse_manifest
from turnyard.state.keys import AGENTS, SERIALS
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.state.yard import Yard

_SAME_VERSION_OR_NEXT = """
local was = redis.call('HGET', KEYS[1], ARGV[1])
if was then return tonumber(was) end
local serial = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('HSET', KEYS[1], ARGV[1], serial)
return serial
"""
_SEEN_UNLESS_OLDER = """
local was = redis.call('HGET', KEYS[1], ARGV[1])
if was and cjson.decode(was).serial > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


async def publish(yard: Yard, manifest: Manifest) -> Manifest:
    """Publish an agent as this worker runs it; return it with its serial.

    A version that was published before keeps its serial; a new one gets the next. The newest serial is what the edge sees.

    Raises:
        StoreUnavailable: the server did not answer; publish again.
    """
    with reading(f"agent {manifest.name}"):
        serial = int(await yard.redis.eval(_SAME_VERSION_OR_NEXT, 1, SERIALS, f"{manifest.name}@{manifest.version}", manifest.name))
        seconds, micros = await yard.redis.time()
        known = replace(manifest, serial=serial, published_at=seconds * 1000 + micros // 1000)
        await yard.redis.eval(_SEEN_UNLESS_OLDER, 1, AGENTS, manifest.name, serial, known.to_json())
    return known


async def read_version(yard: Yard, agent: str, serial: int) -> str:
    """Return the name of the version of an agent that has this serial, empty when it was never published.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    with reading(f"versions of agent {agent}"):
        known = await yard.redis.hgetall(SERIALS)
    found = [text(name) for name, value in known.items() if int(value) == serial and text(name).startswith(f"{agent}@")]
    return found[0].partition("@")[2] if found else ""


async def read_agents(yard: Yard) -> dict[str, Manifest]:
    """Return every published agent by name."""
    with reading("the published agents"):
        raw = await yard.redis.hgetall(AGENTS)
    return {text(name): parse_manifest(value) for name, value in raw.items()}


class AgentsCache:
    """Published agents, read again when what is known is older than `max_age_s`, or lacks the name asked for."""

    def __init__(self, yard: Yard, max_age_s: float = 1.0) -> None:
        self._yard = yard
        self._max_age_s = max_age_s
        self._read_at = float("-inf")
        self._agents: dict[str, Manifest] = {}

    async def get(self, name: str) -> Manifest | None:
        """Return an agent's manifest, or None when nobody ever published it."""
        return (await self.all(need=name)).get(name)

    async def all(self, *, need: str | None = None) -> dict[str, Manifest]:
        """Return all published agents; `need` is one that must not be missed because it is new."""
        now = self._yard.clock.monotonic()
        stale = now - self._read_at > self._max_age_s
        if stale or (need is not None and need not in self._agents and now - self._read_at > 0.1):
            self._agents = await read_agents(self._yard)
            self._read_at = now
        return self._agents
