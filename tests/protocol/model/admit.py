"""Who gets the next slot.

A session is assigned only while there is a slot and a live worker with room that may run its turn. Each assignment mints an epoch
and clears the owner, so that nothing of an earlier holder passes the fence.
"""

from tests.protocol.model.rules import Rules
from tests.protocol.model.state import BEGIN_BY, State, is_task, least_version


def admit(shard: State, rules: Rules) -> None:
    """Assign ready sessions, first come first served, while slots and workers' room last."""
    # What a dead worker still holds uses up room like what a live one holds, until it is taken back.
    room = sum(shard["capacity"].get(owner, 0) for owner in shard["workers"]) - len(shard["running"])
    i = 0
    while i < len(shard["ready"]) and len(shard["running"]) < shard["cap"] and room > 0:
        head = shard["s"][shard["ready"][i]]
        if rules.list_version and worker_room(shard, since=least_version(head)) <= 0:
            i += 1
            continue
        assign(shard, rules, shard["ready"].pop(i))
        room -= 1


def worker_room(shard: State, *, since: int) -> int:
    """Return how many more sessions live workers of agent version `since` or newer can take.

    A lifted task takes no session's room: arq's workers are bounded by arq.
    """
    return sum(
        shard["capacity"].get(owner, 0) - sum(1 for name in shard["w"].get(owner, []) if not is_task(name))
        for owner in shard["workers"]
        if shard["ver"].get(owner, 0) >= since
    )


def assign(shard: State, rules: Rules, sid: str) -> None:
    """Lock the session, take a slot, and hand the turn to the list of its version."""
    head = shard["s"][sid]
    head["epoch"] += 1
    head["state"] = "assigned"
    if rules.fence_state:
        head["owner"] = None
    shard["running"][sid] = BEGIN_BY
    shard["turns"].append([sid, head["epoch"], least_version(head) if rules.list_version else 0])
