"""How one action changes a world.

An action is a tuple: its name, then whom it concerns. Every script call happens here; each is followed by the invariants. An
exception inside a script is a violation, too: Lua has no rollback.
"""

from collections.abc import Callable

from tests.protocol import model
from tests.protocol.actors import lifters
from tests.protocol.actors.choices import FAULTY, in_good_hands
from tests.protocol.actors.engine import absorb, give_up, plan
from tests.protocol.actors.invariants import check
from tests.protocol.actors.world import ANSWERS, Action, Violation, copy, fail, worker_id
from tests.protocol.model import Rules, State

Perform = Callable[[State, State, Rules, Action], None]


def act(shard: State, env: State, rules: Rules, action: Action) -> None:
    """Perform the action in place and check every invariant; raise Violation if one breaks."""
    try:
        if env["keep"] and action[0] in WRITES:
            env["hist"] = ([copy(shard)] + env["hist"])[: env["keep"]]
        if action[0] in FAULTY or (action[0] == "beginby" and in_good_hands(shard, env, action[1])):
            env["budget"] -= 1
        PERFORM[action[0]](shard, env, rules, action)
        check(shard, env)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Violation(f"script error {error!r}") from error


# Clients, the dispatcher, time


def do_accept(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A client sends the next event of its plan."""
    client = action[1]
    event = dict(env["plan"][client][env["pos"][client]])
    env["pos"][client] += 1
    env["n"] += 1
    event["n"] = env["n"]
    if event["kind"] == "notice":
        event["text"] = env["n"]
    queued = doomed(shard, event)
    if model.accept(shard, rules, event)["code"] == 202:
        env["never"] += queued
    if event["kind"] == "user":
        env["accepted"].append(event["mid"])
        env["order"][event["mid"]] = env["n"]


def doomed(shard: State, event: State) -> list[str]:
    """Return the messages that may never start once this event is accepted."""
    if event["kind"] == "canceljob":
        return [event["mid"]] if shard["j"].get(event["mid"], {}).get("state") == "queued" else []
    return model.queued(shard, event["sid"]) if event.get("all") else []


def do_dispatch(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A dispatcher drains ingress; remember which messages asked for a cancel, they must not join that turn."""
    before = {sid: bool(head["cancel"]) for sid, head in shard["s"].items()}
    events = list(shard["ingress"])
    model.dispatch(shard, rules)
    for sid, head in shard["s"].items():
        if head["cancel"] and head["cancel"].get("strike") and f"{sid}/{head['turn']}" not in env["rollbacks"]:
            env["rollbacks"].append(f"{sid}/{head['turn']}")
        if head["cancel"] and not before[sid]:
            asked = [e["mid"] for e in events if e["kind"] == "user" and e["sid"] == sid and e["mode"] in ("interrupt", "rollback")]
            env["cancels"].setdefault(f"{sid}/{head['turn']}", asked)


def do_clock(shard: State, env: State, rules: Rules, action: Action) -> None:
    """Time passes."""
    shard["now"] += 1
    for head in shard["s"].values():
        head["now"] = shard["now"]


def do_resume(shard: State, env: State, rules: Rules, action: Action) -> None:
    """Somebody resumes a paused session."""
    env["n"] += 1
    model.accept(shard, rules, {"id": f"r{env['n']}", "kind": "resume", "sid": action[1], "n": env["n"]})


def do_vendor(shard: State, env: State, rules: Rules, action: Action) -> None:
    """The outside answers: a decision for an approval, a real result for anything else."""
    call = action[1]
    env["n"] += 1
    if shard["calls"][call]["kind"] in model.READ:
        value = ANSWERS[env["tokens"][call] == "half"]
        env["tokens"][call] = "half" if value == ANSWERS[0] else "done"
        model.accept(shard, rules, {"id": f"v{call}{value}", "kind": "raw", "call": call, "value": value})
        return
    env["tokens"][call] = "done"
    approval = shard["calls"][call]["kind"] in model.APPROVALS
    kind, value = ("decision", env["approve"]) if approval else ("outcome", "real")
    model.accept(shard, rules, {"id": "v" + call, "kind": kind, "call": call, "value": value, "n": env["n"]})


def do_rewind(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A failover loses the last writes; the clock and what the actors know do not go back."""
    old = env["hist"][action[1] - 1]
    env["hist"] = env["hist"][action[1] :]
    now = shard["now"]
    shard.clear()
    shard.update(copy(old))
    shard["now"] = now
    for head in shard["s"].values():
        head["now"] = now
    env["rewound"] += 1
    env["cancels"], env["rollbacks"], env["never"] = {}, [], []
    env["lost"] += [mid for mid in env["accepted"] if mid not in shard["j"] and mid not in env["lost"]]


def tick(script: Callable[[State, Rules, str], None]) -> Perform:
    """Return the action that calls one maintenance script on one name."""

    def perform(shard: State, env: State, rules: Rules, action: Action) -> None:
        script(shard, rules, action[1])

    return perform


def do_fire(shard: State, env: State, rules: Rules, action: Action) -> None:
    """The time of a row that only wakes has come."""
    env["waited"].append(action[1])
    model.tick_deadline(shard, rules, action[1])


# Workers


def do_take(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A worker takes the first assignment that it may serve."""
    worker = env["workers"][action[1]]
    i = next(i for i, assignment in enumerate(shard["turns"]) if assignment[2] <= worker["ver"])
    sid, epoch, _ = shard["turns"].pop(i)
    if sid not in worker["jobs"] or worker["jobs"][sid]["epoch"] < epoch:
        worker["jobs"][sid] = {"epoch": epoch, "phase": "taken"}


def do_begin(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A worker begins what it took; after a lost reply only beat's strangers can heal it."""
    name, sid = action[1], action[2]
    worker, head = env["workers"][name], shard["s"][sid]
    paused = head["state"] == "assigned" and head["paused"] and not head["cancel"]
    answer = model.begin(shard, rules, sid, worker["jobs"][sid]["epoch"], worker_id(env, name))
    if paused and answer["code"] == "OK":
        fail(f"{sid} began while paused")
    if action[0] == "begin":
        absorb(worker, sid, answer, None)
    else:
        worker["jobs"].pop(sid)


def do_effect(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A worker performs the next effect of a turn and has its commit ready."""
    name, sid = action[1], action[2]
    job = env["workers"][name]["jobs"][sid]
    job["pick"] = action[0] == "effect_last"
    job["req"] = plan(env, rules, worker_id(env, name), sid, job)
    job["phase"] = "req"


def do_commit(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A worker commits; after a lost reply it will send the same commit again."""
    worker, sid = env["workers"][action[1]], action[2]
    request, head = worker["jobs"][sid]["req"], shard["s"][sid]
    if request["ending"] == "finish" and not request.get("closing") and not head["cancel"] and head["step"] == request["k"] - 1:
        answered = {mid for mid in head["jobs"] if shard["j"][mid]["open"] == 0}
        env["replied"] = sorted(set(env["replied"]) | answered)
    answer = send_commit(shard, rules, request)
    if action[0] == "commit":
        absorb(worker, sid, answer, request)


def send_commit(shard: State, rules: Rules, request: State) -> State:
    """Commit; only the holder of a running turn may ever get through."""
    head = shard["s"][request["sid"]]
    state, owner = head["state"], head["owner"]
    answer = model.commit(shard, rules, request, [])
    if answer["code"] == "OK" and (state, owner) != ("running", request["owner"]):
        fail(f"commit of {request['owner']} accepted in state {state} of {owner}")
    return answer


def do_hasty(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A worker with a faulty engine finishes a turn that still waits."""
    worker, sid = env["workers"][action[1]], action[2]
    request = give_up(rules, worker_id(env, action[1]), sid, worker["jobs"][sid])
    absorb(worker, sid, send_commit(shard, rules, request), request)


def do_zombie(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A request of a worker that is gone arrives after all."""
    request = env["zombies"].pop(action[1])
    if request.get("begin"):
        model.begin(shard, rules, request["sid"], request["epoch"], request["owner"])
    else:
        send_commit(shard, rules, request)


def do_long(shard: State, env: State, rules: Rules, action: Action) -> None:
    """An effect that went on after its call was let go of comes to its end, and its worker says so."""
    call = action[1]
    owner = env["longs"].pop(call)
    env["n"] += 1
    model.accept(shard, rules, {"id": "L" + call, "kind": "outcome", "call": call, "value": "real", "n": env["n"], "owner": owner})


def do_drain(shard: State, env: State, rules: Rules, action: Action) -> None:
    """SIGTERM: the turn yields at its next step."""
    env["workers"][action[1]]["jobs"][action[2]]["drain"] = True


def do_beat(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A supervisor beats: takes a new incarnation when lost, drops what it lost, begins strangers again."""
    name = action[1]
    worker = env["workers"][name]
    running = [sid for sid, job in worker["jobs"].items() if job["phase"] != "taken"]
    running += [model.member(call) for call in env["longs"]]
    answer = model.beat(shard, rules, worker_id(env, name), running)
    if answer["code"] == "LOST":
        leave_requests(env, name)
        reborn(shard, env, name)
        return
    for sid in answer["lost"]:
        if sid.startswith("c!"):
            continue
        leave_request(env, name, sid)
        worker["jobs"].pop(sid, None)
    for member in answer["strangers"]:
        if member.startswith("c!"):
            disown(shard, env, rules, member[2:], worker_id(env, name))
    for sid in answer["strangers"]:
        if sid not in worker["jobs"] and not sid.startswith("c!"):
            worker["jobs"][sid] = {"epoch": shard["s"][sid]["epoch"], "phase": "taken"}


def disown(shard: State, env: State, rules: Rules, call: str, owner: str) -> None:
    """A worker is told of a call whose effect it does not run (any more): it hands it on, or says that nobody knows."""
    env["n"] += 1
    job = shard["calls"][call]["tjob"]
    said = model.accept(shard, rules, {"kind": "later", "call": call, "owner": owner, "job": job, "timed": False, "now": True})
    if said["code"] != 202:
        event = {"id": f"u{env['n']}", "kind": "outcome", "call": call, "value": "unknown", "n": env["n"], "owner": owner}
        model.accept(shard, rules, event)


def do_crash(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A worker dies; what it had on the wire may still arrive."""
    env["workers"][action[1]]["alive"] = False
    env["longs"] = {call: owner for call, owner in env["longs"].items() if owner != worker_id(env, action[1])}
    leave_requests(env, action[1])
    env["crashed"] += 1


def do_expel(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A live worker is declared dead: it was frozen for longer than its lease."""
    env["crashed"] += 1
    model.tick_dead(shard, rules, worker_id(env, action[1]))


def do_restart(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A worker starts again, under a new incarnation."""
    reborn(shard, env, action[1])


def reborn(shard: State, env: State, name: str) -> None:
    """Register a new incarnation of the worker."""
    worker = env["workers"][name]
    env["longs"] = {call: owner for call, owner in env["longs"].items() if owner != worker_id(env, name)}
    worker["alive"] = True
    worker["inc"] += 1
    model.register(shard, worker_id(env, name), env["capacity"], worker["ver"])


def leave_requests(env: State, name: str) -> None:
    """Let go of every turn of a worker."""
    for sid in env["workers"][name]["jobs"]:
        leave_request(env, name, sid)
    env["workers"][name]["jobs"] = {}


def leave_request(env: State, name: str, sid: str) -> None:
    """Keep a request on the wire when its sender dies or lets go: it may still arrive, any time later."""
    job = env["workers"][name]["jobs"][sid]
    if job["phase"] == "req":
        env["zombies"].append(job["req"])
    elif job["phase"] == "taken":
        env["zombies"].append({"begin": True, "sid": sid, "epoch": job["epoch"], "owner": worker_id(env, name)})


PERFORM: dict[str, Perform] = {
    "accept": do_accept,
    "dispatch": do_dispatch,
    "clock": do_clock,
    "resume": do_resume,
    "vendor": do_vendor,
    "rewind": do_rewind,
    "due": tick(model.tick_due),
    "fire": do_fire,
    "long": do_long,
    "timeout": tick(model.tick_deadline),
    "deadline": tick(model.tick_deadline),
    "beginby": tick(model.tick_beginby),
    "overdue": tick(model.tick_cancel),
    "tick_dead": tick(model.tick_dead),
    "walk": tick(model.tick_dead),
    "take": do_take,
    "begin": do_begin,
    "begin_lost": do_begin,
    "effect": do_effect,
    "effect_last": do_effect,
    "commit": do_commit,
    "commit_lost": do_commit,
    "hasty": do_hasty,
    "zombie": do_zombie,
    "drain": do_drain,
    "beat": do_beat,
    "crash": do_crash,
    "expel": do_expel,
    "restart": do_restart,
    **lifters.PERFORM,
}
# What changes the shard, so that a failover can lose it.
WRITES = frozenset(
    (
        *("accept", "dispatch", "due", "resume", "vendor", "timeout", "deadline", "beginby", "overdue", "tick_dead", "walk"),
        *(
            "take",
            "begin",
            "begin_lost",
            "commit",
            "commit_lost",
            "hasty",
            "beat",
            "expel",
            "restart",
            "zombie",
            "relay",
            "lbegin",
            "lout",
            "fire",
            "long",
        ),
    )
)
