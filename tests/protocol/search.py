"""How to find the shortest interleaving that breaks an invariant: breadth-first, or by seeded random walks."""

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tests.protocol.actors import (
    CALLS,
    FAULTY,
    OUTSIDE,
    PEOPLE,
    Action,
    Config,
    Violation,
    act,
    copy,
    enabled,
    fingerprint,
    message,
    new_world,
    quiesce,
)
from tests.protocol.model import Rules, State

SIMPLE_CALLS = ("plain", "tool", "det", "aw", "ap", "tt", "ta", "aa", "at", "da", "re")
MODES = ("steer", "steer", "follow_up", "interrupt", "collect", "collect", "later", "rollback")
FAULT_RATE = 0.12


@dataclass(frozen=True)
class Found:
    """What a search saw: `bad` names the violation at the end of `path`, None if there was none.

    `unexplored` is how many states the budget left in the queue: 0 means the search was exhaustive.
    """

    states: int
    bad: str | None
    path: tuple[Action, ...]
    unexplored: int = 0

    def __str__(self) -> str:
        """Return the path as one line, for a failing test to print."""
        steps = " ; ".join(" ".join(str(part) for part in action) for action in self.path)
        return f"{self.bad or 'ok'} after {self.states} states: {steps}"


def search(config: Config, *, off: Iterable[str] = (), max_states: int, drain_every: int = 0) -> Found:
    """Explore every interleaving of `config`, breadth first, until a violation or `max_states`.

    Every `drain_every`-th state is also run to rest, for the promises that hold only in the end; 0 means never.
    """
    rules = Rules(off)
    start = new_world(config)
    seen = {fingerprint(*start)}
    queue: deque[tuple[State, State, tuple[Action, ...]]] = deque([(*start, ())])
    states = 0
    while queue and states < max_states:
        shard, env, path = queue.popleft()
        states += 1
        if drain_every and states % drain_every == 0:
            bad, tail = drained(shard, env, rules)
            if bad:
                return Found(states, bad, (*path, ("| then fairly:",), *tail))
        for action in enabled(shard, env):
            following, around = copy(shard), copy(env)
            try:
                act(following, around, rules, action)
            except Violation as violation:
                return Found(states, str(violation), (*path, action))
            key = fingerprint(following, around)
            if key not in seen:
                seen.add(key)
                queue.append((following, around, (*path, action)))
    return Found(states, None, (), len(queue))


def drained(shard: State, env: State, rules: Rules) -> tuple[str | None, tuple[Action, ...]]:
    """Run a copy of the world to rest; return the violation, if any, and what was done."""
    trace: list[Action] = []
    try:
        quiesce(copy(shard), copy(env), rules, trace)
    except Violation as violation:
        return str(violation), tuple(trace)
    return None, tuple(trace)


@dataclass
class Walk:
    """One seeded random walk: a small deployment (random unless given), random steps, then a fair run to rest."""

    seed: int
    off: Iterable[str] = ()
    path: list[Action] = field(default_factory=list[Action])
    config: Config | None = None
    bad: str | None = None

    def run(self) -> "Walk":
        """Walk; leave the violation in `bad`, and how to get there in `config` and `path`."""
        rnd = random.Random(self.seed)
        self.config = self.config or random_config(rnd)
        shard, env = new_world(self.config)
        rules = Rules(self.off)
        try:
            for _ in range(rnd.randint(5, 80)):
                actions = enabled(shard, env)
                if not actions:
                    break
                self.path.append(choose(rnd, actions))
                act(shard, env, rules, self.path[-1])
            quiesce(shard, env, rules, self.path)
        except Violation as violation:
            self.bad = str(violation)
        return self


def choose(rnd: random.Random, actions: list[Action]) -> Action:
    """Pick a fault now and then, else a step of a healthy actor."""
    faults = [action for action in actions if action[0] in FAULTY]
    steps = [action for action in actions if action[0] not in FAULTY]
    if faults and (not steps or rnd.random() < FAULT_RATE):
        return rnd.choice(faults)
    return rnd.choice(steps)


