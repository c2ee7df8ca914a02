"""Does a receiver that drops repeats see every part of a lane, in order, whoever dies or stalls?

A commit appends to the log and makes the lane due, unless it already is (ZADD NX). A sender takes the lane until due + 30 s, sends
what is after the cursor, and settles with the due value it took: with any other it changes nothing.
"""

from collections import deque
from dataclasses import dataclass

import orjson

from tests.protocol.model import State

PARTS = 2
LEASE_S = 30
BACK_OFF_S = 5
SENDERS = (0, 1)


@dataclass(frozen=True)
class LaneRules:
    """`nx`: a commit leaves a due time alone. `cas`: `sent` holds only with the lease it took, and moves the cursor forward."""

    nx: bool = True
    cas: bool = True


@dataclass(frozen=True)
class Outcome:
    """How many states were seen, and the violation if there was one."""

    states: int
    bad: str | None = None
    path: tuple[tuple[str, int], ...] = ()


def after(state: State) -> list[list[int]]:
    """Return the (seq, part) pairs after the cursor."""
    return [[seq, part] for seq in range(1, state["seq"] + 1) for part in range(PARTS) if [seq, part] > state["sent"]]


def commit(state: State, rules: LaneRules, _: int) -> None:
    """A turn appends an entry."""
    state["seq"] += 1
    state["left"] -= 1
    if not rules.nx or state["due"] is None:
        state["due"] = state["now"]


def take(state: State, rules: LaneRules, sender: int) -> None:
    """A sender takes the lane: its new due time is the lease."""
    state["due"] = state["now"] + LEASE_S
    state["senders"][sender] = {"lease": state["due"], "todo": after(state), "last": state["sent"]}


def send(state: State, rules: LaneRules, sender: int) -> None:
    """A part reaches the receiver."""
    job = state["senders"][sender]
    job["last"] = job["todo"].pop(0)
    state["got"].append(job["last"])


def throttled(state: State, rules: LaneRules, sender: int) -> None:
    """The receiver answers 429: the sender stops and backs off."""
    state["throttles"] -= 1
    state["senders"][sender].update(stop=True, delay=BACK_OFF_S)


def sent(state: State, rules: LaneRules, sender: int) -> None:
    """A sender settles what it sent; the lane is due again if anything is left."""
    job, state["senders"][sender] = state["senders"][sender], None
    if rules.cas and state["due"] != job["lease"]:
        return
    if job["last"] < state["sent"]:
        state["went_back"] = True
    if not rules.cas or job["last"] > state["sent"]:
        state["sent"] = list(job["last"])
    state["due"] = state["now"] + job.get("delay", 0) if after(state) else None


def crash(state: State, rules: LaneRules, sender: int) -> None:
    """A sender dies."""
    state["faults"] -= 1
    state["senders"][sender] = None
    state["broke"] = True


def wait(state: State, rules: LaneRules, _: int) -> None:
    """Time passes until the lane is due; a sender that has it has stalled past its lease."""
    state["now"] = state["due"]
    if any(state["senders"]):
        state["faults"] -= 1
        state["broke"] = True


PERFORM = {"commit": commit, "take": take, "send": send, "429": throttled, "sent": sent, "crash": crash, "wait": wait}


def choices(state: State) -> list[tuple[str, int]]:
    """Return what could happen next."""
    out = [("commit", 0)] if state["left"] else []
    for sender in SENDERS:
        out += sender_choices(state, sender)
    idle = not any(state["senders"])
    if state["due"] is not None and state["due"] > state["now"] and (idle or state["faults"]):
        out.append(("wait", 0))
    return out


def sender_choices(state: State, sender: int) -> list[tuple[str, int]]:
    """Return what one sender can do, or suffer."""
    job = state["senders"][sender]
    if job is None:
        due = state["due"] is not None and state["due"] <= state["now"]
        return [("take", sender)] if due else []
    names = ["sent"]
    if job["todo"] and not job.get("stop"):
        names = ["send", "429"] if state["throttles"] else ["send"]
    if state["faults"]:
        names.append("crash")
    return [(name, sender) for name in names]


def violation(state: State, rules: LaneRules) -> str | None:
    """Return what is wrong with this state, or None."""
    first: list[list[int]] = []
    for part in state["got"]:
        if part not in first:
            first.append(part)
    if first != sorted(first):
        return f"the receiver saw the order {first}"
    if state.get("went_back") and not rules.cas:
        return "the cursor went back"
    if len(first) != len(state["got"]) and not state["broke"]:
        return f"sent twice without a pause or crash: {state['got']}"
    return None


def explore(rules: LaneRules, *, commits: int = 2, faults: int = 1) -> Outcome:
    """Try every order of commits, two senders, one 429 and `faults` crashes or stalls; check every state."""
    start: State = {
        "seq": 0,
        "due": None,
        "now": 0,
        "sent": [0, PARTS - 1],
        "senders": [None, None],
        "got": [],
        "faults": faults,
        "throttles": 1,
        "left": commits,
        "broke": False,
    }
    queue: deque[tuple[State, tuple[tuple[str, int], ...]]] = deque([(start, ())])
    seen: set[bytes] = set()
    states = 0
    while queue:
        state, path = queue.popleft()
        states += 1
        actions = choices(state)
        bad = violation(state, rules)
        if not actions and (after(state) or state["due"] is not None):
            bad = f"stranded {after(state)} due {state['due']}"
        if bad:
            return Outcome(states, bad, path)
        for action in actions:
            following = orjson.loads(orjson.dumps(state))
            PERFORM[action[0]](following, rules, action[1])
            key = orjson.dumps(following, option=orjson.OPT_SORT_KEYS)
            if key not in seen:
                seen.add(key)
                queue.append((following, (*path, action)))
    return Outcome(states)
