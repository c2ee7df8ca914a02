"""What surrounds a shard: clients with a plan, workers, lifted workers and arq, vendors with tokens, and a budget of faults.

A world is a pair (shard, env), both of JSON types. The same start and the same actions give the same states.
"""

import hashlib
import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from tests.protocol import model
from tests.protocol.model import State

Action = tuple[Any, ...]
Event = dict[str, Any]

# What the scripted model asks for after a message: a kind per call, in source order.
CALLS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "tool": ("tool",),
    "det": ("det",),
    "aw": ("aw",),
    "ap": ("ap",),
    "tt": ("tool", "tool"),
    "ta": ("tool", "aw"),
    "aa": ("aw", "aw"),
    "at": ("ap", "tool"),
    "da": ("det", "aw"),
    "re": (),
    "fo": ("aw",),
    "li": ("li",),
    "ln": ("ln",),
    "ld": ("ld",),
    "lt": ("ln", "tool"),
    "ltl": ("ln", "tool", "ln"),
    "ll": ("li", "ln"),
    "pp": ("par", "par"),
    "pa": ("par", "par", "aw"),
    "ip": ("aw", "par", "par"),
    "ppp": ("par", "par", "par"),
    "pl": ("par", "ld", "par"),
    "aada": ("ap", "ap", "det", "aw"),
    "ata": ("ap", "tool", "aw"),
    "lo": ("lo",),
    "lot": ("lo", "tool"),
}
# The same for calls that need their app's code again while they wait: polls, answers to be read, long calls that may be repeated.
OUTSIDE: dict[str, tuple[str, ...]] = {
    "po": ("po",),
    "pt": ("po", "tool"),
    "cb": ("cb",),
    "cc": ("cb", "cb"),
    "cd": ("cd",),
    "cp": ("cd", "po"),
    "lx": ("lx",),
    "lxt": ("lx", "cb"),
    "lxo": ("lx", "lo"),
}
# The same, for what people are asked: drawn apart, so that a seed stays the world that it was.
PEOPLE: dict[str, tuple[str, ...]] = {
    "ax": ("ax",),
    "qu": ("qu",),
    "pq": ("pq",),
    "al": ("al",),
    "aq": ("ap", "qu"),
    "pqt": ("pq", "tool"),
    "axaw": ("ax", "aw"),
    "alap": ("al", "ap"),
}
ASKS = CALLS | OUTSIDE | PEOPLE
FOLDS = ("fo",)  # what lets the scripted worker sum up all that is older before it asks the model
WAITS = {"re": "retry"}  # what the scripted worker waits for before it asks the model
LIFT = ("li", "ln", "ld", "po")
ANSWERS = ("r1", "r2")  # what comes for a call whose answers are read: the first changes nothing, the second is final
ALL_FAULTS = ("crash", "expel", "lose", "beginby", "timeout", "overdue", "rewind", "drain")
DESTINATION = {"follow_up": "next", "collect": "collect", "later": "later"}


class Violation(Exception):
    """An invariant of the protocol does not hold: the message says which, the path says how."""


def fail(message: str) -> NoReturn:
    """Report a broken invariant."""
    raise Violation(message)


@dataclass(frozen=True, kw_only=True)
class Config:
    """A small deployment and what its clients will send; `faults` may happen `budget` times in all.

    `plan` is one queue of events per client. `hist` is how many writes a failover may lose. `vers` gives workers an agent
    version; `events` lets accept, dispatch and tick write events beside the entries.
    """

    cap: int
    sids: Sequence[str]
    plan: Sequence[Sequence[Event]]
    workers: Sequence[str] = ("A", "B")
    capacity: int = 2
    budget: int = 1
    faults: Sequence[str] = ALL_FAULTS
    hist: int = 0
    approve: str = "allow"
    lifters: Sequence[str] = ()
    vers: Mapping[str, int] | None = None
    events: bool = False


def message(sid: str, mid: str, does: str = "plain", mode: str = "steer", *, asker: bool = True, **more: Any) -> Event:
    """Return a user message `mid` that makes the model ask for the calls of CALLS[does]."""
    return {**more, "id": "e" + mid, "kind": "user", "sid": sid, "mid": mid, "does": does, "mode": mode, "asker": asker}


def new_world(config: Config) -> tuple[State, State]:
    """Return the start: an idle shard, every worker registered, nothing sent yet."""
    shard = model.new_shard(config.cap, config.sids)
    shard["events"] = config.events
    env: State = {
        "plan": [list(queue) for queue in config.plan],
        "pos": [0] * len(config.plan),
        "budget": config.budget,
        "faults": list(config.faults),
        "approve": config.approve,
        "capacity": config.capacity,
        "keep": config.hist,
        "hist": [],
        "n": 0,
        "tokens": {},
        "effects": {},
        "accepted": [],
        "replied": [],
        "lost": [],
        "crashed": 0,
        "rewound": 0,
        "zombies": [],
        "cancels": {},
        "rollbacks": [],
        "workers": {},
        "lifters": {},
        "arq": {},
        "does": {},
        "dest": {},
        "order": {},
        "cjobs": [],
        "never": [],
        "waited": [],
        "longs": {},
        "came": {},
        "looks": {},
    }
    for name in config.workers:
        env["workers"][name] = {"inc": 0, "alive": True, "jobs": {}, "ver": (config.vers or {}).get(name, 0)}
        model.register(shard, worker_id(env, name), config.capacity, env["workers"][name]["ver"])
    for name in config.lifters:
        env["lifters"][name] = {"inc": 0, "alive": True, "tasks": {}}
        model.register(shard, lifter_id(env, name), 0)
    for queue in config.plan:
        for event in queue:
            announce(env, event)
    return shard, env


def announce(env: State, event: Event) -> None:
    """Tell the oracles what a planned event will be."""
    if event["kind"] == "user":
        env["does"][event["mid"]] = event["does"]
        env["dest"][event["mid"]] = DESTINATION.get(event["mode"], "inbox")
    elif event["kind"] == "canceljob":
        env["cjobs"].append(event["mid"])


def plan_more(env: State, event: Event) -> Action:
    """Add a client that sends one event; return the action that sends it."""
    env["plan"].append([event])
    env["pos"].append(0)
    announce(env, event)
    return ("accept", len(env["plan"]) - 1)


def worker_id(env: State, name: str) -> str:
    """Return the incarnation id of a worker: a new one after each restart."""
    return f"{name}{env['workers'][name]['inc']}"


def lifter_id(env: State, name: str) -> str:
    """Return the incarnation id of a lifted worker."""
    return f"{name}{env['lifters'][name]['inc']}"


def queued(shard: State, sid: str) -> bool:
    """Tell whether the session's current assignment still lies in its list."""
    return any(x[:2] == [sid, shard["s"][sid]["epoch"]] for x in shard["turns"])


def copy(state: State) -> State:
    """Return a deep copy; cheaper than copy.deepcopy by an order of magnitude, which bounds how much can be searched."""
    return marshal.loads(marshal.dumps(state, 2))


def fingerprint(shard: State, env: State) -> bytes:
    """Return a digest that is equal for equal worlds, whatever the order of their keys."""
    plain = {name: value for name, value in env.items() if name != "hist"}
    if env["keep"]:
        plain["h"] = [hashlib.md5(dumps(old), usedforsecurity=False).hexdigest() for old in env["hist"]]
    return hashlib.md5(dumps([shard, plain]), usedforsecurity=False).digest()


def dumps(value: Any) -> bytes:
    """Return canonical JSON."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
