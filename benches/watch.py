"""Who holds a session, and since when: what an interrupted turn is measured by.

A head is read every half millisecond, which costs the machine little and the answer at most that much.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import orjson
import uvloop

from benches.load import submitter
from benches.results import Unmeasured
from benches.stack import Stack
from turnyard.records.ids import session_key
from turnyard.state.keys import Keys

LOOK_S = 0.0005
PATIENCE_S = 40.0
KEYS = Keys("0")


@dataclass(frozen=True, slots=True)
class Holder:
    """The incarnation that runs a session's turn, and its process."""

    owner: str
    epoch: int
    pid: int
    supervisor_pid: int


def start_turn(stack: Stack, agent: str, session: str, text: str) -> Holder:
    """Send a message and wait until somebody runs its turn."""

    async def send() -> None:
        async with submitter(stack.url, agent) as submit:
            await submit.send(session, text)

    uvloop.run(send())
    owner, epoch, _ = running(stack, session, after=0)
    raw = stack.redis.hget(KEYS.prefix + "fleet", owner)
    if raw is None:
        raise Unmeasured(f"session {session} is run by {owner}, which is not in the fleet")
    facts = orjson.loads(raw)  # type: ignore[arg-type]
    return Holder(owner, epoch, facts["pid"], facts["supervisor_pid"])


def running(stack: Stack, session: str, *, after: int) -> tuple[str, int, int]:
    """Wait until a session's turn was begun under an epoch later than `after`; return owner, epoch and when that was seen.

    The last one is in nanoseconds of CLOCK_MONOTONIC.
    """
    key = KEYS.head(session_key("default", session))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        state, owner, epoch = stack.redis.hmget(key, ["st", "ow", "ep"])  # type: ignore[misc]
        seen = time.monotonic_ns()
        if state == b"running" and owner and int(epoch or 0) > after:
            return owner.decode(), int(epoch), seen
        time.sleep(LOOK_S)
    raise Unmeasured(f"session {session}: nobody has begun its turn again after {PATIENCE_S} s\n{stack.said()}")
