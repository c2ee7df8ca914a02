"""A lifted task's side of its call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from turnyard.records.ids import idempotency_key
from turnyard.state.reads import text

if TYPE_CHECKING:
    from turnyard.state.yard import Shard


@dataclass(frozen=True, slots=True)
class RowStart:
    """Whether this task may run its call, and what to run. Anything but OK and ALREADY means: do not run.

    LOST says that the owner is not alive any more, and nothing about the call: ask again under the next name.
    """

    code: Literal["OK", "ALREADY", "FENCED", "GONE", "LOST"]
    name: str = ""
    args: dict[str, Any] | None = None
    tenant: str = ""
    session: str = ""
    user: str = ""
    agent: str = ""
    turn: str = ""
    deadline_ms: int = 0
    attempt: int = 1
    idempotency_key: str = ""


async def begin_row(shard: Shard, store: str, call: str, *, owner: str, task: str) -> RowStart:
    """Take a parked call's row for this task: the first one to come has it.

    Raises:
        StoreUnavailable: no answer; ask again with the same owner and task.
    """
    sid, _, ordinal = store.partition(".")
    reply = await shard.run("begin_row", sid, ordinal, call, owner, task)
    code = text(reply[0])
    if code not in ("OK", "ALREADY"):
        return RowStart(code)  # pyright: ignore[reportArgumentType]
    body: dict[str, Any] = orjson.loads(reply[1]) if reply[1] else {}
    tenant, session, turn = text(reply[2]), text(reply[3]), text(reply[6])
    return RowStart(
        code,  # pyright: ignore[reportArgumentType]
        name=body.get("name", ""),
        args=body.get("args", {}),
        tenant=tenant,
        session=session,
        user=text(reply[4]),
        agent=text(reply[5]),
        turn=turn,
        deadline_ms=int(reply[7] or 0),
        attempt=int(reply[8] or 1),
        idempotency_key=idempotency_key(tenant, session, turn, call),
    )
