"""Why a session is not moving, and what would move it.

One read-only script and a look at the server's memory; whoever asks changes nothing. The rules are in reasons.py and its
neighbours; the codes in `reasons.FIXES`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redis import exceptions as rx

from turnyard.records.ids import session_key
from turnyard.state.connection import parse_info
from turnyard.state.dead import list_letters
from turnyard.state.reads import reading
from turnyard.state.reasons import Explanation, because
from turnyard.state.standing import read_standing
from turnyard.state.turn_reasons import why_assigned, why_ready, why_running
from turnyard.state.wait_reasons import beside, why_idle, why_parked

if TYPE_CHECKING:
    from turnyard.state.standing import Standing
    from turnyard.state.yard import Shard, Yard

__all__ = ["Explanation", "explain", "explain_standing"]

_DISPATCHER_GONE_MS = 10_000
_WHY = {"running": why_running, "assigned": why_assigned, "ready": why_ready, "parked": why_parked, "idle": why_idle}


async def explain(yard: Yard, *, tenant: str, session: str) -> Explanation | None:
    """Return why the session stands where it stands, or None when the tenant has no such session.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    sid = session_key(tenant, session)
    shard = yard.shard_for(sid)
    standing = await read_standing(shard, sid)
    if standing is None:
        return None
    found = explain_standing(standing, full=await _is_full(shard))
    if not standing.number("dd"):
        return found
    letters = await list_letters(yard, tenant=tenant, session=session, limit=10)
    ids = [letter.id for letter in letters]
    age_ms = standing.age(max((letter.at_ms for letter in letters), default=None))
    also = tuple(replace(x, facts=x.facts | {"ids": ids}, age_ms=age_ms) if x.code == "dead_letter" else x for x in found.also)
    return replace(found, also=also)


def explain_standing(s: Standing, *, full: bool = False) -> Explanation:
    """Return the explanation of what was read; `full`: the server is at its memory limit."""
    return replace(_first(s, full=full), also=tuple(beside(s)))


def _first(s: Standing, *, full: bool) -> Explanation:
    busy = s.state != "idle" or s.inbox.waking or s.next.waking or s.backlog.get("mine")
    if full and busy:
        detail = "the Redis server is at its memory limit: steps wait to be stored"
        return because(s, "store_full", detail, holder="server", since_ms=_waits_since(s), state=s.state)
    if s.state == "running":
        return why_running(s)
    if s.raw.get("pz") and not s.raw.get("cancelled"):
        detail = "it is paused: it accepts messages and runs nothing"
        return because(s, "paused", detail, holder="operator", since_ms=s.number("pa"), waiting=s.number("q"))
    if _wants_dispatcher(s) and (s.tick_ms is None or s.now_ms - s.tick_ms > _DISPATCHER_GONE_MS):
        detail = "no dispatcher has ticked lately, so nothing is admitted"
        return because(s, "no_dispatcher", detail, holder="dispatcher", since_ms=s.tick_ms or _waits_since(s))
    return _WHY[s.state](s)


def _waits_since(s: Standing) -> int | None:
    """Return since when it has had something to do."""
    begun = s.number("bg") if s.state == "running" else s.number("rs") if s.state == "ready" else 0
    return begun or s.inbox.oldest_ms or s.next.oldest_ms or s.backlog.get("oldest")


def _wants_dispatcher(s: Standing) -> bool:
    overdue = s.next.due_ms is not None and s.next.due_ms <= s.now_ms
    return s.state in ("ready", "assigned") or bool(s.inbox.waking or s.next.waking or s.backlog.get("mine") or overdue)


async def _is_full(shard: Shard) -> bool:
    """Tell whether the server is at its memory limit; a server that would not say is taken not to be."""
    try:
        with reading("the server's memory"):
            info = parse_info(await shard.redis.execute_command("INFO", "memory"))
    except rx.ResponseError:
        return False
    limit = int(info.get("maxmemory") or 0)
    return 0 < limit <= int(info.get("used_memory") or 0)
