"""What happens to a message event at the one door in.

A repeat of an event id gets the first answer. An outcome or decision is settled here, by first writer, before its entry is
queued: dispatch only wakes. A cancel is stamped with the turn that was open when it came.
"""

from tests.protocol.model.cancel import clear_queues, leave_queue
from tests.protocol.model.lifted import drop_task, keep_raw, let_go_of
from tests.protocol.model.rules import Rules
from tests.protocol.model.state import WAKERS, State, note_event, settle

GONE, CONFLICT, ACCEPTED = 404, 409, 202
BEFORE_OUTCOME = {"raw": keep_raw, "later": let_go_of}


def accept(shard: State, rules: Rules, event: State) -> State:
    """Accept one event; return its code, with `dup` when it only repeats an earlier answer."""
    before_outcome = BEFORE_OUTCOME.get(event["kind"])
    if before_outcome:
        return {"code": before_outcome(shard, rules, event)}
    return accept_once(shard, rules, event)


def accept_once(shard: State, rules: Rules, event: State) -> State:
    """Accept an event that is known by its id."""
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
    event = stamped(shard, event)
    if event["kind"] == "cancel" and not cancel_of_all(shard, rules, event) and not event["turn"]:
        shard["d"][event["id"]] = {"code": "LATE"}
        return {"code": "LATE"}
    if not ends_queued_job(shard, rules, event):
        shard["ingress"].append(event)
    shard["d"][event["id"]] = {"code": ACCEPTED}
    return {"code": ACCEPTED}


def stamped(shard: State, event: State) -> State:
    """Return a cancel with the turn that is open now, anything else as it is."""
    return dict(event, turn=shard["s"][event["sid"]]["turn"]) if event["kind"] == "cancel" else event


def cancel_of_all(shard: State, rules: Rules, event: State) -> bool:
    """Empty the queues if the cancel asks for all and something waits, be it void already; tell whether that is so."""
    void = any(e.get("void") and e["sid"] == event["sid"] and shard["j"][e["mid"]]["state"] == "queued" for e in shard["ingress"])
    if not event.get("all") or not (void or queued(shard, event["sid"])):
        return False
    if rules.cancel_all:
        clear_queues(shard, rules, event["sid"])
    return True


def ends_queued_job(shard: State, rules: Rules, event: State) -> bool:
    """End the job that the event cancels if no turn has taken it; tell whether that was so."""
    if event["kind"] != "canceljob" or not rules.job_leaves or shard["j"].get(event["mid"], {}).get("state") != "queued":
        return False
    leave_queue(shard, rules, event["sid"], [event["mid"]])
    return True


def queued(shard: State, sid: str) -> list[str]:
    """Return the messages of a session that were accepted and that no turn has taken."""
    head = shard["s"][sid]
    waiting = [item["mid"] for item in head["inbox"] + head["next"] if item["kind"] == "user"]
    coming = [e["mid"] for e in shard["ingress"] if e["kind"] == "user" and e["sid"] == sid and not e.get("void")]
    return waiting + [mid for mid in coming if shard["j"][mid]["state"] == "queued"]


def settle_from_outside(shard: State, rules: Rules, event: State) -> State | int:
    """Settle the row an outcome or decision is for; return the entry to queue, or the code of its refusal."""
    row = shard["calls"].get(event["call"])
    if row is None or row["kind"] in WAKERS:
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
    """Take the first decision on a call that waits for one; return False for any other."""
    if row["decision"] is not None or row["outcome"] is not None or row["state"] != "parked":
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
