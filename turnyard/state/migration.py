"""May the deployment be written in this version's newest schema, and who is in the way?

Old and new processes run side by side for as long as the deployment is written in the old schema. `finish` moves it once
no process lives that does not know the new one; from then on an old process cannot start, and one that was away finds
its scripts gone and is refused (schema.py). Sessions are rewritten when they next run, so `read` follows later.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson

from turnyard.errors import Conflict
from turnyard.state.keys import LAYOUT
from turnyard.state.presence import Process, read_processes
from turnyard.state.reads import reading, text
from turnyard.state.schema import Layout, Schemas, read_layout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.state")

_PAGE = 500
_LIBRARY = "turnyard_"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a migration would do. `target` is the schema that data would be written in; `in_the_way` must end before.

    `sessions` counts sessions by the schema they are in; `stale` are libraries of scripts that no process calls any more.
    """

    layout: Layout
    target: int
    in_the_way: tuple[Process, ...]
    sessions: dict[int, int]
    stale: tuple[str, ...]

    @property
    def read(self) -> int:
        """Return the oldest schema that must still be read once data is written in `target`."""
        return min(self.sessions, default=self.target)

    @property
    def nothing_to_do(self) -> bool:
        """Tell whether the deployment is as this version would make it."""
        return (self.layout.read, self.layout.write) == (self.read, self.target) and not self.stale


async def look_ahead(yard: Yard) -> Outlook:
    """Return what `finish` would do now; nothing is changed. Every session's head is looked at, page by page.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    processes = await _at_work(yard)
    target = yard.schemas.newest
    sessions: dict[int, int] = {}
    for shard in yard.shards:
        async for schema in _schemas_of(shard):
            sessions[schema] = sessions.get(schema, 0) + 1
    return Outlook(
        layout=await read_layout(yard.redis, schemas=yard.schemas),
        target=target,
        in_the_way=tuple(p for p in processes if p.schemas.newest < target),
        sessions=dict(sorted(sessions.items())),
        stale=tuple(sorted(await _stale(yard, processes))),
    )


async def finish(yard: Yard) -> Outlook:
    """Write in this version's newest schema from now on, and remove what only older versions need; return how it stands then.

    Raises:
        Conflict: an older process lives; the message names it. Nothing is changed.
        StoreUnavailable: the server did not answer; run it again.
    """
    before = await look_ahead(yard)
    _refuse(before.in_the_way)
    with reading("the layout"):
        # From here on no older process can start; one that started since it was looked for is found now.
        await yard.redis.hset(LAYOUT, mapping={"schema": str(before.target), "read": str(before.layout.read)})
    late = [p for p in await _at_work(yard) if p.schemas.newest < before.target]
    if late:
        with reading("the layout"):
            await yard.redis.hset(LAYOUT, "schema", str(before.layout.write))
        _refuse(late)
    for shard in yard.shards:
        with reading(f"limits of shard {shard.n}"):
            await shard.redis.hset(shard.keys.limits, "schema", before.target)
    with reading("the layout"):
        await yard.redis.hset(LAYOUT, "read", str(before.read))
    await _remove(yard, before.stale)
    log.warning("migrated", extra={"read": before.read, "write": before.target, "libraries_removed": len(before.stale)})
    return await look_ahead(yard)


def _refuse(processes: Sequence[Process]) -> None:
    if processes:
        names = "; ".join(str(p) for p in processes)
        raise Conflict(f"older processes are at work and would not know what is written: stop or upgrade them first: {names}")


async def _at_work(yard: Yard) -> list[Process]:
    """Return the processes that show themselves, and workers of versions that did not do so yet."""
    processes = await read_processes(yard.redis)
    shown = {(p.host, p.pid) for p in processes}
    for shard in yard.shards:
        with reading(f"the fleet of shard {shard.n}"):
            fleet = await shard.redis.hgetall(shard.keys.prefix + "fleet")
        for raw in fleet.values():
            facts: dict[str, Any] = orjson.loads(raw)
            if (facts["host"], facts["pid"]) not in shown:
                shown.add((facts["host"], facts["pid"]))
                oldest, newest = facts.get("schemas", (1, 1))
                processes.append(Process(facts["role"], facts["host"], facts["pid"], Schemas(oldest, newest), ""))
    return processes


async def _schemas_of(shard: Shard) -> AsyncIterator[int]:
    cursor = 0
    while True:
        with reading(f"sessions of shard {shard.n}"):
            cursor, keys = await shard.redis.scan(cursor, match=shard.keys.prefix + "s:*:head", count=_PAGE)
            async with shard.redis.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.hget(key, "sc")
                found: list[bytes | None] = await pipe.execute() if keys else []
        for schema in found:
            yield int(schema or 1)
        if cursor == 0:
            return


async def _stale(yard: Yard, processes: Sequence[Process]) -> set[str]:
    """Return the libraries that nobody calls: one that is called after all is loaded again by whoever calls it."""
    if any(not p.library for p in processes):
        return set()
    used = {_LIBRARY + p.library for p in processes} | {_LIBRARY + yard.library}
    found: set[str] = set()
    for redis in _servers(yard):
        with reading("the libraries of scripts"):
            listed = await redis.execute_command("FUNCTION", "LIST", "LIBRARYNAME", f"{_LIBRARY}*")
        found |= {_name(entry) for entry in listed}
    return found - used


def _name(entry: Any) -> str:
    words = [text(part) if isinstance(part, bytes) else "" for part in cast("list[Any]", entry)]
    return words[words.index("library_name") + 1]


async def _remove(yard: Yard, stale: Sequence[str]) -> None:
    for redis in _servers(yard):
        for name in stale:
            with reading("the libraries of scripts"):
                listed = await redis.execute_command("FUNCTION", "LIST", "LIBRARYNAME", name)
                if listed:
                    await redis.execute_command("FUNCTION", "DELETE", name)


def _servers(yard: Yard) -> list[Any]:
    return list({id(shard.redis): shard.redis for shard in yard.shards}.values())
