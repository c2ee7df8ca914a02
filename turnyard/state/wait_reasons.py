"""What a session that is parked or idle waits for, and what else is to be said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnyard.records import ids
from turnyard.state.reasons import Explanation, because, seconds, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnyard.state.standing import OpenCall, Standing

LATE_MS = 5_000
_RANK = ("approval", "question", "parked", "child", "lifted_queued", "lifted_running", "timer", "retry_delay")


def why_parked(s: Standing) -> Explanation:
    """Return the call that somebody can do most about; `facts.calls` names all that hold the turn."""
    held = [c for c in s.calls if c.state == "parked" and c.awaited]
    if not held or s.number("aw") == 0:
        return because(
            s, "not_woken", "nothing that it waited for is left, and nobody took it up", holder="dispatcher", since_ms=s.number("rs")
        )
    reasons = sorted((_of_call(s, c) for c in held), key=lambda e: _RANK.index(e.code))
    first = reasons[0]
    return Explanation(first.code, first.detail, first.fix, first.facts | {"calls": shown(held)}, first.holder, first.age_ms)


def shown(calls: list[OpenCall]) -> list[dict[str, Any]]:
    """Return calls for people."""
    return [{"call": c.call, "tool": c.tool, "kind": c.kind, "until_ms": c.until_ms} for c in calls]


def _of_call(s: Standing, c: OpenCall) -> Explanation:
    facts: dict[str, Any] = {"call": c.call, "tool": c.tool, "call_kind": c.kind, "until_ms": c.until_ms}
    wait = until(s, c.until_ms)
    if c.approval is not None:
        return _of_people(s, c, facts)
    if c.kind == "lift" or c.task is not None or c.unread or (c.not_before_ms is not None and c.not_before_ms != c.until_ms):
        return _of_lift(s, c, facts)
    if c.kind == "child":
        return _of_child(s, c, facts)
    if c.kind in ("retry", "timer"):
        code = "retry_delay" if c.kind == "retry" else "timer"
        return because(s, code, f"it goes on in {wait.removesuffix(' more')}", holder="clock", since_ms=c.since_ms, **facts)
    detail = f"tool {c.tool} ({c.kind}) waits for its result from outside, {wait}"
    return because(s, "parked", detail, holder={"kind": "outside", "who": "whoever holds the call's URL"}, since_ms=c.since_ms, **facts)


def _of_people(s: Standing, c: OpenCall, facts: dict[str, Any]) -> Explanation:
    """Return who may decide or answer, until when, and how."""
    approvers = [str(name) for name in c.asked.get("approvers") or ()]
    who = ", ".join(approvers) or "whoever may use the API"
    if c.asked.get("self_approve") is False:
        who += ", but not whoever asked for it"
    if c.kind == "question":
        detail = f"its question {c.call} waits for an answer, {until(s, c.until_ms)}"
    else:
        detail = f"tool {c.tool} waits for somebody who may allow it, {until(s, c.until_ms)}"
    more = {"approval": c.approval, "approvers": approvers, "reason": c.asked.get("reason") or None}
    return because(s, c.kind, detail, holder={"kind": "people", "who": who}, since_ms=c.since_ms, **facts, **more)


def _of_child(s: Standing, c: OpenCall, facts: dict[str, Any]) -> Explanation:
    child = ids.child_session(s.word("tn"), s.word("id"), c.call)
    detail = f"session {child} of agent {c.tool} works on it, {until(s, c.until_ms)}"
    return because(s, "child", detail, holder={"kind": "session", "session": child}, since_ms=c.since_ms, child=child, **facts)


_DOES = {"run": "runs", "poll": "looks again", "resolve": "reads an answer"}


def _of_lift(s: Standing, c: OpenCall, facts: dict[str, Any]) -> Explanation:
    facts |= {"relays": c.relays, "tries": c.tries}
    facts |= {} if c.progress is None else {"progress": c.progress}
    if c.task is None and c.not_before_ms is not None:
        again = until(s, c.not_before_ms).removesuffix(" more")
        detail = f"tool {c.tool} looks again in {again}, and waits for its result {until(s, c.until_ms)}"
        return because(s, "timer", detail, holder="clock", since_ms=c.since_ms, due_ms=c.not_before_ms, **facts)
    if c.task is None:
        unread = f"; {c.unread} answers wait to be read" if c.unread else ""
        detail = f"lifted tool {c.tool} was relayed {c.relays} times and no worker has begun it{unread}"
        return because(s, "lifted_queued", detail, holder="lifted", since_ms=c.since_ms, **facts)
    stands = _stands(c.progress)
    detail = f"lifted tool {c.tool} {_DOES[c.mode]} at {c.task.worker} (pid {c.task.pid} on {c.task.host}){stands}, {until(s, c.until_ms)}"
    if c.task.gone(s.now_ms):
        detail = f"lifted tool {c.tool} ran at {c.task.worker}, which is dead; a tick hands it on or ends it"
    return because(s, "lifted_running", detail, holder=c.task.shown(s.now_ms), since_ms=c.since_ms, **facts)


def _stands(progress: dict[str, Any] | None) -> str:
    if progress is None:
        return ""
    share = "" if progress["fraction"] is None else f" {progress['fraction']:.0%}"
    return f", at{share} {progress['note']}".rstrip() if share or progress["note"] else ""


def why_idle(s: Standing) -> Explanation:
    """Return what an idle session waits for: what is on its way to it, a moment, or a message."""
    if s.backlog.get("mine"):
        detail = (
            f"{s.backlog['mine']} events for it are accepted and not applied yet, {s.backlog['ahead']} of {s.backlog['all']} before them"
        )
        return because(s, "ingress_backlog", detail, holder="dispatcher", since_ms=s.backlog.get("oldest"), **s.backlog)
    if s.inbox.waking or s.next.waking:
        waiting = s.inbox.waking + s.next.waking
        oldest = s.inbox.oldest_ms or s.next.oldest_ms
        return because(s, "not_woken", f"{waiting} messages wait and nobody took it up", holder="dispatcher", since_ms=oldest)
    if s.next.due_ms is not None:
        code, what = ("debounce", "for others to come") if s.next.window else ("delayed", "because they were sent for later")
        detail = f"messages wait {until(s, s.next.due_ms)}: {what}"
        return because(s, code, detail, holder="clock", since_ms=s.next.oldest_ms, due_ms=s.next.due_ms)
    since = int(s.raw.get("updated") or 0)
    background = [c for c in s.calls if c.state == "parked"]
    if background:
        names = ", ".join(f"{c.tool} ({c.kind})" for c in background)
        return because(
            s, "idle", f"nothing to do; waits for {names} in the background", holder="user", since_ms=since, calls=shown(background)
        )
    return because(s, "idle", "nothing waits for it", holder="user", since_ms=since)


def beside(s: Standing) -> Iterator[Explanation]:
    """Yield what else is to be said, whatever the session does."""
    yield from (_of_call(s, c) for c in s.calls if c.state == "parked" and not c.awaited)
    behind = s.next.waking if s.state in ("running", "parked", "ready", "assigned") and s.word("tu") else 0
    if behind:
        holder = {"kind": "turn", "turn": s.word("tu")}
        yield because(
            s, "behind_turn", f"{behind} messages wait for a turn of their own", holder=holder, since_ms=s.next.oldest_ms, messages=behind
        )
    for lane in s.lanes:
        facts = {"lane": lane.lane, "due_ms": lane.due_ms, "unsent": lane.unsent}
        if lane.due_ms > s.now_ms:
            detail = f"lane {lane.lane} is held {until(s, lane.due_ms)} with {lane.unsent} records unsent"
            yield because(s, "delivery_held", detail, holder={"kind": "sender", "lane": lane.lane}, since_ms=lane.since_ms, **facts)
        elif s.now_ms - lane.due_ms > LATE_MS:
            detail = f"lane {lane.lane} is due since {seconds(s.now_ms - lane.due_ms)} and no sender takes it"
            yield because(s, "delivery_overdue", detail, holder={"kind": "sender", "lane": lane.lane}, since_ms=lane.since_ms, **facts)
    if s.number("dd"):
        detail = f"{s.number('dd')} events or turns of it were given up"
        yield because(s, "dead_letter", detail, holder="operator", since_ms=None, letters=s.number("dd"))
