"""Why a session is not moving, and what would move it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnyard.state.reads import reading, text
from turnyard.state.sessions import read_session

if TYPE_CHECKING:
    from turnyard.state.sessions import ParkedCall, SessionView
    from turnyard.state.yard import Shard, Yard

_DISPATCHER_GONE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Explanation:
    """One answer. `code` is a stable word, `detail` says it for this session, `fix` what would change it."""

    code: str
    detail: str
    fix: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


async def explain(yard: Yard, *, tenant: str, session: str) -> Explanation | None:
    """Return why the session stands where it stands, or None when the tenant has no such session.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    view = await read_session(yard, tenant=tenant, session=session)
    if view is None:
        return None
    shard = yard.shard_for(view.key)
    with reading(f"session {session}"):
        seconds, micros = await shard.redis.time()
        now_ms = seconds * 1000 + micros // 1000
        tick = int(await shard.redis.hget(shard.keys.limits, "tick") or 0)
    if view.paused:
        return Explanation("paused", f"session {session} is paused; it accepts messages and runs nothing", "resume the session")
    if view.state == "running":
        age_s = round((now_ms - view.begun_ms) / 1000, 1)
        facts = {"holder": view.holder, "step": view.rev, "age_s": age_s}
        return Explanation(
            "running", f"worker {view.holder} has run it for {age_s} s, {view.rev} steps so far", "wait, or cancel the turn", facts
        )
    if now_ms - tick > _DISPATCHER_GONE_MS and (view.state == "ready" or view.inbox):
        return Explanation(
            "no_dispatcher", "no dispatcher has ticked lately, so nothing is admitted", "start a dispatcher: turnyard dispatcher"
        )
    if view.state == "ready":
        return await _why_ready(shard, view)
    if view.parked and view.state == "parked":
        return _parked([p for p in view.parked if p.awaited] or view.parked)
    return await _why_idle(shard, view, now_ms)


def _parked(calls: list[ParkedCall]) -> Explanation:
    names = ", ".join(f"{p.tool} ({p.kind})" for p in calls)
    facts = {"calls": [{"call": p.call, "tool": p.tool, "kind": p.kind, "until_ms": p.deadline_ms} for p in calls]}
    return Explanation("parked", f"waits for {names}", "answer the call, cancel the turn, or wait for its deadline", facts)


async def _why_idle(shard: Shard, view: SessionView, now_ms: int) -> Explanation:
    with reading(f"session {view.id}"):
        waiting = await shard.redis.execute_command("XRANGE", shard.keys.next(view.key), "-", "+", "COUNT", 100)
    due = [int(float(f[b"du"])) for _, f in waiting if b"du" in f]
    if due:
        seconds = max(0.0, round((min(due) - now_ms) / 1000, 1))
        detail = f"messages wait {seconds} s more: for others to come, or because they were sent for later"
        return Explanation("debounce", detail, "wait, or send with mode steer", {"due_ms": min(due)})
    if view.parked:
        found = _parked(view.parked)
        return Explanation("idle", f"nothing to do; {found.detail} in the background", found.fix, found.facts)
    return Explanation("idle", "nothing waits for it", "send a message")


async def _why_ready(shard: Shard, view: SessionView) -> Explanation:
    flow = f"{view.tenant}/{view.agent}"
    with reading(f"limits of shard {shard.n}"):
        limits = {text(k): text(v) for k, v in (await shard.redis.hgetall(shard.keys.limits)).items()}
        running = await shard.redis.zcard(shard.keys.prefix + "running")
        servers = await shard.redis.hlen(f"{shard.keys.prefix}serve:{view.pool}:{view.agent}")
    if not servers:
        fix = f"start a worker that has it: turnyard worker MOD:APP --pool {view.pool}"
        return Explanation("no_worker_for_agent", f"no live worker of pool {view.pool} serves agent {view.agent}", fix)
    if running >= int(limits.get("max", 200)):
        return Explanation("no_capacity", f"all {running} slots are in use", "wait, or raise limits.max_concurrent_turns")
    blocked = limits.get(f"b:{flow}", "")
    if blocked.startswith("t/"):
        return Explanation(
            "tenant_cap", f"tenant {view.tenant} runs as many turns as it may", f"wait, or raise tenants.{view.tenant}.max_concurrent_turns"
        )
    if blocked.startswith("a/") and f"l:{blocked}" in limits:
        fix = f"wait, or raise the limit of agent {view.agent}"
        return Explanation("agent_cap", f"agent {view.agent} runs as many turns as it may", fix)
    if blocked.startswith("a/"):
        detail = f"the workers of agent {view.agent} have no room, or are older than the turn"
        return Explanation("no_capacity", detail, "wait, or add workers that have this version of the agent")
    return Explanation("no_capacity", f"pool {view.pool} has no free worker", "wait, or add workers to the pool")
