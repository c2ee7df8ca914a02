"""One shard as plain dicts; every script of the protocol is one atomic function `script(shard, rules, ...)`."""

from tests.protocol.model.accept import accept, decide, queued
from tests.protocol.model.admit import admit, worker_room
from tests.protocol.model.arrivals import MAX_COLLECT, W_COLLECT
from tests.protocol.model.begin import begin, claim, open_turn
from tests.protocol.model.cancel import gives_way, overtake, set_cancel, strike
from tests.protocol.model.commit import commit
from tests.protocol.model.dispatch import apply_event, dispatch
from tests.protocol.model.lifted import PUT_OFF, READ, TRIES, begin_row, task_dead, tick_relay
from tests.protocol.model.rules import FIXES, Rules
from tests.protocol.model.state import (
    APPROVALS,
    INF,
    WAKERS,
    State,
    asks,
    detached,
    last_entry,
    member,
    new_shard,
    next_due,
    rows_of,
    unanswered,
    visible,
    wakes,
)
from tests.protocol.model.upkeep import beat, register, tick_beginby, tick_cancel, tick_dead, tick_deadline, tick_due

__all__ = [
    "APPROVALS",
    "FIXES",
    "INF",
    "MAX_COLLECT",
    "PUT_OFF",
    "READ",
    "TRIES",
    "WAKERS",
    "W_COLLECT",
    "Rules",
    "State",
    "accept",
    "admit",
    "apply_event",
    "asks",
    "beat",
    "begin",
    "begin_row",
    "claim",
    "commit",
    "decide",
    "detached",
    "dispatch",
    "gives_way",
    "last_entry",
    "member",
    "new_shard",
    "next_due",
    "open_turn",
    "overtake",
    "queued",
    "register",
    "rows_of",
    "set_cancel",
    "strike",
    "task_dead",
    "tick_beginby",
    "tick_cancel",
    "tick_dead",
    "tick_deadline",
    "tick_due",
    "tick_relay",
    "unanswered",
    "visible",
    "wakes",
    "worker_room",
]
