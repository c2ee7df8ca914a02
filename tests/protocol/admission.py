"""Does a waiter that has room always sit in a flow that admit looks at, without a scan?

A flow is (tenant, agent). It is in `flows` when it has work and may have room, else in exactly one `blocked:<resource>`. Whatever
makes room puts back one waiter of that resource; when admit blocks a woken flow on another resource, it passes the wake on.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal

import orjson

from tests.protocol.model import State

FLOWS = {"F1": ("T", "a1"), "F2": ("T", "a2"), "F3": ("U", "a1")}
LIMITS = {"g": 2, "t:T": 1, "t:U": 1, "a:a1": 1, "a:a2": 1, "p": 2}
RAISABLE = ("t:T", "p")


@dataclass(frozen=True)
class Wakes:
    """How blocked flows come back.

    `how`: one waiter of a freed resource; all of them; or one that passes the wake on when it cannot use it (the rule).
    `by_limits`: a raised limit and new capacity wake as a release does (the rule), or only releases do.
    """

    how: Literal["one", "all", "chain"] = "chain"
    by_limits: bool = True


@dataclass(frozen=True)
class Outcome:
    """How many states were seen, and the violation if there was one."""

    states: int
    bad: str | None = None
    path: tuple[tuple[str, str | int], ...] = ()


def resources(flow: str) -> list[str]:
    """Return what a turn of this flow takes, the global slot last."""
    tenant, agent = FLOWS[flow]
    return [f"t:{tenant}", f"a:{agent}", "p", "g"]


def has_room(state: State, resource: str) -> bool:
    """Tell whether one more turn fits."""
    return len(state["run"].get(resource, [])) < state["limits"][resource]


def full(state: State, flow: str) -> list[str]:
    """Return the flow's resources without room, the global slot apart: that one blocks nobody."""
    return [r for r in resources(flow) if r != "g" and not has_room(state, r)]


def admit(state: State, wakes: Wakes) -> None:
    """Admit flow after flow while there is a slot; a flow without room leaves for the first resource it lacks."""
    while state["flows"] and has_room(state, "g"):
        flow = state["flows"].pop(0)
        lacking = full(state, flow)
        if lacking:
            block(state, wakes, flow, lacking[0])
            continue
        session = state["waiting"][flow].pop(0)
        for resource in resources(flow):
            state["run"].setdefault(resource, []).append(session)
        if state["waiting"][flow]:
            state["flows"].append(flow)


def block(state: State, wakes: Wakes, flow: str, resource: str) -> None:
    """Park the flow on the resource; hand the wake it cannot use to the next waiter of each other one."""
    state["blocked"].setdefault(resource, []).append(flow)
    if wakes.how == "chain":
        for other in resources(flow):
            if other not in ("g", resource) and has_room(state, other):
                put_back(state, wakes, other)


def put_back(state: State, wakes: Wakes, resource: str) -> None:
    """Return waiters of a resource that has room again to `flows`."""
    waiters = state["blocked"].get(resource, [])
    count = len(waiters) if wakes.how == "all" else 1
    state["blocked"][resource] = waiters[count:]
    for flow in waiters[:count]:
        if state["waiting"][flow] and flow not in state["flows"]:
            state["flows"].append(flow)


def arrive(state: State, index: int) -> None:
    """A session of a flow becomes ready."""
    flow = state["plan"].pop(index)
    state["waiting"][flow].append(f"{flow}.{len(state['plan'])}")
    if flow not in state["flows"] and not is_blocked(state, flow):
        state["flows"].append(flow)


def release(state: State, wakes: Wakes, session: str) -> None:
    """A turn ends: every resource it held makes room."""
    for resource, sessions in state["run"].items():
        if session in sessions:
            sessions.remove(session)
            if resource != "g":
                put_back(state, wakes, resource)


def raise_limit(state: State, wakes: Wakes, resource: str) -> None:
    """An operator raises a limit, or a worker brings capacity."""
    state["limits"][resource] += 1
    state["raised"].append(resource)
    if wakes.by_limits:
        put_back(state, wakes, resource)


def is_blocked(state: State, flow: str) -> bool:
    """Tell whether the flow waits for a resource."""
    return any(flow in waiters for waiters in state["blocked"].values())


def forgotten(state: State) -> str | None:
    """Return the complaint of a waiter nobody will look at, or None."""
    for flow, sessions in state["waiting"].items():
        if not sessions or flow in state["flows"]:
            continue
        if not full(state, flow) and has_room(state, "g"):
            return f"{flow} waits with room, not in flows"
        if not is_blocked(state, flow):
            return f"{flow} in no index"
    return None


def choices(state: State) -> list[tuple[str, str | int]]:
    """Return what could happen next."""
    out: list[tuple[str, str | int]] = [("arrive", i) for i in range(len(state["plan"]))]
    out += [("release", session) for session in state["run"].get("g", [])]
    if not state["raised"]:
        out += [("raise", resource) for resource in RAISABLE]
    return out


def perform(state: State, wakes: Wakes, action: tuple[str, str | int]) -> None:
    """Perform one action, then admit."""
    name, what = action
    if name == "arrive":
        arrive(state, int(what))
    elif name == "release":
        release(state, wakes, str(what))
    else:
        raise_limit(state, wakes, str(what))
    admit(state, wakes)


def explore(wakes: Wakes, arrivals: list[str], limits: dict[str, int] | None = None) -> Outcome:
    """Try every order of arrivals, releases and one raised limit; check every state."""
    start: State = {
        "flows": [],
        "waiting": {flow: [] for flow in FLOWS},
        "blocked": {},
        "run": {},
        "limits": {**LIMITS, **(limits or {})},
        "plan": list(arrivals),
        "raised": [],
    }
    queue: deque[tuple[State, tuple[tuple[str, str | int], ...]]] = deque([(start, ())])
    seen: set[bytes] = set()
    states = 0
    while queue:
        state, path = queue.popleft()
        states += 1
        bad = forgotten(state)
        if bad:
            return Outcome(states, bad, path)
        for action in choices(state):
            following = orjson.loads(orjson.dumps(state))
            perform(following, wakes, action)
            key = orjson.dumps(following, option=orjson.OPT_SORT_KEYS)
            if key not in seen:
                seen.add(key)
                queue.append((following, (*path, action)))
    return Outcome(states)
