"""What does a session cost that does nothing, and a call that waits?

An idle session is one that had a plain turn: its head, its log and its place in the index, less the text; its job's row,
which goes after seven days, belongs to the turn. A parked call is what turns that each park a callback leave beyond the
same number of plain ones, less the call's arguments: call row, deadline and its records in the log.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import orjson
import uvloop

from benches.made import ANSWER, ARGUMENTS, TEXT, make
from benches.memory import stored_bytes, used_bytes
from benches.options import Options
from benches.results import Result, tidy
from benches.stack import server

NAMES = ("idle_session_bytes", "parked_call_bytes")


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Measure the wanted ones, each on a server of its own."""
    rows: list[Result] = []
    if "idle_session_bytes" in wanted:
        rows.append(_idle(options.idle_sessions))
    if "parked_call_bytes" in wanted:
        rows.append(_parked(options.parked_sessions, options.parked_calls))
    return rows


def _idle(sessions: int) -> Result:
    with server() as stack:
        before = used_bytes(stack)
        uvloop.run(make(stack.url, sessions))
        by_kind = {kind: n / sessions for kind, n in stored_bytes(stack).most_common()}
        all_bytes = (used_bytes(stack) - before) / sessions
    text = len(TEXT.encode()) + len(ANSWER.encode())
    value = sum(n for kind, n in by_kind.items() if kind != "job") - text
    shown = {kind: tidy(n) for kind, n in by_kind.items() if n >= 1}
    more = {"sessions": sessions, "by_kind": shown, "server_memory_with_job": tidy(all_bytes)}
    return Result("idle_session_bytes", value, more=more)


def _parked(sessions: int, calls: int) -> Result:
    found: list[dict[str, int]] = []
    for park in (False, True):
        with server() as stack:
            uvloop.run(make(stack.url, sessions, turns_each=calls, park=park))
            found.append(stored_bytes(stack))
    plain, parked = found
    by_kind = {kind: (parked[kind] - plain.get(kind, 0)) / (sessions * calls) for kind in parked}
    value = sum(by_kind.values()) - len(orjson.dumps(ARGUMENTS))
    shown = {kind: tidy(n) for kind, n in by_kind.items() if abs(n) >= 1}
    return Result("parked_call_bytes", value, more={"calls": sessions * calls, "by_kind": shown})
