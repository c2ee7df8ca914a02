"""How many commands does a plain turn cost, and how many does a deployment send when it has nothing to do?

Sent are those of clients: submitter, dispatcher, supervisor, children. Counted are also those inside scripts. What the
deployment sends when idle is taken off.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from benches.measured import Idle, Speed, idle, speed
from benches.options import Options
from benches.results import Result, tidy
from benches.stack import floor, yard

NAMES = ("commands_sent_per_plain_turn", "commands_counted_per_plain_turn", "idle_commands_per_s")


def measure(options: Options, wanted: AbstractSet[str]) -> list[Result]:
    """Watch ours do nothing, then work; and the bare loop work."""
    with yard() as stack:
        rest = idle(stack, options.idle_s)
        ours = speed(stack, "plain", options) if wanted - {"idle_commands_per_s"} else None
    rows = [Result("idle_commands_per_s", rest.sent_per_s / rest.processes, more={"processes": rest.processes})]
    if ours is not None:
        with floor("plain") as stack:
            bare_rest, bare = idle(stack, options.idle_s), speed(stack, "plain", options)
        rows += [_sent(ours, rest, bare, bare_rest), _counted(ours, rest, bare, bare_rest)]
    return [row for row in rows if row.name in wanted]


def _sent(ours: Speed, rest: Idle, bare: Speed, bare_rest: Idle) -> Result:
    more = {"idle_per_s": tidy(rest.sent_per_s)}
    return Result("commands_sent_per_plain_turn", ours.sent_per_turn(rest), bare.sent_per_turn(bare_rest), more=more)


def _counted(ours: Speed, rest: Idle, bare: Speed, bare_rest: Idle) -> Result:
    return Result("commands_counted_per_plain_turn", ours.counted_per_turn(rest), bare.counted_per_turn(bare_rest))
