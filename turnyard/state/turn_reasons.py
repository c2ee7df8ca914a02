"""Why a turn that runs, was handed out or could run does not get on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnyard.state.reasons import Explanation, because, seconds

if TYPE_CHECKING:
    from turnyard.state.standing import Resource, Room, Standing

_CAPS = {"t": "tenant_cap", "a": "agent_cap", "p": "pool_cap"}
_NOUNS = {"t": "tenant", "a": "agent", "p": "pool"}


def why_running(s: Standing) -> Explanation:
    """Return what a turn that a worker holds is doing, or what is wrong with its worker."""
    holder, begun = s.holder, s.number("bg")
    if holder is None or holder.gone(s.now_ms):
        return _ghost(s)
    shown, step = holder.shown(s.now_ms), s.number("rv") + 1
    started = [c.tool for c in s.calls if c.of_open_turn and c.state == "started"]
    phase = f"in tool {', '.join(started)}" if started else "with the model, or in a hook or check of the app"
    facts = {"step": step, "phase": phase, "attempt": s.number("at"), "age_s": round((s.now_ms - begun) / 1000, 1)}
    age = s.now_ms - begun
    said = f"worker {holder.worker} (pid {holder.pid} on {holder.host}) has run it for {seconds(age)}; step {step} is {phase}"
    if s.raw.get("cancelled"):
        due = s.raw.get("overdue")
        late = due is not None and int(due) <= s.now_ms
        code = "poisoned" if s.word("cc") == "poisoned" else "cancel_overdue" if late else "cancelling"
        asked = int(due) - 10_000 if due is not None else begun
        return because(s, code, f"{said}; its cancel ({s.word('cc')}) waits for that", holder=shown, since_ms=asked, **facts)
    if age >= s.quantum_ms and s.raw.get("others"):
        return because(
            s, "over_quantum", f"{said}; others wait and its quantum is {seconds(s.quantum_ms)}", holder=shown, since_ms=begun, **facts
        )
    return because(s, "running", said, holder=shown, since_ms=begun, **facts)


def _ghost(s: Standing) -> Explanation:
    """The worker that holds it may write no more; whoever ticks takes the turn back."""
    holder, begun = s.holder, s.number("bg")
    shown = holder.shown(s.now_ms) if holder else {"kind": "worker", "worker": "", "host": None, "pid": None, "lease_left_ms": None}
    name = shown["worker"] or "nobody"
    since = holder.lease_ms if holder and holder.lease_ms else begun
    if s.amnesty_ms > s.now_ms:
        detail = f"its worker {name} does not beat; nobody is declared dead for {seconds(s.amnesty_ms - s.now_ms)} more"
        return because(s, "amnesty", detail, holder=shown, since_ms=since, until_ms=s.amnesty_ms)
    return because(s, "ghost_owner", f"its worker {name} is dead, and no tick has taken the turn back yet", holder=shown, since_ms=since)


def why_assigned(s: Standing) -> Explanation:
    """Return where an assignment is that nobody has begun."""
    begin_by, since = int(s.raw.get("begin_by") or 0), s.number("sl")
    holder = {"kind": "workers", "pool": s.room.pool, "agent": s.word("ag")}
    facts = {"begin_by_ms": begin_by, "epoch": s.number("ep")}
    if begin_by and begin_by <= s.now_ms:
        detail = f"it was handed to pool {s.room.pool} {seconds(s.age(since))} ago and nobody began it in time"
        return because(s, "assignment_overdue", detail, holder=holder, since_ms=since, **facts)
    return because(s, "assigned", f"it was handed to pool {s.room.pool} and is not begun yet", holder=holder, since_ms=since, **facts)


def why_ready(s: Standing) -> Explanation:
    """Return what keeps a session that could run from being admitted; nothing but its turn, when nothing does."""
    found = _no_worker(s) or _no_room(s)
    if found is not None:
        return found
    room = s.room
    ahead = {"in_flow": room.place or 0, "flows": room.flows_ahead or 0}
    detail = f"{ahead['in_flow']} sessions of agent {s.word('ag')} and {ahead['flows']} flows of others are before it"
    return because(s, "queued", detail, holder="dispatcher", since_ms=s.number("rs"), ahead=ahead)


def _no_worker(s: Standing) -> Explanation | None:
    """Return which worker is missing: there may be some, but none that may run this turn."""
    room, since, agent = s.room, s.number("rs"), s.word("ag")
    pool = s.word("po")
    holder = {"kind": "workers", "pool": pool, "agent": agent}
    if room.home_capacity == 0:
        return because(s, "no_worker_for_pool", f"no worker of pool {pool} is alive", holder=holder, since_ms=since)
    if s.number("il") > 0:
        if any(w.free > 0 for w in room.servers):
            return None
        what = "alone" if s.number("il") > 1 else "with few others"
        detail = f"its worker died while it ran, so it runs {what} next time; no child for that is free"
        return because(s, "isolated", detail, holder=holder, since_ms=since, level=s.number("il"))
    if not room.servers:
        return because(s, "no_worker_for_agent", f"no live worker of pool {pool} serves agent {agent}", holder=holder, since_ms=since)
    if all(w.schema < room.schema for w in room.servers):
        detail = f"it is written in schema {room.schema}, which no live worker of agent {agent} knows"
        return because(s, "schema_newer", detail, holder=holder, since_ms=since, schema=room.schema)
    serial = s.number("tv")
    if all(w.serial < serial for w in room.servers):
        detail = f"its turn runs on version {serial} of agent {agent}; the workers have {max(w.serial for w in room.servers)}"
        return because(s, "only_older_version", detail, holder=holder, since_ms=since, serial=serial)
    return None


def _no_room(s: Standing) -> Explanation | None:
    """Return which of the things that turns share is used up."""
    room, since = s.room, s.number("rs")
    if room.used >= room.most:
        holder = {"kind": "resource", "resource": "slots", "used": room.used, "limit": room.most}
        return because(s, "no_capacity", f"all {room.used} slots are in use", holder=holder, since_ms=since)
    for resource in room.resources:
        if resource.full:
            return _capped(s, resource)
    if not _somebody_free(s, room):
        holder = {"kind": "workers", "pool": room.pool, "agent": s.word("ag")}
        detail = f"the workers of pool {room.pool} that may run it have no room"
        return because(s, "workers_busy", detail, holder=holder, since_ms=since, used=sum(max(0, -w.free) for w in room.servers))
    return None


def _capped(s: Standing, resource: Resource) -> Explanation:
    letter, _, name = resource.name.partition("/")
    holder = {"kind": "resource", "resource": resource.name, "used": resource.used, "limit": resource.limit}
    detail = f"{_NOUNS[letter]} {name} runs {resource.used} turns of {resource.limit} that it may"
    return because(s, _CAPS[letter], detail, holder=holder, since_ms=s.number("rs"))


def _somebody_free(s: Standing, room: Room) -> bool:
    by_letter = {r.name[0]: r.used for r in room.resources}
    if by_letter.get("p", 0) >= room.pool_capacity:
        return False
    serial = s.number("tv")
    return any(w.free > 0 and w.serial >= serial and w.schema >= room.schema for w in room.servers)
