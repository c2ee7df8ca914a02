"""How much does the server keep of a plain turn, beyond what was said in it?

Sessions that have had a turn have more of them; what came to be stored, less the UTF-8 text of both sides, is divided by
the turns. What a session itself costs, its first 4 KB of log included, is `idle_session_bytes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet

import uvloop

from benches.load import TEXT, bounded
from benches.memory import stored_bytes
from benches.options import Options
from benches.results import Result, tidy
from benches.stack import Stack, floor, yard

NAMES = ("bytes_per_plain_turn",)
ANSWER = "Well said."


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Measure ours and the bare loop, which stores the same records with smaller bodies."""
    del wanted
    with yard() as stack:
        ours = _per_turn(stack, options)
    with floor("plain") as stack:
        bare = _per_turn(stack, options)
    text = len(TEXT.encode()) + len(ANSWER.encode())
    more = {"by_kind": {kind: tidy(n) for kind, n in ours.most_common() if round(n)}, "text_bytes": text}
    return [Result("bytes_per_plain_turn", sum(ours.values()) - text, sum(bare.values()) - text, more=more)]


def _per_turn(stack: Stack, options: Options) -> Counter[str]:
    uvloop.run(bounded(stack.url, "plain", sessions=options.stored_sessions, turns=1))
    before = stored_bytes(stack)
    turns = uvloop.run(bounded(stack.url, "plain", sessions=options.stored_sessions, turns=options.stored_turns))
    after = stored_bytes(stack)
    return Counter({kind: (after[kind] - before[kind]) / turns for kind in after})  # type: ignore[arg-type]
