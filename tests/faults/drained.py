"""Has a deployment come to rest, what keeps it from that, and what does it leave?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.faults.fake_sender import delivery_id, parts
from tests.faults.load import LANE, SESSIONS, TENANTS
from turnyard.records.ids import session_key, store_key
from turnyard.records.log import LogRecord
from turnyard.state.audit import audit, inspect
from turnyard.state.explain import explain
from turnyard.state.jobs import read_job
from turnyard.state.log import read_log
from turnyard.state.oracles.events import Delivered, Ending, History
from turnyard.state.yard import Shard, Yard

NAMES = [(tenant, f"s{i}") for tenant in TENANTS for i in range(SESSIONS)]
_PARTS = 10


@dataclass
class Rest:
    """What still moves; nothing when it is good. `steps` grows with whatever happens."""

    moving: list[str] = field(default_factory=list[str])
    steps: int = -1

    def since(self, before: Rest) -> bool:
        """Tell whether all is at rest, and was so before with nothing between."""
        return not self.moving and not before.moving and self.steps == before.steps

    @staticmethod
    def with_deliveries(history: History, path: Path) -> History:
        """Return the history with what the fake sender delivered."""
        lines = path.read_text().splitlines() if path.exists() else []
        found = (json.loads(line) for line in lines)
        return replace(history, delivered=tuple(Delivered(d["store"], d["seq"] * _PARTS + d["part"], d["id"]) for d in found))


async def at_rest(url: str) -> Rest:
    """Return what still moves: events, slots, sessions with something to do, lanes, tasks."""
    yard = await Yard.open(url)
    try:
        shard = yard.shards[0]
        steps = 0
        moving = [f"{name}: {size}" for name, size in (await _sizes(shard)).items() if size]
        for tenant, session in NAMES:
            facts = await inspect(shard, session_key(tenant, session))
            if facts is not None:
                steps += facts["head"]["ep"] + facts["head"]["rv"] + facts["last_entry"]
                if _busy(facts):
                    moving.append(f"session {tenant}/{session}")
        return Rest(moving, steps)
    finally:
        await yard.aclose()


def _busy(facts: dict[str, Any]) -> bool:
    head = facts["head"]
    waits = any(state in ("queued", "running", "waiting") for _, state, _ in facts["jobs"] or ())
    return head["st"] != "idle" or bool(facts["wakers"] or facts["undelayed"] or facts["delayed"] or facts["parked"] or head["q"] or waits)


async def _sizes(shard: Shard) -> dict[str, int]:
    prefix, redis = shard.keys.prefix, shard.redis
    sizes = {"ingress": await redis.xlen(shard.keys.ingress), "running": await redis.zcard(prefix + "running")}
    sizes["lane fake"] = await redis.zcard(prefix + "out:fake")
    for key in await redis.keys(prefix + "w:*"):
        if not key.endswith(b":ctl"):
            sizes[key.decode()] = await redis.scard(key)
    return sizes


async def stuck(url: str, rest: Rest) -> list[str]:
    """Say of all that does not come to rest why."""
    yard = await Yard.open(url)
    try:
        out = [f"not drained: {what}" for what in rest.moving]
        for tenant, session in NAMES:
            facts = await inspect(yard.shards[0], session_key(tenant, session))
            if facts is None or not _busy(facts):
                continue
            found = await explain(yard, tenant=tenant, session=session)
            out.append(f"  {tenant}/{session}: {found.code if found else '?'}: {found.detail if found else ''} {json.dumps(facts)}")
        return out
    finally:
        await yard.aclose()


async def read_ending(url: str, history: History) -> tuple[Ending, list[str]]:
    """Return what is left: logs, jobs, slots; and what doctor finds."""
    yard = await Yard.open(url)
    try:
        shard = yard.shards[0]
        logs: dict[str, list[list[LogRecord]]] = {}
        pending: set[str] = set()
        owed: set[str] = set()
        for tenant, session in NAMES:
            facts = await inspect(shard, session_key(tenant, session))
            if facts is not None:
                pending |= set(filter(None, facts["head"]["pe"].split(",")))
                logs[f"{tenant}/{session}"] = [
                    await _whole(shard, store_key(session_key(tenant, session), n)) for n in range(facts["head"]["sn"])
                ]
                if await shard.redis.hget(shard.keys.head(session_key(tenant, session)), "pf") == LANE.encode():
                    owed |= _owed(session_key(tenant, session), logs[f"{tenant}/{session}"])
        jobs: dict[str, str] = {}
        for sent in history.sent:
            found = (
                await read_job(yard, sent.job, tenant=sent.session.partition("/")[0]) if sent.code in ("accepted", "duplicate") else None
            )
            if found is not None:
                jobs[sent.job] = found.state
        slots = [name for name, size in (await _slots(shard)).items() if size]
        findings = [f"doctor: {f.session}: {f.invariant}: {f.detail}" for f in await audit(yard, logs=100_000)]
        return Ending(logs, jobs, slots, frozenset(pending), frozenset(owed)), findings
    finally:
        await yard.aclose()


def _owed(sid: str, stores: list[list[LogRecord]]) -> set[str]:
    """Return the ids under which what a session's logs say had to be delivered."""
    out: set[str] = set()
    for ordinal, records in enumerate(stores):
        for record in records:
            out |= {delivery_id(store_key(sid, ordinal), record.seq, part) for part in range(len(parts(record)))}
    return out


async def _slots(shard: Shard) -> dict[str, int]:
    prefix, redis = shard.keys.prefix, shard.redis
    sizes = {"running": await redis.zcard(prefix + "running")}
    for pattern in ("w:*", "run:*"):
        for key in await redis.keys(prefix + pattern):
            if not key.endswith(b":ctl"):
                sizes[key.decode()] = await redis.scard(key)
    return sizes


async def _whole(shard: Shard, store: str) -> list[LogRecord]:
    records: list[LogRecord] = []
    while page := await read_log(shard, store, after=records[-1].seq if records else 0, limit=1000):
        records += page
    return records
