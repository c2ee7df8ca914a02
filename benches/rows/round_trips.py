"""How many commands does a worker send per step, between begin's answer and the ending?

A known number of turns of three steps (model, tool, model) runs to its end while MONITOR tells every command that clients
send. What is sent once per turn, once a second whatever the steps do (`HGET fu`: does somebody follow), or by others is
known by name and shown under `more`; everything else counts as a step's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet

import uvloop

from benches.load import bounded
from benches.monitor import watching
from benches.options import Options
from benches.results import Result, tidy
from benches.stack import floor, yard

NAMES = ("round_trips_per_step",)
STEPS = 3
SESSIONS = 100
# Of the submitter, the dispatcher and the supervisor; and a worker's before begin answers, or of its life as a whole.
ELSEWHERE = frozenset(
    {"accept", "SUBSCRIBE", "UNSUBSCRIBE", "dispatch", "XREAD", "tick", "beat", "begin", "BLMPOP", "PING", "TIME", "ZRANGEBYSCORE", "HMGET"}
    | {"CLIENT", "INFO", "CONFIG", "HSETNX", "ECHO", "MONITOR", "HELLO", "FUNCTION", "HGET job", "HGET fu"}
)


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Watch both do the same turns."""
    del wanted
    each = max(2, round(options.seconds))
    with yard() as stack, watching(stack) as ours:
        turns = uvloop.run(bounded(stack.url, "tool", sessions=SESSIONS, turns=each))
    with floor("tool") as stack, watching(stack) as bare:
        uvloop.run(bounded(stack.url, "tool", sessions=SESSIONS, turns=each))
    sent = ours.sent()
    shown = {name: tidy(n / turns) for name, n in sent.most_common() if n / turns >= 0.01}
    rest = {name: n for name, n in sent.items() if name not in ELSEWHERE and name != "commit"}
    value, least = _per_step(sent, turns), _per_step(bare.sent(), turns)
    return [
        Result("round_trips_per_step", value, least, more={"turns": turns, "sent_per_tool_turn": shown, "besides_commits": rest or "none"})
    ]


def _per_step(sent: Counter[str], turns: int) -> float:
    return sum(n for name, n in sent.items() if name not in ELSEWHERE) / (turns * STEPS)
