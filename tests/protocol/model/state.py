"""What one shard holds, and the moves that several scripts share.

Only JSON types live in the state, so it can be copied, hashed, rewound and compared with what the Lua leaves in a real server.
A session's state and its membership in `ready`, `running` and `w` move together, inside one script.

Names of the state, where they are not the protocol's own: head `store` is the session's current store and `tstore` the open
turn's; `turn` is 0 when none is open; `step` is rev; `tver` the open turn's agent version, `state_of` its state; `low` is the seq
per store from which a begin reads, `low_before` what it was before the turn's first summary, 0 for none. A row's `tries` counts deaths of its
lifted task in a row plus one, `off` what it is handed out for next while it is not ("time", "answer"), `mode` what its task came for,
`raws` the answers that nobody has read, `read` how many were, `relays` its enqueues, (`task`, `tjob`) who has begun it.
"""

from collections.abc import Sequence
from typing import Any

from tests.protocol.model.rules import Rules

State = dict[str, Any]

INF = 10**9
BEGIN_BY = 3
LEASE = 10
WAKERS = ("retry", "timer")  # rows that are no call: they only hold the turn
APPROVALS = ("ap", "ax", "al")  # what people allow or deny


def new_shard(cap: int, sids: Sequence[str]) -> State:
    """Return an empty shard with `cap` slots and one idle session per id in `sids`."""
    return {
        "ingress": [],
        "ready": [],
        "running": {},
        "turns": [],
        "workers": {},
        "dying": [],
        "w": {},
        "dead": [],
        "cap": cap,
        "capacity": {},
        "d": {},
        "j": {},
        "n": 0,
        "now": 0,
        "deadlines": {},
        "relay": [],
        "ver": {},
        "events": False,
        "notices": {},
        "lost_limit": INF,
        "poisoned": [],
        "s": {sid: new_head(sid) for sid in sids},
        "log": {sid + "/0": [] for sid in sids},
        "calls": {},
    }


def new_head(sid: str) -> State:
    """Return the head of an idle session that has never run."""
    return {
        "state": "idle",
        "epoch": 0,
        "owner": None,
        "store": sid + "/0",
        "tstore": None,
        "turn": 0,
        "turns": 0,
        "step": 0,
        "awaiting": 0,
        "attempt": 0,
        "lost": 0,
        "cancel": None,
        "jobs": [],
        "inbox": [],
        "next": [],
        "stores": 1,
        "paused": False,
        "user": "",
        "now": 0,
        "tver": 0,
        "state_of": None,
        "low": {},
        "low_before": 0,
    }


def new_row(head: State, sid: str, kind: str) -> State:
    """Return the row of a call that the open turn has just declared."""
    return {
        "sid": sid,
        "store": head["tstore"],
        "turn": head["turn"],
        "kind": kind,
        "state": "open",
        "awaited": kind in ("aw", "li", "ln", "po", "cb", "qu", *APPROVALS, *WAKERS),
        "user": head["user"],
        "task": None,
        "tries": 1,
        "relays": 1,
        "tjob": 0,
        "relayed": False,
        "mode": None,
        "off": None,
        "raws": [],
        "read": 0,
        "demoted": False,
        "outcome": None,
        "late": None,
        "decision": None,
        "answered": False,
        "jobs": list(head["jobs"]),
    }


# Questions about the state


def wakes(head: State, store: str | None = None) -> bool:
    """Tell whether anything in inbox (of `store`, or of any) starts a turn."""
    return any(item["wake"] and (store is None or item["store"] == store) for item in head["inbox"])


def next_due(head: State) -> bool:
    """Tell whether next holds an item that may open a turn now."""
    return any(item["wake"] and item.get("due", 0) <= head["now"] for item in head["next"])


def empty_handed(head: State) -> bool:
    """Tell whether admitting this session would open a turn for nothing."""
    return not head["turn"] and not wakes(head) and not next_due(head)


def cancelling(head: State) -> bool:
    """Tell whether the open turn has been cancelled."""
    return bool(head["cancel"] and head["cancel"]["turn"] == head["turn"])


