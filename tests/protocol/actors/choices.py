"""What could happen next in a world.

Steps of healthy actors are always possible; faults only while the budget lasts. The order is fixed: seeds index into it.
"""

from tests.protocol import model
from tests.protocol.actors.world import LIFT, Action, lifter_id, queued, worker_id
from tests.protocol.model import State

FAULTY = frozenset(
    (
        *("arq_rerun", "lbegin_lost", "lcrash", "lexpel", "relay_twice", "begin_lost", "commit_lost"),
        *("crash", "expel", "timeout", "overdue", "rewind", "drain", "hasty"),
    )
)


def enabled(shard: State, env: State) -> list[Action]:
    """Return every action that can happen now."""
    out: list[Action] = [("accept", i) for i, queue in enumerate(env["plan"]) if env["pos"][i] < len(queue)]
    if shard["ingress"] or (shard["ready"] and len(shard["running"]) < shard["cap"]):
        out.append(("dispatch",))
    for name in env["workers"]:
        worker_choices(shard, env, name, out)
    out += [("zombie", i) for i in range(len(env["zombies"]))]
    lifted_choices(shard, env, out)
    time_choices(shard, out)
    expiry_choices(shard, env, out)
    token_choices(shard, env, out)
    session_choices(shard, env, out)
    if may(env, "rewind"):
        out += [("rewind", k) for k in range(1, len(env["hist"]) + 1)]
    return out


def may(env: State, fault: str) -> bool:
    """Tell whether this fault can still happen."""
    return env["budget"] > 0 and fault in env["faults"]


def worker_choices(shard: State, env: State, name: str, out: list[Action]) -> None:
    """Add what worker `name` can do, and what can befall it."""
    worker, owner = env["workers"][name], worker_id(env, name)
    if not worker["alive"]:
        out.append(("restart", name))
        return
    jobs = worker["jobs"]
    if any(x[2] <= worker["ver"] for x in shard["turns"]) and len(jobs) < env["capacity"] and owner in shard["workers"]:
        out.append(("take", name))
    for sid in jobs:
        job_choices(shard, env, name, sid, out)
    mine = shard["w"].get(owner, [])
    strangers = any(x not in jobs and (not x.startswith("c!") or x[2:] not in env["longs"]) for x in mine)
    gone = any(job["phase"] != "taken" and sid not in mine for sid, job in jobs.items())
    if owner not in shard["workers"] or strangers or gone:
        out.append(("beat", name))
    if may(env, "crash") and jobs:
        out.append(("crash", name))
    if may(env, "expel") and jobs and owner in shard["workers"]:
        out.append(("expel", name))


def job_choices(shard: State, env: State, name: str, sid: str, out: list[Action]) -> None:
    """Add the next step of one turn on a worker."""
    job = env["workers"][name]["jobs"][sid]
    if job["phase"] == "taken":
        out.append(("begin", name, sid))
        if may(env, "lose"):
            out.append(("begin_lost", name, sid))
    elif job["phase"] == "run":
        run_choices(shard, env, name, sid, out)
    elif job["phase"] == "req":
        out.append(("commit", name, sid))
        if may(env, "lose"):
            out.append(("commit_lost", name, sid))


def run_choices(shard: State, env: State, name: str, sid: str, out: list[Action]) -> None:
    """Add what a worker that knows its turn can do next."""
    job = env["workers"][name]["jobs"][sid]
    out.append(("effect", name, sid))
    if sum(1 for call in job["marks"] if is_running(job, call)) > 1:
        out.append(("effect_last", name, sid))
    if may(env, "drain") and not job.get("drain"):
        out.append(("drain", name, sid))
    if may(env, "hasty") and job["parked"] and shard["s"][sid]["awaiting"] > 0:
        out.append(("hasty", name, sid))


def is_running(job: State, call: str) -> bool:
    """Tell whether the call is one of a parallel batch that has no result yet."""
    row = job["rows"].get(call, {})
    return row.get("kind") == "par" and row["outcome"] is None


def lifted_choices(shard: State, env: State, out: list[Action]) -> None:
    """Add what the relay, arq and the lifted workers can do."""
    if shard["relay"]:
        out.append(("relay",))
        if may(env, "lose"):
            out.append(("relay_twice",))
    for name in env["lifters"]:
        lifter_choices(shard, env, name, out)
    for job, owner in env["arq"].items():
        if owner and not held(env, job, owner) and (may(env, "crash") or call_of(job) not in shard["calls"]):
            out.append(("arq_rerun", job))
    for call, row in shard["calls"].items():
        if row["kind"] in (*LIFT, *model.READ) and row["state"] == "parked" and row["outcome"] is None:
            row_choices(shard, env, call, out)


def lifter_choices(shard: State, env: State, name: str, out: list[Action]) -> None:
    """Add what lifted worker `name` can do, and what can befall it."""
    lifter, owner = env["lifters"][name], lifter_id(env, name)
    if not lifter["alive"]:
        out.append(("lrestart", name))
        return
    tasks = lifter["tasks"]
    if owner in shard["workers"] and len(tasks) < 2 and any(holder == "" for holder in env["arq"].values()):
        out.append(("lpick", name))
    for job, phase in tasks.items():
        out.append(({"picked": "lbegin", "begun": "lrun", "done": "lout"}[phase], name, job))
        if phase == "picked" and may(env, "lose"):
            out.append(("lbegin_lost", name, job))
    mine = [job_of(shard, x) for x in shard["w"].get(owner, [])]
    if owner not in shard["workers"] or any(not any(call_of(task) == call_of(job) for task in tasks) for job in mine):
        out.append(("lbeat", name))
    if tasks:
        lifter_faults(env, name, out, leased=owner in shard["workers"])


