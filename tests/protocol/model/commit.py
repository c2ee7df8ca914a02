"""What one step of a turn writes.

A commit passes only from the running holder, at exactly the next rev, on the log its worker has seen. A repeat after a lost reply
is ALREADY with the same content. Ending none goes on, finish ends the turn (and opens the next when something waits), park waits
without a slot, yield goes back to the flow.
"""

from tests.protocol.model.begin import answer, claim
from tests.protocol.model.cancel import cancel_parked, overtake, strike
from tests.protocol.model.lifted import PUT_OFF, put_off
from tests.protocol.model.rules import Rules
from tests.protocol.model.state import (
    State,
    append,
    cancelling,
    detached,
    end_turn,
    last_entry,
    member,
    move_open,
    new_row,
    poisoned,
    release,
    settle,
    to_ready,
    unanswered,
    wake,
    wakes,
)

LIFTED = ("li", "ln", "ld")
LONG = ("lo", "lx")


def commit(shard: State, rules: Rules, request: State, trace: list[State] | None = None) -> State:
    """Apply one commit; return OK or ALREADY with the turn, FENCED, DIVERGED, or AWAITS.

    With a `trace`, raise ValueError when a broken fence lets a commit through outside state running.
    """
    sid = request["sid"]
    head = shard["s"][sid]
    if not rules.state_fenced:
        head["state_of"] = request.get("state")
    refusal = fence(shard, rules, request)
    if refusal is not None:
        return refusal
    cancelled = cancelling(head)
    if request["ending"] == "finish" and head["awaiting"] > 0 and not cancelled and rules.finish_awaits:
        return {"code": "AWAITS"}
    if trace is not None and head["state"] != "running":
        raise ValueError(f"commit accepted in state {head['state']}, epoch {head['epoch']}, owner {head['owner']}")
    head["step"] += 1
    if proves(request):
        head["lost"] = 0
    head["state_of"] = request.get("state", head["state_of"])
    apply_calls(shard, rules, request, cancelled=cancelled)
    if request.get("low"):
        hide(head, request["low"])
    freed = end_step(shard, rules, request, cancelled=cancelled)
    if freed and shard["ready"]:
        shard["ingress"].append({"kind": "wake", "sid": shard["ready"][0], "id": f"w{shard['n']}"})
        shard["n"] += 1
    return answer(shard, sid, "OK", base=request["base"])


def hide(head: State, low: int) -> None:
    """Let a begin read from `low`, and remember where it read from before the turn's first summary."""
    store = head["tstore"]
    head["low_before"] = head["low_before"] or head["low"].get(store, 1)
    head["low"][store] = low


def proves(request: State) -> bool:
    """Tell whether a tool brought a real result: what was made up for one, or a mark, shows nothing of its worker."""
    outcomes = [entry["outcome"] for entry in request["append"] if entry["kind"] == "result"]
    outcomes += [outcome for _, outcome in request.get("settle") or []]
    return any(outcome in ("result", "error") for outcome in outcomes)


def apply_calls(shard: State, rules: Rules, request: State, *, cancelled: bool) -> None:
    """Write the commit's entries and move the rows it names."""
    sid = request["sid"]
    for entry in request["append"]:
        write(shard, rules, sid, entry)
    for call in request["parks"]:
        park_call(shard, rules, request, call)
    for call, kind in () if cancelled else request.get("waits") or ():
        wait_row(shard, sid, call, kind)
    if cancelled and request["parks"]:
        cancel_parked(shard, rules, sid, shard["s"][sid]["turn"], answered_only=True)
    settled: list[tuple[str, str]] = request.get("settle") or []
    for call, outcome in settled if rules.par_rows else ():
        settle(shard, call, outcome)
    mark_calls(shard, rules, request, cancelled=cancelled)


