"""Who runs a lifted task.

The truth is the call row: at most one (owner, arq job id) has begun it, and it is in that owner's w set exactly as long. arq is
only an executor: it may lose a job, run it twice, or refuse an id that it still knows.
"""

from tests.protocol.model.admit import admit
from tests.protocol.model.rules import Rules
from tests.protocol.model.state import State, member, note_event, put, settle, wake

TRIES = 3
READ = ("cb", "cd")  # callbacks whose answers their tool reads
PUT_OFF = ("po", *READ)  # handed out when their time comes or an answer waits, not when they are parked
REPEATED = ("li", "ld")


def begin_row(shard: State, rules: Rules, call: str, job: int, owner: str) -> str:
    """Begin the row for arq job number `job`; return OK, ALREADY (same pair again), OFF (called off), FENCED, GONE, or LOST (dead owner)."""
    row = shard["calls"].get(call)
    if row is None:
        return "GONE"
    if rules.lift_owner and owner not in shard["workers"]:
        return "LOST"
    if row["outcome"] == "cancelled" and row["kind"] == "po" and row["task"] is None:
        return "OFF"
    mode = row["mode"] or wanted(rules, row)
    waiting = row["outcome"] is None and row["state"] == "parked" and mode is not None
    taken = rules.lift_owner and row["task"] not in (None, owner)
    other_job = rules.lift_job and row["task"] and row["tjob"] != job
    if not waiting or taken or other_job:
        if rules.lift_release and row["task"] == owner and row["tjob"] == job:
            drop_task(shard, call)
        return "FENCED"
    if row["task"] == owner:
        return "ALREADY"
    row["task"], row["tjob"], row["mode"], row["off"] = owner, job, mode, None
    if mode == "resolve" and not rules.raw_kept:
        read_one(row)
    shard["w"].setdefault(owner, []).append(member(call))
    return "OK"


def wanted(rules: Rules, row: State) -> str | None:
    """Return what a task of the row would come for; None when it is not for the taking."""
    if row["off"] and rules.not_early:
        return None
    if row["raws"]:
        return "resolve"
    if row["kind"] == "po":
        return "poll"
    return None if row["kind"] in READ else "run"


def read_one(row: State) -> None:
    """Count the oldest answer as read."""
    row["raws"].pop(0)
    row["read"] += 1


def keep_raw(shard: State, rules: Rules, event: State) -> int:
    """Keep an answer for the call's tool to read; return its code."""
    row = shard["calls"].get(event["call"])
    if row is None:
        return 404
    if row["outcome"] is not None or event["value"] in row["raws"]:
        return 409
    row["raws"].append(event["value"])
    if row["off"] and rules.raw_wakes:
        relay_again(shard, rules, event["call"])
    return 202


def let_go_of(shard: State, rules: Rules, event: State) -> int:
    """Take the word of a row's own task that it is not done yet; return its code."""
    call = event["call"]
    row = shard["calls"].get(call)
    if row is None:
        return 404
    if row["task"] != event["owner"] or row["tjob"] != event["job"]:
        return 409
    if row["outcome"] is not None:
        drop_task(shard, call)
        return 409
    if row["kind"] == "lo":
        return 409
    row["kind"] = "ld" if row["kind"] == "lx" else row["kind"]
    if row["mode"] == "resolve" and rules.raw_kept:
        read_one(row)
    drop_task(shard, call)
    row["tries"] = 1 if rules.later_lives else row["tries"] + 1
    if event.get("now"):
        relay_again(shard, rules, call)
    else:
        put_off(shard, rules, call, timed=event["timed"], left=rules.raw_left)
    return 202


def put_off(shard: State, rules: Rules, call: str, *, timed: bool, left: bool) -> None:
    """Hand the row out later: when its time comes, or an answer; at once while answers wait."""
    row = shard["calls"][call]
    if row["raws"] and left:
        relay_again(shard, rules, call)
    else:
        row["off"] = "time" if timed else "answer"


def drop_task(shard: State, call: str) -> None:
    """Take the row out of its owner's set: nobody runs it any more."""
    row = shard["calls"][call]
    held = shard["w"].get(row["task"], [])
    if row["task"] and member(call) in held:
        held.remove(member(call))
    row["task"] = row["mode"] = None


def relay_again(shard: State, rules: Rules, call: str) -> None:
    """Enqueue the row once more, under an arq job id of its own."""
    row = shard["calls"][call]
    row["relays"] += 1 if rules.lift_try else 0
    row["off"] = None
    shard["relay"].append([call, row["relays"]])


def tick_relay(shard: State, rules: Rules, call: str) -> None:
    """Relay a parked row that nobody has begun for a while, or whose time has come."""
    row = shard["calls"].get(call)
    if rules.lift_again and row is not None:
        relay_idle(shard, rules, call)
    admit(shard, rules)


def relay_idle(shard: State, rules: Rules, call: str) -> None:
    """Relay the row unless a task has it."""
    row = shard["calls"][call]
    idle = row["outcome"] is None and row["state"] == "parked" and row["task"] is None
    if idle and [call, row["relays"]] not in shard["relay"]:
        relay_again(shard, rules, call)


def task_dead(shard: State, rules: Rules, call: str, owner: str) -> None:
    """Decide a row whose task died with `owner`: idempotent runs again, up to TRIES, anything else is unknown."""
    row = shard["calls"][call]
    if row["task"] != owner:
        return
    repeats = row["kind"] in REPEATED or (row["kind"] == "lx" and rules.long_again) or row["mode"] in ("poll", "resolve")
    row["task"] = row["mode"] = None
    if row["outcome"] is not None:
        return
    if repeats and (row["tries"] < TRIES or not rules.lift_bound):
        row["tries"] += 1
        row["kind"] = "ld" if row["kind"] == "lx" else row["kind"]
        relay_again(shard, rules, call)
        note_event(shard, row["store"], "call/relayed")
        return
    outcome = "error" if repeats else "unknown"
    if settle(shard, call, outcome):
        if not row["awaited"]:
            item = {"kind": "note", "call": call, "outcome": outcome, "late": False, "store": row["store"], "wake": True}
            put(shard, rules, row["sid"], item)
        note_event(shard, row["store"], "call/resolved")
        wake(shard, rules, row["sid"])
