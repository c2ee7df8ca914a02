"""How the dispatcher drains ingress and what each entry does.

Entries are applied in acceptance order, from the head. An outcome's entry decides nothing (accept did): it wakes, and puts a
detached call's item into inbox. An entry that cannot be read goes to dead, and the drain goes on.
"""

from collections.abc import Callable

from tests.protocol.model.accept import decide
from tests.protocol.model.admit import admit
from tests.protocol.model.arrivals import user_message
from tests.protocol.model.cancel import aside_cancelled, clear_queues, leave_queue, set_cancel
from tests.protocol.model.rules import Rules
from tests.protocol.model.state import State, at_rest, detached, put, rows_of, settle, wake


def dispatch(shard: State, rules: Rules, limit: int = 64) -> list[str]:
    """Apply up to `limit` entries from the head of ingress, then admit; return what each entry did."""
    done = [apply_event(shard, rules, event) for event in shard["ingress"][:limit]]
    del shard["ingress"][:limit]
    admit(shard, rules)
    return done


def apply_event(shard: State, rules: Rules, event: State) -> str:
    """Apply one ingress entry."""
    if rules.dead_letter and not readable(shard, event):
        shard["dead"].append(event)
        return "DEAD"
    return BY_KIND[event["kind"]](shard, rules, event)


def readable(shard: State, event: State) -> bool:
    """Tell, before any write, whether the entry has a known kind and session."""
    return event.get("kind") in BY_KIND and event.get("sid") in shard["s"]


def call_outcome(shard: State, rules: Rules, event: State) -> str:
    """Wake for an outcome that accept settled; a detached call's goes to inbox as a note."""
    call, late = event["call"], event["kind"] == "late"
    row = shard["calls"].get(call)
    if row is None:
        return "GONE"
    sid = event["sid"]
    if late or not row["awaited"]:
        outcome = row["late"] if late else row["outcome"]
        put(shard, rules, sid, {"kind": "note", "call": call, "outcome": outcome, "late": late, "store": row["store"], "wake": True})
    else:
        if not rules.cas_awaiting:
            shard["s"][sid]["awaiting"] -= 1
        if not rules.rows_first:
            put(shard, rules, sid, {"kind": "result", "call": call, "outcome": row["outcome"], "store": row["store"], "wake": True})
    wake(shard, rules, sid)
    return "OK"


def decision(shard: State, rules: Rules, event: State) -> str:
    """Wake for a decision that accept applied."""
    if not rules.cas_awaiting:
        decide(shard, rules, event["call"])
    wake(shard, rules, event["sid"])
    return "OK"


def cancel_turn(shard: State, rules: Rules, event: State) -> str:
    """Cancel the turn that was open when the cancel was accepted; a stale one is LATE."""
    if event.get("all") and not rules.cancel_all and event["turn"] == shard["s"][event["sid"]]["turn"]:
        clear_queues(shard, rules, event["sid"])
    return set_cancel(shard, rules, event["sid"], event["turn"], cause="user")


def cancel_job(shard: State, rules: Rules, event: State) -> str:
    """Cancel one job: out of its queue, or its waiting calls, or the turn that answers it."""
    sid, mid = event["sid"], event["mid"]
    head, job = shard["s"][sid], shard["j"].get(mid)
    if job and job["state"] == "queued":
        leave_queue(shard, rules, sid, [mid])
    elif job and job["state"] in ("waiting", "running"):
        for call, row in rows_of(shard, sid).items():
            if mid in row["jobs"] and row["outcome"] is None and row["state"] == "parked" and detached(row):
                settle(shard, call, "cancelled")
                aside_cancelled(shard, rules, sid, call)
        if mid in head["jobs"]:
            set_cancel(shard, rules, sid, head["turn"], cause="user")
    return "OK"


def notice(shard: State, rules: Rules, event: State) -> str:
    """Show a notice once: it replaces an unshown one of its group and store, and never wakes."""
    head, group = shard["s"][event["sid"]], event["group"]
    shard["notices"][group] = [head["store"], event["text"]]
    for queue in ("inbox", "next"):
        for item in head[queue]:
            if in_group(item, group) and (item["store"] == head["store"] or not rules.notice_store):
                item["text"] = event["text"]
                return "REPLACED"
        head[queue] = [item for item in head[queue] if not in_group(item, group)]
    put(shard, rules, event["sid"], {"kind": "notice", "group": group, "text": event["text"], "store": head["store"], "wake": False})
    return "OK"


def clear(shard: State, rules: Rules, event: State) -> str:
    """Remove the group's unshown notices."""
    del rules
    head = shard["s"][event["sid"]]
    shard["notices"].pop(event["group"], None)
    for queue in ("inbox", "next"):
        head[queue] = [item for item in head[queue] if not in_group(item, event["group"])]
    return "OK"


def in_group(item: State, group: str) -> bool:
    """Tell whether the item is a notice of this group."""
    return item["kind"] == "notice" and item["group"] == group


def pause(shard: State, rules: Rules, event: State) -> str:
    """Keep the session out of its flow; a ready or assigned one is taken back, a cancelled turn is still closed."""
    sid = event["sid"]
    head = shard["s"][sid]
    head["paused"] = True
    if head["state"] == "ready" and not head["cancel"]:
        shard["ready"].remove(sid)
        head["state"] = at_rest(head)
    elif head["state"] == "assigned" and rules.pause_assigned and not head["cancel"]:
        shard["running"].pop(sid)
        head["state"] = at_rest(head)
    return "OK"


def resume(shard: State, rules: Rules, event: State) -> str:
    """Lift the pause and look again, as dispatch does after every arrival."""
    shard["s"][event["sid"]]["paused"] = False
    wake(shard, rules, event["sid"])
    return "OK"


def new_store(shard: State, rules: Rules, event: State) -> str:
    """Start a new history; what runs or waits stays with the old one."""
    del rules
    head = shard["s"][event["sid"]]
    head["store"] = f"{event['sid']}/{head['stores']}"
    head["stores"] += 1
    shard["log"][head["store"]] = []
    return "OK"


def wake_entry(shard: State, rules: Rules, event: State) -> str:
    """Do nothing: a wake entry only makes a dispatcher look, and admit follows every drain."""
    del shard, rules, event
    return "OK"


BY_KIND: dict[str, Callable[[State, Rules, State], str]] = {
    "user": user_message,
    "outcome": call_outcome,
    "late": call_outcome,
    "decision": decision,
    "cancel": cancel_turn,
    "canceljob": cancel_job,
    "notice": notice,
    "clear": clear,
    "pause": pause,
    "resume": resume,
    "new": new_store,
    "wake": wake_entry,
}