def random_config(rnd: random.Random) -> Config:
    """Return a random small deployment; a third of them without lifted tasks, delays, versions and events."""
    simple = rnd.random() < 0.3
    count = rnd.randint(1, 7)
    sids = ["x", "y", "z"][: rnd.randint(1, 3)]
    plan: list[list[State]] = [[] for _ in range(rnd.randint(1, 3))]
    sent: list[tuple[str, str]] = []
    for i in range(count):
        event = random_event(rnd, i, sids, sent, simple=simple)
        rnd.choice(plan).append(event)
    lifters: tuple[str, ...] = ()
    vers, events = None, False
    if not simple:
        lifters = ("L", "M")[: rnd.randint(1, 2)]
        vers = rnd.choice([None, None, {"A": 1, "B": 2}])
        events = rnd.random() < 0.3
    return Config(
        cap=rnd.randint(1, 2),
        sids=sids,
        plan=plan,
        lifters=lifters,
        vers=vers,
        events=events,
        workers=("A", "B")[: rnd.randint(1, 2)],
        capacity=rnd.randint(1, 2),
        budget=rnd.randint(0, 4),
        hist=rnd.choice([0, 0, 0, 6]),
        approve=rnd.choice(["allow", "deny"]),
    )


def random_outside(rnd: random.Random) -> Config:
    """Return a random small deployment most of whose calls need their app's code again while they wait."""
    config = random_config(rnd)
    does = {event["mid"]: rnd.choice(tuple(OUTSIDE)) for queue in config.plan for event in queue if event["kind"] == "user"}
    chosen = {mid for mid in does if rnd.random() < 0.7}
    plan = [
        [event | {"does": does[event["mid"]]} if event.get("mid") in chosen and event["kind"] == "user" else event for event in queue]
        for queue in config.plan
    ]
    return replace(config, plan=plan, lifters=config.lifters or ("L",), hist=0)


def with_people(config: Config, rnd: random.Random) -> Config:
    """Return the deployment with more that people are asked, and two users who write."""
    kinds = (*PEOPLE, "ap", "at", "aada")
    plan = [[{**event, **peopled(rnd, kinds)} if event["kind"] == "user" else event for event in queue] for queue in config.plan]
    return replace(config, plan=plan)


def peopled(rnd: random.Random, kinds: Sequence[str]) -> State:
    """Return what a message says instead: something that people are asked, mostly, and who wrote it."""
    return ({"does": rnd.choice(kinds)} if rnd.random() < 0.6 else {}) | {"user": rnd.choice("uv")}


def random_event(rnd: random.Random, i: int, sids: list[str], sent: list[tuple[str, str]], *, simple: bool) -> State:
    """Return a random message or control."""
    sid, kind = rnd.choice(sids), rnd.random()
    if kind < 0.72 or not sent:
        mid = f"m{i}"
        sent.append((sid, mid))
        does = rnd.choice(SIMPLE_CALLS if simple else tuple(CALLS))
        return message(sid, mid, does, rnd.choice(MODES[:4] if simple else MODES), asker=rnd.random() < 0.6)
    event_id = f"c{i}"
    if kind < 0.84:
        return {"id": event_id, "kind": "cancel", "sid": sid, **({"all": "1"} if rnd.random() < 0.3 else {})}
    if kind < 0.87 and not simple:
        return {"id": event_id, "kind": "pause", "sid": sid}
    if kind < 0.91 and not simple:
        return {"id": event_id, "kind": rnd.choice(["notice", "notice", "clear"]), "sid": sid, "group": sid + "g", "text": i}
    if kind < 0.95:
        owner, mid = rnd.choice(sent)
        return {"id": event_id, "kind": "canceljob", "sid": owner, "mid": mid}
    return {"id": event_id, "kind": "new", "sid": sid}
