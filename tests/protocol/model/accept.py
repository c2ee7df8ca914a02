"""What happens to a message event at the one door in.

A repeat of an event id gets the first answer. An outcome or decision is settled here, by first writer, before its entry is
queued: dispatch only wakes. A cancel is stamped with the turn that was open when it came.
"""

from tests.protocol.model.lifted import drop_task
from tests.protocol.model.rules import Rules
from tests.protocol.model.state import State, note_event, settle

GONE, CONFLICT, ACCEPTED = 404, 409, 202


def accept(shard: State, rules: Rules, event: State) -> State:
    """Accept one event; return its code, with `dup` when it only repeats an earlier answer."""
    if event.get("owner") and rules.lift_release and shard["calls"].get(event["call"], {}).get("task") == event["owner"]:
        drop_task(shard, event["call"])
    if event["id"] in shard["d"]:
        return dict(shard["d"][event["id"]], dup=True)
    if event["kind"] in ("outcome", "decision"):
        settled = settle_from_outside(shard, rules, event)
        if isinstance(settled, int):
            return {"code": settled}
        event = settled
    if event["kind"] == "user":
        note_event(shard, shard["s"][event["sid"]]["store"], "inbox/accepted")
        shard["j"][event["mid"]] = {"state": "queued", "open": 0}
    if event["kind"] == "cancel":
        event = dict(event, turn=shard["s"][event["sid"]]["turn"])
        if not event["turn"]:
            shard["d"][event["id"]] = {"code": "LATE"}
            return {"code": "LATE"}
    shard["ingress"].append(event)
    shard["d"][event["id"]] = {"code": ACCEPTED}
    return {"code": ACCEPTED}


def settle_from_outside(shard: State, rules: Rules, event: State) -> State | int:
    """Settle the row an outcome or decision is for; return the entry to queue, or the code of its refusal."""
    row = shard["calls"].get(event["call"])
    if row is None:
        return GONE
    if event["kind"] == "decision":
        if not record_decision(shard, rules, event, row):
            return CONFLICT
    elif row["outcome"] in ("unknown", "timeout") and row["late"] is None:
        row["late"] = event["value"]
        event = dict(event, kind="late")
    elif row["outcome"] is not None:
        return CONFLICT
    elif rules.cas_awaiting:
        settle(shard, event["call"], event["value"])
    else:
        row["outcome"] = event["value"]
    if event.get("owner") and not rules.lift_release and row["task"] == event["owner"]:
        drop_task(shard, event["call"])
    note_event(shard, row["store"], "call/resolved")
    return dict(event, sid=row["sid"])


def record_decision(shard: State, rules: Rules, event: State, row: State) -> bool:
    """Take the first decision on a call that has no outcome; return False for any other."""
    if row["decision"] is not None or row["outcome"] is not None:
        return False
    row["decision"] = event["value"]
    if rules.cas_awaiting:
        decide(shard, rules, event["call"])
    return True


def decide(shard: State, rules: Rules, call: str) -> None:
    """Apply a decision: allow means the call may run and is no result, deny is one."""
    row = shard["calls"][call]
    if row["outcome"] is not None:
        return
    if row["decision"] != "allow":
        settle(shard, call, "denied")
        return
    if row["awaited"] and row["state"] == "parked":
        shard["s"][row["sid"]]["awaiting"] -= 1
    row["state"] = "allowed" if rules.allowed else "started"
    row["awaited"] = False
