"""What must hold in the end, once faults have stopped.

Run fairly to rest: everything is idle, nothing leaks, every accepted message reached the log or was cancelled, every job ended and
every call has exactly one terminal outcome.
"""

from tests.protocol import model
from tests.protocol.actors.actions import act
from tests.protocol.actors.choices import enabled
from tests.protocol.actors.world import Action, fail
from tests.protocol.model import Rules, State

MAX_ROUNDS = 400


def quiesce(shard: State, env: State, rules: Rules, trace: list[Action] | None = None) -> None:
    """Stop the faults, run a fair schedule to rest and apply the final oracle; `trace` collects the actions."""
    env["budget"], env["keep"], env["hist"] = 0, 0, []
    for _ in range(MAX_ROUNDS):
        actions = enabled(shard, env)
        if not actions:
            final(shard, env)
            return
        for action in dict.fromkeys(actions):
            if action in enabled(shard, env):
                if trace is not None:
                    trace.append(action)
                act(shard, env, rules, action)
    fail(f"no quiescence (live-lock): {enabled(shard, env)[:4]}")


def final(shard: State, env: State) -> None:
    """Raise Violation for the first promise that was not kept."""
    for sid, head in shard["s"].items():
        check_idle(sid, head)
    if shard["running"] or shard["ingress"] or any(shard["w"].values()) or shard["dying"]:
        fail(f"leak: running {shard['running']} ingress {len(shard['ingress'])} w {shard['w']} dying {shard['dying']}")
    check_messages(shard, env)
    check_notices(shard)
    for mid, job in shard["j"].items():
        if job["state"] not in ("succeeded", "failed", "cancelled"):
            fail(f"job {mid} ends {job['state']} open {job['open']}")
    for call, row in shard["calls"].items():
        check_call(shard, call, row)


def check_idle(sid: str, head: State) -> None:
    """Nothing is wedged or stranded."""
    if head["state"] != "idle":
        rest = f"inbox {len(head['inbox'])} next {len(head['next'])} cancel {head['cancel']}"
        fail(f"wedged: {sid} {head['state']} awaiting {head['awaiting']} {rest}")
    if model.wakes(head) or model.next_due(head):
        fail(f"stranded items of {sid}")


def check_messages(shard: State, env: State) -> None:
    """Every accepted message was shown, answered if somebody heard the answer, and struck only by its own user."""
    entries = [entry for log in shard["log"].values() for entry in log if entry["kind"] == "user"]
    shown = {entry["mid"] for entry in entries}
    for mid in env["accepted"]:
        gone = mid in env["lost"] or shard["j"].get(mid, {}).get("state") == "cancelled"
        if mid not in shown and not gone:
            fail(f"message {mid} never reached the log")
    for mid in env["replied"]:
        if not env["rewound"] and not env["crashed"] and shard["j"].get(mid, {}).get("state") == "cancelled":
            fail(f"job {mid} was answered and ends cancelled")
    stands = {entry["mid"] for entry in entries if not entry.get("struck")}
    for entry in entries:
        if entry.get("struck") and not entry["asker"] and entry["mid"] not in stands and entry["mid"] not in env["cjobs"]:
            fail(f"the message {entry['mid']} of another user was struck")


def check_notices(shard: State) -> None:
    """The newest notice of a group is shown or waits; older ones were shown in order, once."""
    waiting = [item for head in shard["s"].values() for item in head["inbox"] + head["next"] if item["kind"] == "notice"]
    for group, (store, text) in shard["notices"].items():
        seen = texts(shard["log"][store], group)
        unshown = [item["text"] for item in waiting if item["group"] == group and item["store"] == store]
        if seen[-1:] != [text] and unshown[-1:] != [text]:
            fail(f"notice {text} of {store} is nowhere: shown {seen} waiting {unshown}")
    for store, log in shard["log"].items():
        for group in {entry["group"] for entry in log if entry["kind"] == "notice"}:
            seen = texts(log, group)
            if seen != sorted(set(seen)):
                fail(f"notices of {store} out of order or twice: {seen}")


def texts(log: list[State], group: str) -> list[int]:
    """Return the texts of the group's shown notices, in order."""
    return [entry["text"] for entry in log if entry["kind"] == "notice" and entry["group"] == group]


def check_call(shard: State, call: str, row: State) -> None:
    """The call is answered and has exactly one terminal outcome, in the log or on its way; a late result was shown."""
    if not row["answered"]:
        fail(f"call {call} unanswered")
    told = [e for log in shard["log"].values() for e in log if e["kind"] in ("result", "note") and e["call"] == call]
    terminal = [e for e in told if e["outcome"] != "placeholder" and not e.get("late")]
    asides = [item for head in shard["s"].values() for item in head["inbox"] + head["next"] if item.get("call") == call]
    if len(terminal) + len(asides) + bool(row.get("dropped")) != 1 and not (row.get("struck") and terminal):
        fail(f"call {call} has {len(terminal)} terminal outcomes")
    if row["late"] and not row.get("struck") and not any(e["kind"] == "note" and e["late"] for e in told):
        fail(f"late result of {call} dropped")
