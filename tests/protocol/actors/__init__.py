"""Everything that moves around a shard: clients, dispatcher, workers, lifted workers and arq, vendors, time, failover."""

from tests.protocol.actors.actions import act
from tests.protocol.actors.choices import FAULTY, enabled
from tests.protocol.actors.drain import quiesce
from tests.protocol.actors.invariants import check
from tests.protocol.actors.world import (
    CALLS,
    OUTSIDE,
    PEOPLE,
    Action,
    Config,
    Event,
    Violation,
    copy,
    fingerprint,
    message,
    new_world,
    plan_more,
)

__all__ = [
    "CALLS",
    "FAULTY",
    "OUTSIDE",
    "PEOPLE",
    "Action",
    "Config",
    "Event",
    "Violation",
    "act",
    "check",
    "copy",
    "enabled",
    "fingerprint",
    "message",
    "new_world",
    "plan_more",
    "quiesce",
]
