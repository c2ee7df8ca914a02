"""How a worker takes an assignment, and what moves from inbox into the log.

Claim is the only writer of other people's input. It first answers the open batch from its rows, and touches inbox only when no
declared call is unanswered, so nothing ever lands between a call and its result.
"""

from tests.protocol.model.rules import Rules
from tests.protocol.model.state import APPROVALS, INF, State, append, cancelling, least_version, next_due, to_ready, unanswered, wakes


def begin(shard: State, rules: Rules, sid: str, epoch: int, owner: str) -> State:
    """Make the assignment (sid, epoch) a running turn of `owner`; ALREADY repeats the content, FENCED means drop it."""
    head = shard["s"][sid]
    live = owner in shard["workers"] or not rules.begin_live
    if head["state"] == "running" and head["epoch"] == epoch and head["owner"] == owner and live:
        return answer(shard, sid, "ALREADY", base=unseen(head))
    if head["state"] != "assigned" or head["epoch"] != epoch or not live:
        return {"code": "FENCED"}
    if shard["ver"].get(owner, 0) < least_version(head):
        shard["running"].pop(sid, None)
        to_ready(shard, rules, sid, front=True)
        return {"code": "FENCED"}
    head["tver"] = max(head["tver"], shard["ver"].get(owner, 0))
    head["state"], head["owner"] = "running", owner
    head["attempt"] += 1
    shard["running"][sid] = INF
    shard["w"].setdefault(owner, []).append(sid)
    if not rules.state_kept:
        head["state_of"] = None
    if not head["turn"]:
        open_turn(rules, head)
    asked_for = wakes(head) or head["jobs"] or unanswered(shard["log"][head["tstore"]])
    if asked_for and not (rules.cancel_no_claim and head["cancel"]):
        claim(shard, rules, head, between=rules.begin_between)
    return answer(shard, sid, "OK", base=unseen(head))


def unseen(head: State) -> int:
    """Return up to where nothing is seen any more, because summaries stand for it."""
    return head["low"].get(head["tstore"], 1) - 1


def answer(shard: State, sid: str, code: str, *, base: int) -> State:
    """Return what a script tells the worker: the turn as it is now, with the log records after `base`."""
    head = shard["s"][sid]
    store = head["tstore"]
    ended = head["state"] != "running"
    log: list[State] = shard["log"][store] if store else []
    return {
        "code": code,
        "ended": ended,
        "store": store,
        "step": head["step"],
        "turn": head["turn"],
        "state": None if ended else head["state_of"],
        "entries": [] if ended else [dict(record) for record in log[base:]],
        "cancel": cancelling(head),
        "rows": {} if ended else {call: dict(shard["calls"][call]) for call in unanswered(log)},
    }


def open_turn(rules: Rules, head: State) -> None:
    """Open a turn of the store of its first item, with every displaced item of that store."""
    if rules.begin_next and not wakes(head) and next_due(head):
        take_from_next(rules, head)
    head["turns"] += 1
    head["turn"] = head["turns"]
    head["tstore"] = head["inbox"][0]["store"] if head["inbox"] else head["store"]
    if rules.displaced:
        displaced = [item for item in head["next"] if item.get("steer") and item["store"] == head["tstore"]]
        head["next"] = [item for item in head["next"] if not (item.get("steer") and item["store"] == head["tstore"])]
        head["inbox"] += displaced


def take_from_next(rules: Rules, head: State) -> None:
    """Move the first due item (its whole collect window) to inbox, behind the asides of its store."""
    first = next(item for item in head["next"] if item["wake"] and item.get("due", 0) <= head["now"])
    window = rules.collect_group and first.get("collect")
    group = [item for item in head["next"] if item is first or (window and item.get("collect") and item["store"] == first["store"])]
    rest = head["inbox"] + [item for item in head["next"] if not any(item is taken for taken in group)]
    asides = [item for item in rest if not item["wake"] and item["store"] == first["store"]]
    head["next"] = [item for item in rest if item["wake"] or item["store"] != first["store"]]
    head["inbox"] = asides + group


def claim(shard: State, rules: Rules, head: State, *, between: bool = True) -> None:
    """Write what has arrived into the log: the open batch's outcomes, then (if it is answered) inbox in order."""
    log = shard["log"][head["tstore"]]
    if rules.rows_first:
        answer_from_rows(shard, rules, head, log)
    if between and unanswered(log):
        return
    kept: list[State] = []
    for item in head["inbox"]:
        if item["store"] == head["tstore"]:
            append(shard, rules, head, entry_of(shard, item))
        else:
            kept.append(item)
    head["inbox"] = kept


def answer_from_rows(shard: State, rules: Rules, head: State, log: list[State]) -> None:
    """Append the outcome of each settled awaited call and the placeholder of each demoted one, in source order."""
    for call in unanswered(log):
        row = shard["calls"][call]
        if row["outcome"] is not None and (row["awaited"] or row["kind"] in APPROVALS) and not row["demoted"]:
            append(shard, rules, head, {"kind": "result", "call": call, "outcome": row["outcome"]})
        elif row["demoted"] and (row["state"] == "parked" or row["outcome"] is not None or not rules.demote_parked):
            append(shard, rules, head, {"kind": "result", "call": call, "outcome": "placeholder"})


def entry_of(shard: State, item: State) -> State:
    """Return the log entry of an inbox item."""
    kind = item["kind"]
    if kind == "user":
        return {"kind": "user", "mid": item["mid"], "g": item.get("g"), "asker": item["asker"], "user": item["user"]}
    if kind == "notice":
        return {"kind": "notice", "group": item["group"], "text": item["text"]}
    if kind == "result":
        # Only with rows_first off: an awaited outcome that travelled through inbox.
        row = shard["calls"][item["call"]]
        if row["demoted"] or row["answered"]:
            return {"kind": "note", "call": item["call"], "outcome": item["outcome"], "late": False}
        return {"kind": "result", "call": item["call"], "outcome": item["outcome"]}
    return {"kind": "note", "call": item["call"], "outcome": item["outcome"], "late": item["late"]}
