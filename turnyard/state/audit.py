"""What must hold of every session and shard, checked on a live server without changing it.

Each session is read at one moment by one read-only script, each shard's listings by another, and the oracles judge what
they say. Logs are read page by page after that, and only up to where the session stood, so what happens meanwhile is
not mistaken for damage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from turnyard.records.ids import store_key
from turnyard.state.log import read_log
from turnyard.state.oracles import Finding, limit_findings, session_findings, shard_findings, transcript_findings
from turnyard.state.plan import ALL, read_plan
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from turnyard.records.log import LogRecord
    from turnyard.state.yard import Shard, Yard

__all__ = ["Finding", "audit", "inspect", "session_findings"]

_SESSION = re.compile(r"s:(\w+):(head|inbox|next)")
_HELD = re.compile(r"w:([0-9a-f]+)")
_ASKED = re.compile(r"ap:(.+)")
_PAGE = 100
_CENSUS = 200
_LOG_PAGE = 500


async def audit(yard: Yard, *, limit: int | None = None, logs: int = 0) -> list[Finding]:
    """Return every broken invariant found in up to `limit` sessions a shard (None: all); an empty list is good news.

    Of each session's logs the first `logs` records are read, too (0: none, they can be long). Keys are looked at in
    the server's own order, which is as good as random, so a limit makes it a sample.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    findings: list[Finding] = []
    counted: list[dict[str, Any]] = []
    for shard in yard.shards:
        seen = 0
        async for key in _keys(shard):
            part = _SESSION.fullmatch(key)
            if part and part[2] == "head":
                findings += await audit_session(shard, part[1], logs=logs)
                seen += 1
            elif _ASKED.fullmatch(key):
                findings += await _listed_for_nothing(shard, key)
            elif part or _HELD.fullmatch(key):
                findings += await _orphan(shard, key)
            if limit is not None and seen >= limit:
                break
        counted.append(await census(shard))
        findings += list(shard_findings(counted[-1]))
    return findings + list(limit_findings(counted, (await read_plan(yard))[0].get(ALL)))


async def audit_session(shard: Shard, sid: str, *, logs: int = 0) -> list[Finding]:
    """Return what is broken about one session (its key part); nothing when there is no such session."""
    facts = await inspect(shard, sid)
    if facts is None:
        return []
    findings = list(session_findings(facts))
    for ordinal in range(int(facts["head"]["sn"]) if logs else 0):
        findings += await _log_findings(shard, store_key(sid, ordinal), facts["head"], logs)
    return findings


async def inspect(shard: Shard, sid: str) -> dict[str, Any] | None:
    """Return what one session's keys say at one moment, or None when there is no such session."""
    reply = await shard.run("inspect", sid)
    return None if reply is None else orjson.loads(reply)


async def census(shard: Shard) -> dict[str, Any]:
    """Return what a shard lists, and where that does not agree with its sessions, at one moment."""
    return orjson.loads(await shard.run("census", _CENSUS))


async def _log_findings(shard: Shard, store: str, head: dict[str, Any], most: int) -> list[Finding]:
    records: list[LogRecord] = []
    while len(records) < most:
        page = await read_log(shard, store, after=records[-1].seq if records else 0, limit=min(_LOG_PAGE, most - len(records)))
        records += page
        if len(page) < _LOG_PAGE:
            break
    # A log that was not read to its end may stop inside a batch, and one that grew meanwhile has calls the head did not know.
    cut = head["tu"] != "" or len(records) >= most
    pending = {record.call or "" for record in records if record.type == "tool/call"} if cut else set[str]()
    return list(transcript_findings(head["id"], records, pending=pending))


async def _orphan(shard: Shard, key: str) -> list[Finding]:
    """Return a finding when a queue has no session, or a worker that nobody knows holds something."""
    part, held, prefix = _SESSION.fullmatch(key), _HELD.fullmatch(key), shard.keys.prefix
    with reading(key):
        # The owner is asked for last: it is there as long as what it holds.
        if part:
            gone = await shard.redis.exists(prefix + key) and not await shard.redis.exists(shard.keys.head(part[1]))
        else:
            gone = held and await shard.redis.exists(prefix + key) and await shard.redis.zscore(prefix + "workers", held[1]) is None
            gone = gone and await shard.redis.exists(prefix + key)
    return [Finding("-", "what is stored belongs to somebody", f"{key} is left of something that is gone")] if gone else []


async def _listed_for_nothing(shard: Shard, key: str) -> list[Finding]:
    """Return a finding for each of the oldest that people are shown in a tenant's list and that nobody waits for."""
    name, found = shard.keys.prefix + key, list[Finding]()
    with reading(key):
        for member in [text(raw) for raw in await shard.redis.zrange(name, 0, _CENSUS - 1)]:
            store, _, call = member.partition("!")
            raw = await shard.redis.hget(shard.keys.calls(store), call)
            row: dict[str, Any] = orjson.loads(raw) if raw else {}
            asks = row.get("k") == "question" or (row.get("k") == "approval" and "d" not in row)
            # The list is asked again: what was decided meanwhile has left it.
            if not (asks and row["s"] == "parked" and not row.get("o")) and await shard.redis.zscore(name, member) is not None:
                found.append(Finding("-", "what people are shown waits for them", f"{key} lists {member}"))
    return found


async def _keys(shard: Shard) -> AsyncIterator[str]:
    """Yield the names of the shard's keys behind their prefix."""
    cursor, prefix = 0, shard.keys.prefix
    while True:
        with reading(f"keys of shard {shard.n}"):
            cursor, page = await shard.redis.scan(cursor, match=prefix + "[asw]*:*", count=_PAGE)
        for key in page:
            yield text(key)[len(prefix) :]
        if cursor == 0:
            return
