"""For how long does a script keep the server from everybody else, and does each keep its bounds?

SLOWLOG times every script call of a closed loop; calls below its threshold are known by their number. A second, short
load under MONITOR counts the commands inside each call. On a machine with other work, the longest ones are
those that were not given a core.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set as AbstractSet
from typing import Any

import redis
import uvloop

from benches.load import bounded
from benches.measured import speed
from benches.monitor import watching
from benches.options import Options
from benches.results import Result, percentile, tidy
from benches.stack import Stack, yard

NAMES = ("script_blocked_p999_ms",)
# Below the cheapest script and above most commands inside one: what they cost must not be counted to the script.
THRESHOLD_US = 10
KEEP = 2_000_000
COUNTED_SESSIONS = 200
MOST_INNER = 400
MOST_REPLY_BYTES = 65_536
_FUNCTION = re.compile(rb"FCALL ty_[0-9a-f]+_(\w+?)(_plain)? ")


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Time the calls of both agents' turns, then look inside."""
    del wanted
    with yard() as stack:
        took, total, large = _timed(stack, options)
    with yard() as stack:
        inner = _inner(stack)
    ms = [0.0] * max(0, total - len(took)) + [us / 1000 for us in took]
    worst = {name: n for name, n in inner.items() if n > MOST_INNER}
    broken = [f"{name} ran {n} commands, at most {MOST_INNER} are allowed" for name, n in worst.items()]
    broken += [f"{name} answered {n} bytes, at most {MOST_REPLY_BYTES} are allowed" for name, n in large.items()]
    more: dict[str, Any] = {"calls": total, "p100": tidy(max(ms)), "p50": tidy(percentile(ms, 0.5)), "most_inner": inner}
    return [Result("script_blocked_p999_ms", percentile(ms, 0.999), more=more, broken="; ".join(broken))]


def _timed(stack: Stack, options: Options) -> tuple[list[int], int, dict[str, int]]:
    """Return the microseconds of the logged script calls, how many calls there were, and answers that are too large."""
    _log_from(stack, THRESHOLD_US)
    replies = _watch_replies(stack)
    before = _calls(stack)
    for agent in ("plain", "tool"):
        speed(stack, agent, options)
    total = _calls(stack) - before
    took = [int(entry[2]) for entry in _log(stack) if bytes(entry[3][0]).upper() == b"FCALL"]
    return took, max(total, len(took)), _large(stack) if replies else {}


def _inner(stack: Stack) -> dict[str, int]:
    """Return the most commands that one call of each script ran."""
    with watching(stack) as watched:
        for agent in ("plain", "tool"):
            uvloop.run(bounded(stack.url, agent, sessions=COUNTED_SESSIONS, turns=2))
    return watched.most_inner()


def _log_from(stack: Stack, threshold_us: int) -> None:
    stack.redis.config_set("slowlog-max-len", KEEP)
    stack.redis.config_set("slowlog-log-slower-than", threshold_us)
    stack.redis.execute_command("SLOWLOG", "RESET")


def _log(stack: Stack) -> list[Any]:
    stack.redis.config_set("slowlog-log-slower-than", -1)
    plain = redis.connection.UnixDomainSocketConnection(path=stack.url.removeprefix("unix://"))
    plain.send_command("SLOWLOG", "GET", -1)  # as it comes: redis-py would join the words of each command
    try:
        return plain.read_response()  # type: ignore[return-value]
    finally:
        plain.disconnect()


def _calls(stack: Stack) -> int:
    return stack.redis.info("commandstats").get("cmdstat_fcall", {}).get("calls", 0)  # type: ignore[union-attr]


def _watch_replies(stack: Stack) -> bool:
    """Have large answers logged; False on a server that cannot (it needs Valkey 8.1)."""
    try:
        stack.redis.config_set("commandlog-reply-larger-than", MOST_REPLY_BYTES)
    except redis.ResponseError:
        return False
    return True


def _large(stack: Stack) -> dict[str, int]:
    found: Counter[str] = Counter()
    for entry in stack.redis.execute_command("COMMANDLOG", "GET", -1, "large-reply"):
        match = _FUNCTION.match(b" ".join(bytes(word) for word in entry[3][:2]) + b" ")
        if match:
            found[match[1].decode()] = max(found[match[1].decode()], int(entry[2]))
    return dict(found)