def least_version(head: State) -> int:
    """Return the oldest agent version that may go on with the open turn; one that is only to be closed may have any."""
    return 0 if cancelling(head) else head["tver"]


def poisoned(head: State) -> bool:
    """Tell whether the open turn is ended for what it does to its workers."""
    return cancelling(head) and head["cancel"]["cause"] == "poisoned"


def asks(row: State) -> bool:
    """Tell whether people are asked: whether the call may run, or a question. One that was decided asks no more."""
    return row["kind"] == "qu" or (row["kind"] in APPROVALS and row["decision"] is None)


def detached(row: State) -> bool:
    """Tell whether the call was answered by a placeholder, its outcome to come later as a note."""
    return row["demoted"] or row["kind"] in ("det", "ld", "cd")


def unanswered(log: Sequence[State]) -> list[str]:
    """Return the calls of the last assistant entry that have no result yet, in source order."""
    for i in range(len(log) - 1, -1, -1):
        if log[i]["kind"] == "assistant":
            done = {entry["call"] for entry in log[i + 1 :] if entry["kind"] == "result"}
            return [call for call in log[i]["calls"] if call not in done]
    return []


def last_entry(log: Sequence[State]) -> int:
    """Return the seq of the last ENTRY: events share the sequence but never count."""
    return max([record["seq"] for record in log if record["kind"] != "event"], default=0)


def rows_of(shard: State, sid: str) -> dict[str, State]:
    """Return the session's call rows by call id."""
    return {call: row for call, row in shard["calls"].items() if row["sid"] == sid}


def member(call: str) -> str:
    """Return how a lifted task's row is named in the set of what its worker runs."""
    return "c!" + call


def is_task(name: str) -> bool:
    """Tell a lifted task's member of a w set from a session's."""
    return name.startswith("c!")


def visible(log: Sequence[State]) -> list[State]:
    """Return the entries a model may see: not struck, and not behind a summary that stands."""
    hidden: set[int] = set()
    for entry in log:
        if entry["kind"] == "summary" and not entry.get("struck"):
            hidden |= set(range(entry["span"][0], entry["span"][1] + 1))
    return [entry for entry in log if entry["kind"] != "event" and not entry.get("struck") and entry["seq"] not in hidden]


# The log


def note_event(shard: State, store: str, what: str) -> None:
    """Append an event: accept, dispatch and tick write events, never entries; seq is shared."""
    if shard["events"]:
        log = shard["log"][store]
        epoch = log[-1]["epoch"] if log else 0
        log.append({"what": what, "kind": "event", "seq": len(log) + 1, "epoch": epoch, "turn": 0})


def append(shard: State, rules: Rules, head: State, entry: State) -> None:
    """Append an entry to the open turn's store, and move what an entry of its kind moves."""
    kind = entry["kind"]
    if kind == "note" and shard["calls"][entry["call"]].get("struck") and rules.strike_note:
        drop_struck(shard, rules, entry)
        return
    log = shard["log"][head["tstore"]]
    log.append(dict(entry, seq=len(log) + 1, epoch=head["epoch"], turn=head["turn"]))
    if kind == "result":
        row = shard["calls"][entry["call"]]
        row["answered"] = True
        if entry["outcome"] != "placeholder":
            move_open(shard, row, -1)
    elif kind == "note":
        after_note(shard, rules, head, entry)
    elif kind == "user":
        shard["j"][entry["mid"]]["state"] = "running"
        if entry["asker"] or not head["jobs"]:
            head["user"] = entry["user"]
        head["jobs"].append(entry["mid"])


def after_note(shard: State, rules: Rules, head: State, entry: State) -> None:
    """Settle a detached call's job, and reopen the jobs that waited for it: this turn answers them."""
    row = shard["calls"][entry["call"]]
    if counts_open(rules, entry):
        move_open(shard, row, -1)
    for mid in row["jobs"]:
        if mid not in head["jobs"] and shard["j"][mid]["state"] in ("waiting", "running"):
            head["jobs"].append(mid)
            shard["j"][mid]["state"] = "running"


def drop_struck(shard: State, rules: Rules, entry: State) -> None:
    """Drop what a struck call brought: the view it belonged to is gone, only its job is settled."""
    row = shard["calls"][entry["call"]]
    row["dropped"] = True
    if counts_open(rules, entry):
        move_open(shard, row, -1)
        cancel_settled_jobs(shard, row)


