"""What must hold after every single action.

State and index memberships agree, awaiting equals the rows it counts, a log is gap-free and paired, input keeps its order, and an
effect that is not idempotent happens at most once.
"""

from tests.protocol import model
from tests.protocol.actors.logs import LogCheck
from tests.protocol.actors.world import fail
from tests.protocol.model import State


def check(shard: State, env: State) -> None:
    """Raise Violation for the first invariant that does not hold."""
    members = count_members(shard)
    check_tasks(shard, members)
    if len(shard["running"]) > shard["cap"]:
        fail(f"cap exceeded: {len(shard['running'])}")
    if len(shard["ready"]) != len(set(shard["ready"])):
        fail("twice in ready")
    for sid, head in shard["s"].items():
        check_indexes(shard, sid, head, members.get(sid, 0))
        check_calls(shard, sid, head)
        check_rest(shard, sid, head)
    for mid, job in shard["j"].items():
        if job["state"] == "succeeded" and job["open"]:
            fail(f"job {mid} done with open {job['open']}")
    for head in shard["s"].values():
        check_state(shard, head)
        check_folds(shard, head)
    check_causes(shard, env)
    check_strikes(shard, env)
    check_effects(shard, env)
    check_overtaken(shard, env)
    for store, log in shard["log"].items():
        LogCheck(shard, env, store).run(log)


def count_members(shard: State) -> dict[str, int]:
    """Return in how many w sets each session and lifted task is."""
    members: dict[str, int] = {}
    for owner, names in shard["w"].items():
        for name in names:
            members[name] = members.get(name, 0) + 1
            if name.startswith("c!") and shard["calls"].get(name[2:], {}).get("task") != owner:
                fail(f"w:{owner} holds {name} of {shard['calls'].get(name[2:], {}).get('task')}")
    return members


def check_tasks(shard: State, members: dict[str, int]) -> None:
    """A begun row is in exactly its owner's set."""
    for call, row in shard["calls"].items():
        count = members.get(model.member(call), 0)
        if (row["task"] is not None) != (count == 1):
            fail(f"task of {call} is {row['task']}, in {count} w sets")


def check_indexes(shard: State, sid: str, head: State, held: int) -> None:
    """State and memberships agree: assigned or running ⇔ a slot, running ⇔ one w set, ready ⇔ one flow."""
    state = head["state"]
    if (state in ("assigned", "running")) != (sid in shard["running"]):
        fail(f"{sid} state {state}, running member {sid in shard['running']}")
    if (state == "running") != (held == 1) or held > 1:
        fail(f"{sid} state {state}, in {held} w sets")
    if (state == "ready") != (sid in shard["ready"]):
        fail(f"{sid} state {state}, in ready {sid in shard['ready']}")


def check_calls(shard: State, sid: str, head: State) -> None:
    """Awaiting counts parked awaited rows; nobody takes a slot for nothing; one plain call is STARTED at a time."""
    rows = [row for row in shard["calls"].values() if row["sid"] == sid]
    waiting = sum(1 for row in rows if row["awaited"] and row["outcome"] is None and row["state"] == "parked")
    if waiting != head["awaiting"]:
        fail(f"{sid} awaiting {head['awaiting']}, rows {waiting}")
    if head["state"] == "ready":
        if head["paused"] and not head["cancel"]:
            fail(f"{sid} paused and in a flow")
        if not head["turn"] and not model.wakes(head) and not model.next_due(head):
            fail(f"{sid} ready with nothing to do")
    if sum(1 for row in rows if row["state"] == "started" and row["kind"] != "par" and not row["answered"]) > 1:
        fail(f"{sid} has two STARTED calls")


def check_overtaken(shard: State, env: State) -> None:
    """A parked call gives way only to a message that joins its turn, never to one that waits for its own."""
    if env["cjobs"]:
        return  # the message may be cancelled after it did its work
    for call, row in shard["calls"].items():
        if row["kind"] in model.WAKERS and (row["demoted"] or row["outcome"]):
            fail(f"the wait {call} gave way to a message")
    for call, row in shard["calls"].items():
        if row["answered"] or not (row["demoted"] or row["outcome"] == "superseded"):
            continue
        wrote = [item for item in shard["s"][row["sid"]]["inbox"] if item["kind"] == "user"]
        if not (any(item["asker"] for item in wrote) if row["demoted"] else model.gives_way(row, wrote)):
            fail(f"call {call} gave way to a message that does not join its turn")


