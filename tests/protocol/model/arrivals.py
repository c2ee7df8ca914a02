"""Where a user's message goes: inbox (it may join the open turn) or next (it waits for one of its own).

Only what goes to inbox supersedes approvals or demotes awaited calls. A collect window is one per session and store; its items
share one due time that never passes first + MAX_COLLECT, and a due window moves no more.
"""

from tests.protocol.model.cancel import overtake, set_cancel
from tests.protocol.model.rules import Rules
from tests.protocol.model.state import State, put, wake

W_COLLECT, MAX_COLLECT, DELAY = 2, 3, 2


def user_message(shard: State, rules: Rules, event: State) -> str:
    """Apply a user message by its mode: steer, follow_up, collect, later, interrupt or rollback."""
    sid, mode, asker = event["sid"], event["mode"], event.get("asker", True)
    head = shard["s"][sid]
    if cancelled_before(shard, event):
        return "CANCELLED"
    item = {"kind": "user", "mid": event["mid"], "store": head["store"], "wake": True, "n": event["n"], "asker": asker}
    item["user"] = event.get("user", "u")
    if mode == "later":
        delay(shard, rules, event, item)
    elif mode == "collect":
        collect(shard, rules, event, item)
    elif mode == "follow_up":
        head["next"].append(item)
    elif mode in ("interrupt", "rollback"):
        mode = interrupt(shard, rules, event, item)
    joins = mode == "steer" and (not head["turn"] or item["store"] == head["tstore"])
    if (joins or not rules.queue_supersede) and head["turn"] and head["awaiting"] > 0:
        overtake(shard, rules, sid, [item])
    if mode == "steer":
        put(shard, rules, sid, item)
    wake(shard, rules, sid)
    return "OK"


def cancelled_before(shard: State, event: State) -> bool:
    """Tell whether the message was cancelled on its way; a cancel of all ends its job only now."""
    job = shard["j"][event["mid"]]
    if event.get("void") and job["state"] == "queued":
        job["state"] = "cancelled"
    return job["state"] != "queued"


def interrupt(shard: State, rules: Rules, event: State, item: State) -> str:
    """Cancel the open turn (none: nothing); return the mode in which the message itself arrives."""
    head, mode = shard["s"][event["sid"]], event["mode"]
    if head["turn"]:
        strike = event.get("user", "u") if mode == "rollback" else None
        set_cancel(shard, rules, event["sid"], head["turn"], cause="superseded", strike=strike)
    if rules.interrupt_inbox:
        return "steer"
    head["next"].insert(0, item)
    return mode


def delay(shard: State, rules: Rules, event: State, item: State) -> None:
    """Queue a message that may open a turn only after its delay."""
    head = shard["s"][event["sid"]]
    item["due"] = head["now"] + event.get("delay", DELAY)
    shard["deadlines"][event["sid"] + "|" + (event["mid"] if rules.dl_member else "")] = item["due"]
    head["next"].append(item)


def collect(shard: State, rules: Rules, event: State, item: State) -> None:
    """Add a message to its store's collect window, opening one if there is none."""
    head = shard["s"][event["sid"]]
    group = [other for other in head["next"] if other.get("collect") and other["store"] == head["store"]]
    first = group[0]["first"] if group else head["now"]
    due = min(first + MAX_COLLECT, head["now"] + W_COLLECT)
    if group and group[0]["due"] <= head["now"] and rules.collect_closed:
        due = group[0]["due"]
    item.update(collect=True, first=first, due=due, g=group[0]["g"] if group else event["mid"])
    for other in group:
        other["due"] = due
    shard["deadlines"][event["sid"] + "|" + ("c" + head["store"] if rules.dl_member else "")] = due
    head["next"].append(item)
