"""What a worker does next, from nothing but what it has seen.

It plans one commit at a time, after performing the effect that the commit reports. A call is run only by the worker that marked it
STARTED; one that somebody else marked has an unknown fate. Plain and parallel calls wait for awaited calls declared before them.
"""

from typing import Any

from tests.protocol import model
from tests.protocol.actors.world import ASKS, FOLDS, LIFT, WAITS
from tests.protocol.model import Rules, State

Request = dict[str, Any]
LONG = ("lo", "lx")
PLAIN = ("tool", "par", "pq", *LONG)  # what runs here


def plan(env: State, rules: Rules, owner: str, sid: str, job: State) -> Request:
    """Return the next commit of this turn; counts effects in `env` and hands tokens out."""
    view, rows = job["view"], job["rows"]
    request = blank(rules, owner, sid, job)
    pending = model.unanswered(view)
    live = [call for call in pending if call not in job["parked"] and (rows[call]["outcome"] is None or model.detached(rows[call]))]
    if job["cancel"]:
        request.update(ending="finish", closing=True)
    elif job.get("drain") or job.get("quantum"):
        request.update(ending="yield", unstart=list(job["marks"]))
    elif live:
        plan_call(env, rules, job, request, pending, live)
    elif pending:
        request["ending"] = "park"
    else:
        ask_model(env, view, request)
    return request


def give_up(rules: Rules, owner: str, sid: str, job: State) -> Request:
    """Return the finish of an engine that forgets what its turn waits for."""
    request = blank(rules, owner, sid, job)
    request["ending"] = "finish"
    return request


def blank(rules: Rules, owner: str, sid: str, job: State) -> Request:
    """Return a commit that changes nothing yet: the fence, and what the worker has seen of the log."""
    view = job["view"]
    return {
        "sid": sid,
        "epoch": job["epoch"],
        "owner": owner,
        "k": job["step"] + 1,
        "base": model.last_entry(view) if rules.base_entry else last_record(view),
        "n": last_record(view),
        "last": model.last_entry(view),
        "append": [],
        "parks": [],
        "start": None,
        "starts": [],
        "settle": [],
        "unstart": None,
        "claim": False,
        "ending": "none",
        "state": job["step"] + 1,
    }


def last_record(view: list[State]) -> int:
    """Return the seq of the last record seen, events too."""
    return view[-1]["seq"] if view else 0


def plan_call(env: State, rules: Rules, job: State, request: Request, pending: list[str], live: list[str]) -> None:
    """Plan the first call that this worker can still move."""
    rows, call = job["rows"], live[0]
    row = rows[call]
    plain = row["kind"] in PLAIN
    waits = (rules.sequential and plain) or (rules.approved_waits and row["state"] == "allowed")
    before = pending[: pending.index(call)]
    if waits and any(other in job["parked"] for other in before):
        request["ending"] = "park"
    elif row["kind"] == "par":
        plan_parallel(env, job, request, pending, call)
    elif row["kind"] in LONG:
        run_long(env, rules, job, request, pending, live)
    elif row["kind"] == "pq":
        ask_first(env, rules, job, request, pending, live)
    elif row["kind"] == "tool" or (row["kind"] in ("ap", "ax") and row["state"] in ("allowed", "started")):
        if run_call(env, job, request, call):
            plan_rest(rules, job, request, pending, live)
    else:
        park_call(env, row, request, call)
        plan_rest(rules, job, request, pending, live)


def run_call(env: State, job: State, request: Request, call: str) -> bool:
    """Run a call this worker has marked, or plan only its mark; return True when the commit carries a result."""
    if call in job["marks"]:
        env["effects"][call] = env["effects"].get(call, 0) + 1
        request["append"].append({"kind": "result", "call": call, "outcome": "ok"})
    elif job["rows"][call]["state"] == "started":
        request["append"].append({"kind": "result", "call": call, "outcome": "unknown"})
    else:
        request["start"] = call
        return False
    return True


