"""What a cancel, a strike and an asker's message do to calls that wait.

A cancel names one turn and touches only rows that this turn opened. A cancelled call is settled and counted out of its jobs at
once; the note about it wakes nobody.
"""

from collections.abc import Sequence

from tests.protocol.model.rules import Rules
from tests.protocol.model.state import (
    WAKERS,
    State,
    asks,
    cancel_settled_jobs,
    empty_handed,
    move_open,
    poisoned,
    put,
    rows_of,
    settle,
    to_ready,
)


def set_cancel(shard: State, rules: Rules, sid: str, turn: int, *, cause: str, strike: str | None = None) -> str:
    """Cancel the open turn; LATE when `turn` is not the open one. A strike once asked for is never forgotten."""
    head = shard["s"][sid]
    if head["turn"] != turn or not turn:
        return "LATE"
    before = head["cancel"]
    if poisoned(head):
        cause = "poisoned"
    head["cancel"] = {"turn": turn, "cause": cause}
    kept = before.get("strike") if before and rules.strike_kept else None
    if strike or kept:
        head["cancel"]["strike"] = strike or kept
    cancel_parked(shard, rules, sid, turn)
    if head["state"] == "parked":
        cancel_never_parked(shard, sid, turn)
        if head["awaiting"] <= 0:
            to_ready(shard, rules, sid, front=True)
    return "SET"


def cancel_parked(shard: State, rules: Rules, sid: str, turn: int, *, answered_only: bool = False) -> None:
    """Settle the turn's parked rows as cancelled; with `answered_only` those whose placeholder is in the log."""
    for call, row in rows_of(shard, sid).items():
        if answered_only and not row["answered"]:
            continue
        if row["outcome"] is None and row["state"] == "parked" and (row["turn"] == turn or not rules.row_turn):
            if rules.cas_awaiting:
                settle(shard, call, "cancelled")
            else:
                row["outcome"] = "cancelled"
            aside_cancelled(shard, rules, sid, call)
    if not rules.cas_awaiting:
        shard["s"][sid]["awaiting"] = 0


def cancel_never_parked(shard: State, sid: str, turn: int) -> None:
    """Settle the turn's awaited rows that were declared, but parked by nobody yet."""
    for call, row in rows_of(shard, sid).items():
        if row["outcome"] is None and row["awaited"] and row["turn"] == turn:
            settle(shard, call, "cancelled")


def aside_cancelled(shard: State, rules: Rules, sid: str, call: str) -> None:
    """Leave a note that wakes nobody about a cancelled call whose placeholder is in the log already."""
    row = shard["calls"].get(call)
    if row is None or row["awaited"] or not row["answered"]:
        return
    item = {"kind": "note", "call": call, "outcome": "cancelled", "late": False, "store": row["store"], "wake": False}
    put(shard, rules, sid, item)
    if rules.cancel_open:
        move_open(shard, row, -1)
        cancel_settled_jobs(shard, row)


def leave_queue(shard: State, rules: Rules, sid: str, mids: Sequence[str]) -> None:
    """End queued jobs and take their messages out of inbox and next; a session left with nothing leaves its flow."""
    head = shard["s"][sid]
    for queue in ("inbox", "next"):
        head[queue] = [item for item in head[queue] if item.get("mid") not in mids]
    for mid in mids:
        shard["j"][mid]["state"] = "cancelled"
    if rules.ready_empty and head["state"] == "ready" and empty_handed(head):
        head["state"] = "idle"
        shard["ready"].remove(sid)


def clear_queues(shard: State, rules: Rules, sid: str) -> None:
    """Cancel every message that waits; what lies in ingress is void and ends when it is drained."""
    head = shard["s"][sid]
    leave_queue(shard, rules, sid, [item["mid"] for item in head["inbox"] + head["next"] if item["kind"] == "user"])
    for event in shard["ingress"]:
        if event["kind"] == "user" and event["sid"] == sid:
            event["void"] = True


def overtake(shard: State, rules: Rules, sid: str, items: Sequence[State]) -> None:
    """Somebody wrote: what its writer may take back of what people are asked is superseded, other parked awaited calls become
    detached for an asker, a retry delay stays.
    """
    head = shard["s"][sid]
    wrote = [item for item in items if item["kind"] == "user"]
    asked = any(item["asker"] for item in wrote)
    for call, row in rows_of(shard, sid).items():
        parked = row["state"] == "parked"
        if row["outcome"] is not None or not row["awaited"] or (rules.demote_parked and not parked):
            continue
        if asks(row):
            if (gives_way(row, wrote) if rules.ask_own else asked) and parked:
                settle(shard, call, "superseded")
        elif asked and (row["kind"] not in WAKERS or not rules.retry_stays):
            row["awaited"], row["demoted"] = False, True
            head["awaiting"] -= 1 if parked else 0


def gives_way(row: State, wrote: Sequence[State]) -> bool:
    """Tell whether one of these messages takes the place of what the row asks: its asker's, or anyone's where it says so."""
    if row["kind"] == "ax":
        return bool(wrote)
    return any(item["asker"] and row["user"] in ("", item["user"]) for item in wrote)


def strike(shard: State, rules: Rules, sid: str) -> None:
    """Take the turn's entries out of the view (the log itself stays); bystanders' messages come back to inbox."""
    head = shard["s"][sid]
    returned: list[State] = []
    if head["low_before"] and rules.strike_low:
        head["low"][head["tstore"]] = head["low_before"]
    for entry in shard["log"][head["tstore"]]:
        if entry["turn"] != head["turn"] or entry["kind"] == "event" or (rules.strike_own and of_others(shard, head, entry)):
            continue
        if entry["kind"] == "summary" and not rules.strike_folds:
            continue
        entry["struck"] = True
        if entry["kind"] == "user" and not entry["asker"] and rules.strike_other:
            head["jobs"].remove(entry["mid"])
            shard["j"][entry["mid"]]["state"] = "queued"
            item = {"kind": "user", "mid": entry["mid"], "store": head["tstore"], "wake": True, "n": 0, "asker": False, "steer": True}
            item["user"] = entry["user"]
            returned.append(item)
        if entry["kind"] == "assistant":
            for call in entry["calls"]:
                shard["calls"][call]["struck"] = True
    head["inbox"] = returned + head["inbox"]


def of_others(shard: State, head: State, entry: State) -> bool:
    """Tell whether the entry came into this turn from elsewhere: a notice, or the result of another turn's call."""
    return entry["kind"] == "notice" or (entry["kind"] == "note" and shard["calls"][entry["call"]]["turn"] != head["turn"])