def fence(shard: State, rules: Rules, request: State) -> State | None:
    """Return the answer to a commit that must not be applied, or None."""
    sid, k = request["sid"], request["k"]
    head = shard["s"][sid]
    other = head["epoch"] != request["epoch"] or (rules.fence_owner and head["owner"] != request["owner"])
    if other or request["owner"] not in shard["workers"]:
        return {"code": "FENCED"}
    if rules.fence_state and head["state"] != "running":
        return answer(shard, sid, "ALREADY", base=0) if head["step"] == k else {"code": "FENCED"}
    if head["step"] == k:
        return answer(shard, sid, "ALREADY", base=request["base"])
    if head["step"] != k - 1:
        return {"code": "DIVERGED"}
    log = shard["log"][head["tstore"]]
    if request["last"] != last_entry(log) or (not rules.entry_seq and request["n"] != len(log)):
        return {"code": "DIVERGED", "conflict": True}
    return None


def write(shard: State, rules: Rules, sid: str, entry: State) -> None:
    """Append one entry of a commit, with the rows it declares or settles."""
    head = shard["s"][sid]
    if entry["kind"] == "assistant":
        append(shard, rules, head, {"kind": "assistant", "calls": [call for call, _ in entry["calls"]]})
        for call, kind in entry["calls"]:
            shard["calls"][call] = new_row(head, sid, kind)
            move_open(shard, shard["calls"][call], 1)
            if not rules.count_parked:
                head["awaiting"] += 1 if shard["calls"][call]["awaited"] else 0
    elif entry["kind"] == "result" and entry["outcome"] != "placeholder":
        # The row decides: a cancel or timeout that came first wins over the worker's result.
        settle(shard, entry["call"], entry["outcome"])
        append(shard, rules, head, {"kind": "result", "call": entry["call"], "outcome": shard["calls"][entry["call"]]["outcome"]})
    else:
        append(shard, rules, head, entry)


def wait_row(shard: State, sid: str, call: str, kind: str) -> None:
    """Hold the turn by a row that is no call."""
    head = shard["s"][sid]
    if call not in shard["calls"]:
        shard["calls"][call] = dict(new_row(head, sid, kind), state="parked", jobs=[], user="")
        head["awaiting"] += 1


def park_call(shard: State, rules: Rules, request: State, call: str) -> None:
    """Park a call that has no outcome yet, and count it if the turn awaits it."""
    head, row = shard["s"][request["sid"]], shard["calls"][call]
    if row["outcome"] is not None:
        return
    launchable = row["state"] in ("open", "started", "allowed")
    become(rules, row)
    if launchable and row["kind"] in LIFTED:
        offer_to_lane(shard, rules, head, call)
    if launchable and row["kind"] in PUT_OFF:
        row["relays"] = 0
        put_off(shard, rules, call, timed=row["kind"] == "po", left=rules.raw_parks)
    if row["kind"] in LONG and row["state"] == "started":
        row["demoted"] = True
        if rules.long_task:
            row["task"], row["tjob"] = request["owner"], 1
            shard["w"].setdefault(request["owner"], []).append(member(call))
    if row["demoted"]:
        row["state"] = "parked"
    elif launchable:
        row["state"] = "parked"
        head["awaiting"] += 1 if row["awaited"] and rules.count_parked else 0


def become(rules: Rules, row: State) -> None:
    """Let a call wait as what it is from now on: its body asks for approval first, or it was approved and is lifted."""
    if not rules.park_kind:
        return
    if row["kind"] == "pq" and row["state"] == "started":
        row["kind"], row["awaited"] = "ap", True
    elif row["kind"] == "al" and row["state"] == "allowed":
        row["kind"], row["awaited"] = "li", True


def offer_to_lane(shard: State, rules: Rules, head: State, call: str) -> None:
    """Put the park's record on the arq lane."""
    if rules.lane_parked:
        shard["relay"].append([call, shard["calls"][call]["relays"]])
        return
    # Without the rule the relay reads every tool/call record after its cursor, parked or not.
    declared = [c for entry in shard["log"][head["tstore"]] if entry["kind"] == "assistant" for c in entry["calls"]]
    for other in declared:
        row = shard["calls"][other]
        if row["kind"] in LIFTED and not row["relayed"]:
            row["relayed"] = True
            shard["relay"].append([other, 1])


