"""Who runs a lifted task.

The truth is the call row: at most one (owner, arq job id) has begun it, and it is in that owner's w set exactly as long. arq is
only an executor: it may lose a job, run it twice, or refuse an id that it still knows.
"""

from tests.protocol.model.rules import Rules
from tests.protocol.model.state import State, member, note_event, put, settle, wake

TRIES = 3


def begin_row(shard: State, rules: Rules, call: str, job: int, owner: str) -> str:
    """Begin the row for arq job number `job`; return OK, ALREADY (same pair again), FENCED, GONE, or LOST (dead owner)."""
    row = shard["calls"].get(call)
    if row is None:
        return "GONE"
    if rules.lift_owner and owner not in shard["workers"]:
        return "LOST"
    waiting = row["outcome"] is None and row["state"] == "parked"
    taken = rules.lift_owner and row["task"] not in (None, owner)
    other_job = rules.lift_job and row["task"] and row["tjob"] != job
    if not waiting or taken or other_job:
        if rules.lift_release and row["task"] == owner and row["tjob"] == job:
            drop_task(shard, call)
        return "FENCED"
    if row["task"] == owner:
        return "ALREADY"
    row["task"], row["tjob"] = owner, job
    shard["w"].setdefault(owner, []).append(member(call))
    return "OK"


def drop_task(shard: State, call: str) -> None:
    """Take the row out of its owner's set: nobody runs it any more."""
    row = shard["calls"][call]
    held = shard["w"].get(row["task"], [])
    if row["task"] and member(call) in held:
        held.remove(member(call))
    row["task"] = None


def relay_again(shard: State, rules: Rules, call: str) -> None:
    """Enqueue the row once more, under an arq job id of its own."""
    row = shard["calls"][call]
    row["relays"] += 1 if rules.lift_try else 0
    shard["relay"].append([call, row["relays"]])


def tick_relay(shard: State, rules: Rules, call: str) -> None:
    """Relay a parked row that nobody has begun for a while."""
    row = shard["calls"].get(call)
    if not rules.lift_again or row is None:
        return
    idle = row["outcome"] is None and row["state"] == "parked" and row["task"] is None
    if idle and [call, row["relays"]] not in shard["relay"]:
        relay_again(shard, rules, call)


def task_dead(shard: State, rules: Rules, call: str, owner: str) -> None:
    """Decide a row whose task died with `owner`: idempotent runs again, up to TRIES, anything else is unknown."""
    row = shard["calls"][call]
    if row["task"] != owner:
        return
    row["task"] = None
    if row["outcome"] is not None:
        return
    if row["kind"] in ("li", "ld") and (row["tries"] < TRIES or not rules.lift_bound):
        row["tries"] += 1
        relay_again(shard, rules, call)
        note_event(shard, row["store"], "call/relayed")
        return
    if settle(shard, call, "unknown"):
        if not row["awaited"]:
            item = {"kind": "note", "call": call, "outcome": "unknown", "late": False, "store": row["store"], "wake": True}
            put(shard, rules, row["sid"], item)
        note_event(shard, row["store"], "call/resolved")
        wake(shard, rules, row["sid"])