def run_long(env: State, rules: Rules, job: State, request: Request, pending: list[str], live: list[str]) -> None:
    """Start a call whose effect takes long, then let go of it: its worker tells the outcome later."""
    call = live[0]
    if call not in job["marks"]:
        if run_call(env, job, request, call):
            plan_rest(rules, job, request, pending, live)
        return
    env["effects"][call] = env["effects"].get(call, 0) + 1
    env["longs"][call] = request["owner"]
    request["parks"].append(call)
    request["append"].append({"kind": "result", "call": call, "outcome": "placeholder"})
    answered = [other for other in pending if other != call]
    if not answered:
        request["claim"] = True


def ask_first(env: State, rules: Rules, job: State, request: Request, pending: list[str], live: list[str]) -> None:
    """Start a call whose body asks for approval before it does anything, and let it wait for people."""
    call = live[0]
    if call not in job["marks"]:
        if run_call(env, job, request, call):
            plan_rest(rules, job, request, pending, live)
        return
    env["tokens"].setdefault(call, "out")
    request["parks"].append(call)
    plan_rest(rules, job, request, pending, live)


def park_call(env: State, row: State, request: Request, call: str) -> None:
    """Launch a call that waits for something outside, and park it; a detached one is answered by its placeholder."""
    fresh = row["state"] in ("open", "started") if model.detached(row) else row["outcome"] is None and row["state"] == "open"
    if fresh and row["kind"] not in LIFT:
        env["tokens"].setdefault(call, "out")
    request["parks"].append(call)
    if model.detached(row):
        request["append"].append({"kind": "result", "call": call, "outcome": "placeholder"})


def plan_rest(rules: Rules, job: State, request: Request, pending: list[str], live: list[str]) -> None:
    """Decide what follows the first call: start the next one, park, or claim because the batch is answered."""
    rows, call = job["rows"], live[0]
    awaited = bool(request["parks"]) and not model.detached(rows[call])
    if len(live) > 1:
        following = rows[live[1]]
        if rules.sequential and following["kind"] in PLAIN and (awaited or job["parked"]):
            request["ending"] = "park"
        elif following["kind"] == "tool" and following["state"] == "open":
            request["start"] = live[1]
        return
    answered = {entry.get("call") for entry in request["append"]}
    left = [other for other in pending if (other != call or awaited) and other not in answered]
    if left:
        request["ending"] = "park"
    else:
        request["claim"] = True


def plan_parallel(env: State, job: State, request: Request, pending: list[str], call: str) -> None:
    """One result of a parallel batch lands in its row; the last one appends all of them in source order."""
    rows = job["rows"]
    batch = neighbours(rows, pending, call)
    request["starts"] = [c for c in batch if rows[c]["state"] == "open" and rows[c]["outcome"] is None]
    if request["starts"]:
        return
    left = [c for c in batch if rows[c]["outcome"] is None]
    mine = [c for c in left if c in job["marks"]] or left
    done = mine[-1 if job.get("pick") else 0]
    outcome = "unknown"
    if done in job["marks"]:
        env["effects"][done] = env["effects"].get(done, 0) + 1
        outcome = "ok"
    if len(left) > 1:
        request["settle"] = [[done, outcome]]
        return
    request["append"] = [{"kind": "result", "call": c, "outcome": outcome if c == done else rows[c]["outcome"]} for c in batch]
    request["claim"] = len(batch) == len(pending)


def neighbours(rows: State, pending: list[str], call: str) -> list[str]:
    """Return the unbroken run of parallel calls around `call`."""
    first = last = pending.index(call)
    while first > 0 and rows[pending[first - 1]]["kind"] == "par":
        first -= 1
    while last < len(pending) and rows[pending[last]]["kind"] == "par":
        last += 1
    return pending[first:last]


