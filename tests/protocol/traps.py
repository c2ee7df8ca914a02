"""Which of the protocol's traps the model walks into, and where the others are shown.

Every trap of the protocol is in exactly one of three places: TRAPS holds interleavings as data, ELSEWHERE names the tests of the
parts that are modelled alone, NOT_MODELLED says what only the real server and real processes can show.
"""

from tests.protocol.scenarios import calls, cancels, fleet, lifted, order
from tests.protocol.scenarios.trap import Trap, steps, story

__all__ = ["COUNT", "ELSEWHERE", "NOT_MODELLED", "TRAPS", "Trap", "steps", "story"]

COUNT = 85
TRAPS: list[Trap] = [*order.TRAPS, *calls.TRAPS, *cancels.TRAPS, *fleet.TRAPS, *lifted.TRAPS]
ELSEWHERE: dict[str, str] = {
    "trap-9": "test_admission.py: a flow without room leaves flows, so nothing is scanned",
    "trap-10": "test_fair.py: tags and credit",
    "trap-11": "test_fair.py: the quantum",
    "trap-15": "test_poison.py: who is charged",
    "trap-31": "test_lanes.py: order, 429, two senders",
    "trap-62": "test_admission.py: wakes that are passed on, raised limits",
    "trap-63": "test_lanes.py: re-armed lanes, stale sent",
    "trap-79": "test_fair.py: the quantum over turns",
    "trap-80": "test_fair.py: tags",
    "trap-81": "test_fair.py: the charge at admit",
    "trap-82": "test_poison.py: forgiven marks",
    "trap-83": "test_poison.py: suspects without a tool",
    "trap-84": "test_poison.py: lost hosts",
}
NOT_MODELLED: dict[str, str] = {
    "trap-3": "one shard: the hash that finds it is a pure function",
    "trap-4": "lifetimes of dedupe and job rows",
    "trap-13": "capacity is read inside the script in the model, by construction",
    "trap-14": "shares over shards",
    "trap-16": "Redis time and the gap in ticking",
    "trap-19": "cost of a beat",
    "trap-20": "processes and the GIL",
    "trap-28": "a store's name is made of its session's: one head, one log",
    "trap-32": "feed ids",
    "trap-36": "memory limits of the server",
    "trap-37": "the script cache",
    "trap-40": "forks: leases belong to one process",
    "trap-41": "the server's clock",
    "trap-42": "paging of begin",
    "trap-66": "attempt is counted, never set back, in the model; nothing there decides by it",
}