def counts_open(rules: Rules, entry: State) -> bool:
    """Tell whether showing this note is what settles the call in its jobs."""
    return not entry["late"] and not (rules.cancel_open and entry["outcome"] == "cancelled")


# Rows and jobs


def move_open(shard: State, row: State, by: int) -> None:
    """Count the call in (+1) or out (-1) of `open` of every job it was opened for."""
    for mid in row["jobs"]:
        shard["j"][mid]["open"] += by


def cancel_settled_jobs(shard: State, row: State) -> None:
    """End the jobs that waited for this call alone."""
    for mid in row["jobs"]:
        if shard["j"][mid]["state"] == "waiting" and shard["j"][mid]["open"] == 0:
            shard["j"][mid]["state"] = "cancelled"


def settle(shard: State, call: str, outcome: str) -> bool:
    """Give a call its outcome unless it has one: first writer wins, and awaiting moves in the same script."""
    row = shard["calls"][call]
    if row["outcome"] is not None:
        return False
    row["outcome"] = outcome
    if row["awaited"] and row["state"] == "parked":
        shard["s"][row["sid"]]["awaiting"] -= 1
    if row["kind"] in WAKERS:
        del shard["calls"][call]
    return True


# Moves of a session


def put(shard: State, rules: Rules, sid: str, item: State) -> bool:
    """Put an item that may join a turn into inbox, or into next when it is of another store; return True for inbox."""
    head = shard["s"][sid]
    if head["turn"]:
        joins = item["store"] == head["tstore"]
    else:
        joins = not rules.one_store or all(other["store"] == item["store"] for other in head["inbox"])
        if rules.displaced and any(other.get("steer") for other in head["next"]):
            joins = False
    item["steer"] = True
    (head["inbox"] if joins else head["next"]).append(item)
    return joins


def to_ready(shard: State, rules: Rules, sid: str, *, front: bool = False) -> None:
    """Put the session into its flow, unless it is paused and has no cancelled turn to close."""
    head = shard["s"][sid]
    closing = rules.pause_close and cancelling(head)
    if head["paused"] and rules.pause_gate and not closing:
        head["state"] = at_rest(head)
        return
    head["state"] = "ready"
    shard["ready"].insert(0 if front else len(shard["ready"]), sid)


def at_rest(head: State) -> str:
    """Return the state of a session that is in no flow and holds no slot."""
    return "parked" if head["turn"] else "idle"


def wake(shard: State, rules: Rules, sid: str) -> None:
    """Make the session ready if it is idle with work, or parked with nothing left to wait for."""
    head = shard["s"][sid]
    if (head["state"] == "idle" and (wakes(head) or next_due(head))) or (head["state"] == "parked" and head["awaiting"] == 0):
        to_ready(shard, rules, sid)


def release(shard: State, sid: str) -> None:
    """Free the session's slot and its place in its worker's set."""
    owner = shard["s"][sid]["owner"]
    shard["running"].pop(sid, None)
    if owner in shard["w"] and sid in shard["w"][owner]:
        shard["w"][owner].remove(sid)


def end_turn(shard: State, rules: Rules, head: State) -> None:
    """Close the open turn: its jobs end, or wait for what is still open."""
    for mid in head["jobs"]:
        job = shard["j"][mid]
        if job["state"] != "running":
            continue
        if job["open"] > 0:
            job["state"] = "waiting"
        elif poisoned(head):
            job["state"] = "failed"
        else:
            job["state"] = "cancelled" if cancelling(head) else "succeeded"
    if poisoned(head):
        log = shard["log"][head["tstore"]]
        notice = {"kind": "notice", "group": "turnyard", "text": "poisoned"}
        log.append(dict(notice, seq=len(log) + 1, epoch=head["epoch"], turn=head["turn"]))
    head["lost"] = 0
    head["jobs"], head["turn"], head["cancel"], head["tstore"], head["tver"] = [], 0, None, None, 0
    head["low_before"] = 0
    if rules.state_ends:
        head["state_of"] = None