def check_rest(shard: State, sid: str, head: State) -> None:
    """A session that is in no flow has nothing to do, or somebody who will wake it."""
    state = head["state"]
    if state == "idle" and not head["paused"]:
        check_idle(shard, sid, head)
    for item in head["next"]:
        if item.get("collect") and item["due"] > item["first"] + model.MAX_COLLECT:
            fail(f"collect window of {sid} longer than max")
    if state == "idle" and (head["turn"] or head["awaiting"]):
        fail(f"{sid} idle with turn {head['turn']} awaiting {head['awaiting']}")
    if state == "parked" and not head["paused"]:
        check_parked(shard, sid, head)
    if len({item["store"] for item in head["inbox"]}) > 1:
        fail(f"{sid} inbox mixes stores")


def check_parked(shard: State, sid: str, head: State) -> None:
    """Parked means that something is awaited, or that a wake is on its way."""
    if head["cancel"]:
        fail(f"{sid} parked under a cancel")
    if head["awaiting"] == 0 and not any(event["sid"] == sid for event in shard["ingress"]):
        fail(f"{sid} parked, awaiting 0, no wake on its way")


def check_idle(shard: State, sid: str, head: State) -> None:
    """Idle means nothing that wakes in inbox, nothing undelayed in next, and a deadline for what is delayed."""
    if model.wakes(head):
        fail(f"{sid} idle with waking inbox")
    if any(item["wake"] and not item.get("due") for item in head["next"]):
        fail(f"{sid} idle with an undelayed item in next")
    delayed = model.next_due(head) or any(item.get("due") for item in head["next"])
    if delayed and not any(name.split("|")[0] == sid for name in shard["deadlines"]):
        fail(f"{sid} idle with due next")


def check_state(shard: State, head: State) -> None:
    """A turn's state is what its last commit left, and nothing when it has made none. Each commit of a worker here sets it."""
    state, turn = head["state_of"], head["turn"]
    if not turn and state is not None:
        fail(f"state {state} outlives its turn")
    if turn and state not in (None, head["step"]):
        fail(f"state {state} of turn {turn} is not that of its commit {head['step']}")
    said = turn and any(entry["kind"] == "assistant" and entry["turn"] == turn for entry in shard["log"][head["tstore"]])
    if said and state is None:
        fail(f"the state of turn {turn} is gone")


def check_folds(shard: State, head: State) -> None:
    """Who begins sees all that is seen; what a strike took is in no summary that stands."""
    for store, low in head["low"].items():
        log = shard["log"][store]
        if model.visible(log[low - 1 :]) != model.visible(log):
            fail(f"a begin from {low} on misses entries of {store}")
        struck = {entry["turn"] for entry in log if entry.get("struck")}
        for entry in log:
            if entry["kind"] == "summary" and not entry.get("struck") and entry["turn"] in struck:
                fail(f"the summary {entry['seq']} of a struck turn stands")


def check_causes(shard: State, env: State) -> None:
    """A call is cancelled by the cancel of its own turn; a task that keeps dying is given up."""
    by_job = any(event["kind"] == "canceljob" for queue in env["plan"] for event in queue)
    for call, row in shard["calls"].items():
        exact = not env["rewound"] and not by_job
        if exact and row["outcome"] == "cancelled" and f"{row['sid']}/{row['turn']}" not in [*env["cancels"], *shard["poisoned"]]:
            fail(f"call {call} of turn {row['turn']} cancelled by the cancel of another turn")
        if row["kind"] == "lx" and row["outcome"] == "unknown" and row["state"] == "parked":
            fail(f"{call} ends unknown although it may be repeated")
        if row["tries"] - 1 > env["crashed"] and not env["rewound"]:
            fail(f"{call} counts {row['tries'] - 1} deaths of {env['crashed']}")
        if row["tries"] > model.TRIES:
            fail(f"task of {call} relayed after {row['tries'] - 1} deaths")


def check_strikes(shard: State, env: State) -> None:
    """A rollback that was accepted for the open turn is never forgotten."""
    for sid, head in shard["s"].items():
        if head["cancel"] and f"{sid}/{head['turn']}" in env["rollbacks"] and not head["cancel"].get("strike"):
            fail(f"the rollback of {sid} lost its strike")


def check_effects(shard: State, env: State) -> None:
    """No effect happens twice, lifted idempotent ones apart; a failover that loses writes is excused."""
    for call, count in env["effects"].items():
        repeatable = call in shard["calls"] and shard["calls"][call]["kind"] in ("li", "ld", *model.PUT_OFF)
        if count > 1 and not env["rewound"] and not repeatable:
            fail(f"effect {call} ran {count} times")
