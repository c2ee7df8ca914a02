"""What must hold of every session, checked on a live server without changing it.

Each session is read at one moment by one read-only script; the rules are those of the protocol's invariants. Shard-wide
rules (the cap, strangers in `running`) are checked between scripts, so a finding there is looked at twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from turnyard.state.yard import Shard, Yard

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be. `session` is the readable id, or `-` for the shard."""

    session: str
    invariant: str
    detail: str


async def audit(yard: Yard, *, limit: int | None = None) -> list[Finding]:
    """Return every broken invariant found in up to `limit` sessions (None: all); an empty list is good news.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    findings: list[Finding] = []
    for shard in yard.shards:
        seen = 0
        async for sid in _sessions(shard):
            facts = await inspect(shard, sid)
            if facts is not None:
                findings += list(session_findings(facts))
            seen += 1
            if limit is not None and seen >= limit:
                break
        findings += await _shard_findings(shard)
    return findings


async def inspect(shard: Shard, sid: str) -> dict[str, Any] | None:
    """Return what one session's keys say at one moment, or None when there is no such session."""
    reply = await shard.run("inspect", sid)
    return None if reply is None else orjson.loads(reply)


async def _sessions(shard: Shard) -> AsyncIterator[str]:
    cursor = 0
    pattern = shard.keys.prefix + "s:*:head"
    start = len(shard.keys.prefix) + 2
    while True:
        with reading(f"sessions of shard {shard.n}"):
            cursor, page = await shard.redis.scan(cursor, match=pattern, count=_PAGE)
        for key in page:
            yield text(key)[start:-5]
        if cursor == 0:
            return


def session_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield the invariants that one session breaks."""
    who = facts["head"]["id"]
    for rule in (_place_findings, _counter_findings, _rest_findings):
        for invariant, detail in rule(facts):
            yield Finding(who, invariant, detail)


def _place_findings(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A session is listed exactly where its state says."""
    head = facts["head"]
    state, slot = head["st"], facts["running"] is not False
    if (state in ("assigned", "running")) != slot:
        yield "assigned or running if and only if it has a slot", f"state {state}, slot {slot}"
    if state == "running" and facts["held"] != 1:
        yield "running if and only if its owner's set names it", f"owner {head['ow']}"
    if (state == "ready") != (facts["in_flow"] == 1):
        yield "ready if and only if it is in its flow", f"state {state}, in flow {facts['in_flow']}"
    if state == "ready" and not facts["flow_listed"] and not facts["flow_blocked"]:
        yield "a flow that waits is offered or blocked", f"flow of {head['tn']}/{head['ag']} is neither"


def _counter_findings(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the head counts is what its queues and rows hold."""
    for name, counted in (("aw", "awaited"), ("iw", "wakers"), ("nw", "undelayed"), ("nd", "delayed"), ("nj", "joining")):
        if facts["head"][name] != facts[counted]:
            yield "counters are what queues and rows hold", f"{counted}: head {facts['head'][name]}, counted {facts[counted]}"


def _rest_findings(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A session rests only when nothing is left to do."""
    head = facts["head"]
    if head["pz"]:
        return
    if head["st"] == "idle" and (facts["wakers"] or facts["undelayed"]):
        yield "idle means that nothing wakes it", f"inbox {facts['wakers']}, next {facts['undelayed']}"
    if head["st"] == "idle" and (head["tu"] or head["aw"]):
        yield "idle has no open turn", f"turn {head['tu'] or 'none'}, awaiting {head['aw']}"


async def _shard_findings(shard: Shard) -> list[Finding]:
    with reading(f"limits of shard {shard.n}"):
        limit = int(await shard.redis.hget(shard.keys.limits, "max") or 200)
        running = await shard.redis.zcard(shard.keys.prefix + "running")
    return [Finding("-", "slots in use are within the limit", f"{running} of {limit}")] if running > limit else []
