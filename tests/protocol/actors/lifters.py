"""How the relay, arq and lifted workers move.

arq holds jobs named `<call>:<relay>`: "" in its queue, an owner once picked, absent once done or lost. It refuses an id it holds.
"""

from collections.abc import Callable

from tests.protocol import model
from tests.protocol.actors.choices import call_of, job_of
from tests.protocol.actors.world import ANSWERS, Action, fail, lifter_id
from tests.protocol.model import Rules, State


def do_relay(shard: State, env: State, rules: Rules, action: Action) -> None:
    """The relay enqueues the first lane item; relay_twice is the enqueue whose `sent` was lost."""
    call, relay = shard["relay"][0]
    env["arq"].setdefault(f"{call}:{relay}", "")
    if action[0] == "relay":
        shard["relay"].pop(0)


def do_look(shard: State, env: State, rules: Rules, action: Action) -> None:
    """The time has come at which a call is to be looked at again."""
    model.tick_relay(shard, rules, action[1])


def do_again(shard: State, env: State, rules: Rules, action: Action) -> None:
    """Tick relays a parked row that nobody has begun."""
    model.tick_relay(shard, rules, action[1])


def do_rerun(shard: State, env: State, rules: Rules, action: Action) -> None:
    """arq gives the job of a dead worker to the queue again, after its own timeout."""
    env["arq"][action[1]] = ""


def do_pick(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A lifted worker takes a job from arq's queue."""
    job = next(job for job, holder in env["arq"].items() if holder == "")
    env["arq"][job] = lifter_id(env, action[1])
    env["lifters"][action[1]]["tasks"][job] = "picked"


def do_begin(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A lifted task begins its row; refused, or with its reply lost, it ends at once."""
    name, job = action[1], action[2]
    call, relay = job.split(":")
    row = shard["calls"].get(call)
    early = row is not None and row["off"] is not None and row["task"] is None
    came = row["raws"][0] if row is not None and row["raws"] else None
    answer = model.begin_row(shard, rules, call, int(relay), lifter_id(env, name))
    if early and answer == "OK":
        fail(f"{call} was taken before its time")
    if action[0] == "lbegin" and answer in ("OK", "ALREADY"):
        env["came"][job] = came if row and row["mode"] == "resolve" else row["mode"] if row else None
        env["lifters"][name]["tasks"][job] = "begun"
    else:
        end_task(env, name, job)


def do_run(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A lifted task does its work."""
    call = call_of(action[2])
    env["effects"][call] = env["effects"].get(call, 0) + 1
    env["lifters"][action[1]]["tasks"][action[2]] = "done"


def do_outcome(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A lifted task reports its outcome."""
    name, job = action[1], action[2]
    call, came = call_of(job), env["came"].get(job)
    env["n"] += 1
    if came == ANSWERS[0] or (came == "poll" and env["looks"].get(call, 0) == 0):
        env["looks"][call] = env["looks"].get(call, 0) + (came == "poll")
        owner, number = lifter_id(env, name), int(job.split(":")[1])
        model.accept(shard, rules, {"kind": "later", "call": call, "owner": owner, "job": number, "timed": came == "poll"})
        end_task(env, name, job)
        return
    event = {"id": "L" + job, "kind": "outcome", "call": call_of(job), "value": "real", "n": env["n"], "owner": lifter_id(env, name)}
    model.accept(shard, rules, event)
    end_task(env, name, job)


def end_task(env: State, name: str, job: str) -> None:
    """The task is over; arq forgets the job (keep_result is 0)."""
    env["lifters"][name]["tasks"].pop(job)
    env["came"].pop(job, None)
    env["arq"].pop(job, None)


def do_crash(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A lifted worker dies."""
    lifter = env["lifters"][action[1]]
    lifter["alive"], lifter["tasks"] = False, {}
    env["crashed"] += 1


def do_expel(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A live lifted worker is declared dead."""
    env["crashed"] += 1
    model.tick_dead(shard, rules, lifter_id(env, action[1]))


def do_restart(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A lifted worker starts again, under a new incarnation."""
    lifter = env["lifters"][action[1]]
    lifter["alive"], lifter["tasks"] = True, {}
    lifter["inc"] += 1
    model.register(shard, lifter_id(env, action[1]), 0)


def do_beat(shard: State, env: State, rules: Rules, action: Action) -> None:
    """A lifted worker beats: a new incarnation when lost, else rows it is said to run and does not are begun again."""
    name = action[1]
    owner, tasks = lifter_id(env, name), env["lifters"][name]["tasks"]
    if owner not in shard["workers"]:
        do_restart(shard, env, rules, action)
        return
    for member in shard["w"].get(owner, []):
        if not any(call_of(task) == member[2:] for task in tasks):
            job = job_of(shard, member)
            tasks[job] = "picked"
            env["arq"][job] = owner


PERFORM: dict[str, Callable[[State, State, Rules, Action], None]] = {
    "relay": do_relay,
    "relay_twice": do_relay,
    "again": do_again,
    "look": do_look,
    "arq_rerun": do_rerun,
    "lpick": do_pick,
    "lbegin": do_begin,
    "lbegin_lost": do_begin,
    "lrun": do_run,
    "lout": do_outcome,
    "lcrash": do_crash,
    "lexpel": do_expel,
    "lrestart": do_restart,
    "lbeat": do_beat,
}
