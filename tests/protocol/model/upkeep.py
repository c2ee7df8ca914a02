"""What keeps promises that need time: leases, begin-by, deadlines, overdue cancels.

Every tick is bounded, safe to repeat, and ends with admit. A worker declared dead is fenced by the first tick and stays findable
until its set is empty, however often a tick dies half-way.
"""

from collections.abc import Sequence

from tests.protocol.model.admit import admit
from tests.protocol.model.cancel import set_cancel
from tests.protocol.model.lifted import task_dead
from tests.protocol.model.rules import Rules
from tests.protocol.model.state import (
    INF,
    LEASE,
    WAKERS,
    State,
    cancelling,
    empty_handed,
    is_task,
    put,
    release,
    settle,
    to_ready,
    wake,
)


def register(shard: State, owner: str, capacity: int, ver: int = 0) -> None:
    """Add a worker incarnation with room for `capacity` sessions, serving agent version `ver`."""
    shard["ver"][owner] = ver
    shard["workers"][owner] = LEASE
    shard["capacity"][owner] = capacity


def beat(shard: State, rules: Rules, owner: str, runs: Sequence[str]) -> State:
    """Renew a lease; LOST when it is gone, else what `owner` should not run, and what it should and does not."""
    if owner not in shard["workers"]:
        if rules.beat_xx:
            return {"code": "LOST"}
        shard["workers"][owner] = LEASE
    mine = shard["w"].get(owner, [])
    return {"code": "OK", "lost": [x for x in runs if x not in mine], "strangers": [x for x in mine if x not in runs]}


def tick_dead(shard: State, rules: Rules, owner: str, chunk: int = 1) -> None:
    """Fence a dead worker (first call) and hand back `chunk` of what it ran; a later tick must find the rest."""
    if owner in shard["workers"]:
        del shard["workers"][owner]
        if rules.dying and owner not in shard["dying"]:
            shard["dying"].append(owner)
    elif owner not in shard["dying"]:
        return
    for name in list(shard["w"].get(owner, []))[:chunk]:
        hand_back(shard, rules, owner, name)
    if not shard["w"].get(owner):
        shard["w"].pop(owner, None)
        if owner in shard["dying"]:
            shard["dying"].remove(owner)
    admit(shard, rules)


def hand_back(shard: State, rules: Rules, owner: str, name: str) -> None:
    """Take one session or lifted task from a dead worker."""
    shard["w"][owner].remove(name)
    if is_task(name):
        task_dead(shard, rules, name[2:], owner)
        return
    head = shard["s"][name]
    if head["state"] == "running" and head["owner"] == owner:
        shard["running"].pop(name, None)
        charge_host(shard, rules, name)
        to_ready(shard, rules, name, front=True)


def charge_host(shard: State, rules: Rules, sid: str) -> None:
    """Count a lost host to a turn that was on it; too many end the turn."""
    head = shard["s"][sid]
    if cancelling(head):
        return
    head["lost"] += 1
    if head["lost"] >= shard["lost_limit"]:
        shard["poisoned"].append(f"{sid}/{head['turn']}")
        set_cancel(shard, rules, sid, head["turn"], cause="poisoned")


def tick_beginby(shard: State, rules: Rules, sid: str) -> None:
    """Take back an assignment that nobody began: front of its flow, attempt untouched."""
    head = shard["s"][sid]
    if head["state"] == "assigned":
        shard["running"].pop(sid, None)
        if rules.ready_empty and empty_handed(head):
            head["state"] = "idle"
        else:
            to_ready(shard, rules, sid, front=True)
    admit(shard, rules)


def tick_due(shard: State, rules: Rules, name: str) -> None:
    """Wake the session of a due window or delayed item; `name` is `<session>|<what>`."""
    if shard["deadlines"].get(name, INF) <= shard["now"]:
        del shard["deadlines"][name]
        wake(shard, rules, name.split("|")[0])
    admit(shard, rules)


def tick_deadline(shard: State, rules: Rules, call: str) -> None:
    """Give a parked call that is past its deadline the outcome timeout."""
    row = shard["calls"].get(call)
    if row and row["outcome"] is None and row["state"] == "parked":
        sid = row["sid"]
        if rules.cas_awaiting:
            settle(shard, call, "fired" if row["kind"] in WAKERS else "timeout")
        else:
            row["outcome"] = "timeout"
            shard["s"][sid]["awaiting"] -= 1 if row["awaited"] else 0
        if not row["awaited"]:
            put(shard, rules, sid, {"kind": "note", "call": call, "outcome": "timeout", "late": False, "store": row["store"], "wake": True})
        elif not rules.rows_first:
            put(shard, rules, sid, {"kind": "result", "call": call, "outcome": "timeout", "store": row["store"], "wake": True})
        wake(shard, rules, sid)
    admit(shard, rules)


def tick_cancel(shard: State, rules: Rules, sid: str) -> None:
    """Fence the one session whose cancelled turn did not close in time."""
    head = shard["s"][sid]
    if head["cancel"] and head["state"] == "running":
        release(shard, sid)
        to_ready(shard, rules, sid, front=True)
    admit(shard, rules)