def mark_calls(shard: State, rules: Rules, request: State, *, cancelled: bool) -> None:
    """Mark the next call STARTED (intent rides along), or take back the mark of one that was not run."""
    leave_open = rules.unstart and (cancelled or request.get("quantum"))
    starting: list[str] = [*(request.get("starts") or []), *filter(None, [request["start"]])]
    for call in () if leave_open else starting:
        shard["calls"][call]["state"] = "started"
    taken_back: list[str] = request.get("unstart") or []
    for call in taken_back if rules.unstart else ():
        row = shard["calls"][call]
        if row["state"] == "started" and row["outcome"] is None:
            row["state"] = "allowed" if row["decision"] == "allow" else "open"


def end_step(shard: State, rules: Rules, request: State, *, cancelled: bool) -> bool:
    """Apply the commit's ending; return True when it freed a slot."""
    sid = request["sid"]
    ending = request["ending"]
    if ending == "finish":
        return finish(shard, rules, request, cancelled=cancelled)
    if ending == "park":
        return park(shard, rules, sid, cancelled=cancelled)
    if ending == "yield":
        release(shard, sid)
        to_ready(shard, rules, sid)
        return True
    if request["claim"] and not (rules.cancel_no_claim and cancelled):
        claim(shard, rules, shard["s"][sid])
    return False


def finish(shard: State, rules: Rules, request: State, *, cancelled: bool) -> bool:
    """End the turn; go on with a new one under the same slot when something waits in inbox."""
    sid = request["sid"]
    head = shard["s"][sid]
    if request.get("closing"):
        close_calls(shard, rules, head)
    if cancelled and head["cancel"].get("strike"):
        strike(shard, rules, sid)  # also when the answer was on its way already: nobody asked for it any more
    stays = (rules.cancel_no_claim and cancelled) or (head["paused"] and rules.pause_gate)
    if wakes(head, head["tstore"]) and not stays:
        go_on(shard, rules, head, closing=bool(request.get("closing")))
        return False
    end_turn(shard, rules, head)
    release(shard, sid)
    head["state"] = "idle"
    wake(shard, rules, sid)
    return True


def go_on(shard: State, rules: Rules, head: State, *, closing: bool) -> None:
    """Open the next turn under the same epoch and slot, and claim."""
    if rules.new_turn:
        store = head["tstore"]
        end_turn(shard, rules, head)
        head["turns"] += 1
        head["turn"], head["tstore"], head["tver"] = head["turns"], store, shard["ver"].get(head["owner"], 0)
    elif closing:
        head["cancel"] = None
    claim(shard, rules, head)


def close_calls(shard: State, rules: Rules, head: State) -> None:
    """Pair every open call of a turn that ends early: a detached one with its outcome on the way gets the placeholder."""
    for call in unanswered(shard["log"][head["tstore"]]):
        row = shard["calls"][call]
        if detached(row) and row["outcome"] not in (None, "cancelled"):
            append(shard, rules, head, {"kind": "result", "call": call, "outcome": "placeholder"})
        else:
            settle(shard, call, "unknown" if poisoned(head) and row["state"] == "started" else "cancelled")
            append(shard, rules, head, {"kind": "result", "call": call, "outcome": row["outcome"]})


def park(shard: State, rules: Rules, sid: str, *, cancelled: bool) -> bool:
    """Leave the slot while something is awaited; go on when the answer, or a cancel, was faster."""
    head = shard["s"][sid]
    if head["awaiting"] > 0:
        overtake(shard, rules, sid, head["inbox"])
    if rules.park_cancel and cancelled:
        return False
    if head["awaiting"] == 0 and rules.park_zero:
        if not (rules.cancel_no_claim and cancelled):
            claim(shard, rules, head)
        return False
    release(shard, sid)
    head["state"] = "parked"
    return True