def ask_model(env: State, view: list[State], request: Request) -> None:
    """Answer what is new since the last assistant entry: with calls, or in words, which finishes the turn."""
    last = max([i for i, entry in enumerate(view) if entry["kind"] == "assistant"], default=-1)
    new = [e for e in view[last + 1 :] if e["kind"] in ("user", "note", "result") and not e.get("struck")]
    if not new:
        request["ending"] = "finish"
        return
    if folds(env, view, new):
        fold(view, new, request)
        return
    waits = [
        [entry["mid"] + ".w", WAITS[env["does"][entry["mid"]]]]
        for entry in new
        if entry["kind"] == "user" and env["does"][entry["mid"]] in WAITS
    ]
    waits = [wait for wait in waits if wait[0] not in env["waited"]]
    if waits:
        request.update(waits=waits[:1], ending="park")
        return
    calls = [call for entry in new if entry["kind"] == "user" for call in calls_for(env, view, entry["mid"])]
    request["append"].append({"kind": "assistant", "calls": calls})
    if not calls:
        request["ending"] = "finish"
        return
    if calls[0][1] == "tool":
        request["start"] = calls[0][0]
    for call, kind in calls:
        if kind != "par":
            break
        request["starts"].append(call)


def folds(env: State, view: list[State], new: list[State]) -> bool:
    """Tell whether a message asks for a summary of what is older than all that is new, and there is something to sum up."""
    asked = any(entry["kind"] == "user" and env["does"][entry["mid"]] in FOLDS for entry in new)
    return asked and any(entry["seq"] < new[0]["seq"] for entry in model.visible(view))


def fold(view: list[State], new: list[State], request: Request) -> None:
    """Put a summary in the place of everything older than what is new."""
    seen = model.visible(view)
    old = [entry["seq"] for entry in seen if entry["seq"] < new[0]["seq"]]
    request["append"].append({"kind": "summary", "span": [old[0], old[-1]]})
    request["low"] = new[0]["seq"]


def calls_for(env: State, view: list[State], mid: str) -> list[list[str]]:
    """Return [call id, kind] of what the model asks for; a message that returns after a strike gets new ids."""
    again = sum(1 for entry in view if entry["kind"] == "user" and entry["mid"] == mid and entry.get("struck"))
    suffix = f"t{again}" if again else ""
    return [[f"{mid}.{i}{suffix}", kind] for i, kind in enumerate(ASKS[env["does"][mid]])]


def absorb(worker: State, sid: str, answer: State, request: Request | None) -> None:
    """Bring the worker's knowledge up to date with a reply; `request` is None after a begin."""
    jobs = worker["jobs"]
    job = jobs.get(sid)
    if answer["code"] == "FENCED" or (answer["code"] in ("OK", "ALREADY") and answer["ended"]):
        jobs.pop(sid, None)
        return
    if answer["code"] == "DIVERGED":
        jobs[sid] = {"epoch": job["epoch"], "phase": "taken"}
        return
    if answer["code"] == "AWAITS":
        job.update(phase="run", parked=[], req=None)
        return
    rows = answer["rows"]
    if request is None:
        view, marks = answer["entries"], []
        parked = [c for c, row in rows.items() if row["state"] == "parked" and not model.detached(row)]
        if not model.unanswered(view):
            parked = []
    else:
        view = [record for record in job["view"] if record["seq"] <= request["base"]] + answer["entries"]
        started = job["marks"] + ([request["start"]] if request["start"] else []) + request["starts"]
        marks = [c for c in started if rows.get(c, {}).get("state") == "started"]
        parked = [c for c in job["parked"] + request["parks"] if c in rows and rows[c]["state"] == "parked"]
    jobs[sid] = {
        "epoch": job["epoch"],
        "phase": "run",
        "view": view,
        "rows": rows,
        "step": answer["step"],
        "turn": answer["turn"],
        "cancel": answer["cancel"],
        "parked": parked,
        "marks": marks,
        "req": None,
        "drain": job.get("drain", False),
    }