def lifter_faults(env: State, name: str, out: list[Action], *, leased: bool) -> None:
    """Add the deaths, real and declared, of a lifted worker that has tasks."""
    if may(env, "crash") or may(env, "lcrash"):
        out.append(("lcrash", name))
    if leased and (may(env, "expel") or may(env, "lexpel")):
        out.append(("lexpel", name))


def row_choices(shard: State, env: State, call: str, out: list[Action]) -> None:
    """Add what time does to a parked lifted row."""
    row = shard["calls"][call]
    relaying = any(x[0] == call for x in shard["relay"])
    if may(env, "timeout") and row["kind"] in LIFT:
        out.append(("timeout", call))
    if row["off"]:
        out += [("look", call)] if row["off"] == "time" else []
        return
    if not row["task"] and [call, row["relays"]] not in shard["relay"] and lost_by_arq(env, f"{call}:{row['relays']}"):
        out.append(("again", call))
    elif env["rewound"] and not any(call_of(job) == call for job in env["arq"]) and not relaying and not row["task"]:
        out.append(("deadline", call))


def call_of(job: str) -> str:
    """Return the call that arq job `<call>:<relay>` is for."""
    return job.split(":")[0]


def job_of(shard: State, name: str) -> str:
    """Return the arq job that began the row behind a member of a w set."""
    call = name[2:]
    return f"{call}:{shard['calls'][call]['tjob']}" if call in shard["calls"] else name


def held(env: State, job: str, owner: str) -> bool:
    """Tell whether the incarnation that picked the job still lives and has it."""
    return any(lifter_id(env, name) == owner and lifter["alive"] and job in lifter["tasks"] for name, lifter in env["lifters"].items())


def lost_by_arq(env: State, job: str) -> bool:
    """Tell whether arq no longer has the job, or has it with a worker that is gone (its own timeout is hours)."""
    owner = env["arq"].get(job)
    return owner is None or bool(owner and not held(env, job, owner))


def time_choices(shard: State, out: list[Action]) -> None:
    """Add due deadlines, the clock while anything is delayed, and the resume of paused sessions."""
    out += [("due", name) for name, due in shard["deadlines"].items() if due <= shard["now"]]
    if any(item.get("due", 0) > shard["now"] for head in shard["s"].values() for item in head["next"]):
        out.append(("clock",))
    for sid, head in shard["s"].items():
        if head["paused"] and not any(event["kind"] == "resume" and event["sid"] == sid for event in shard["ingress"]):
            out.append(("resume", sid))


def expiry_choices(shard: State, env: State, out: list[Action]) -> None:
    """Add the leases that run out, and the dead workers whose sets are not empty yet."""
    alive = {worker_id(env, name) for name, worker in env["workers"].items() if worker["alive"]}
    alive |= {lifter_id(env, name) for name, lifter in env["lifters"].items() if lifter["alive"]}
    out += [("tick_dead", owner) for owner in shard["workers"] if owner not in alive]
    out += [("walk", owner) for owner in shard["dying"]]


def token_choices(shard: State, env: State, out: list[Action]) -> None:
    """Add answers from outside to calls whose token is out, and their deadlines."""
    for call, state in env["tokens"].items():
        row = shard["calls"].get(call)
        if state not in ("out", "half") or row is None or row["state"] not in ("parked", "open", "started"):
            continue
        if row["kind"] in (*model.APPROVALS, "pq") and row["state"] != "parked":
            continue
        out.append(("vendor", call))
        if may(env, "timeout") and row["state"] == "parked" and row["outcome"] is None:
            out.append(("timeout", call))
    out += [("fire", call) for call, row in shard["calls"].items() if row["kind"] in model.WAKERS and row["state"] == "parked"]
    out += [("long", call) for call in env["longs"] if shard["calls"].get(call, {}).get("state") == "parked"]
    if env["rewound"]:
        for call, row in shard["calls"].items():
            if row["state"] == "parked" and row["outcome"] is None and env["tokens"].get(call) == "done":
                out.append(("deadline", call))


def session_choices(shard: State, env: State, out: list[Action]) -> None:
    """Add begin-by of assignments nobody began, and overdue cancels."""
    for sid, head in shard["s"].items():
        if head["state"] == "assigned" and (may(env, "beginby") or not in_good_hands(shard, env, sid)):
            out.append(("beginby", sid))
        if may(env, "overdue") and head["cancel"] and head["state"] == "running":
            out.append(("overdue", sid))


def in_good_hands(shard: State, env: State, sid: str) -> bool:
    """Tell whether the assignment lies in its list, or with a live worker that is about to begin it."""
    epoch = shard["s"][sid]["epoch"]
    taken = any(worker["alive"] and worker["jobs"].get(sid, {}).get("epoch") == epoch for worker in env["workers"].values())
    return taken or queued(shard, sid)
