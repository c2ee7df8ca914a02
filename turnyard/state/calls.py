"""A task's side of its call: take its row, say where it stands, put it off; `ingress.accept_outcome` ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import orjson

from turnyard.records.ids import idempotency_key
from turnyard.records.live import progress_text
from turnyard.state.ingress import accept_outcome
from turnyard.state.reads import text

if TYPE_CHECKING:
    from turnyard.records.commit import CallKind
    from turnyard.records.messages import Accepted
    from turnyard.state.yard import Shard, Yard

Mode = Literal["run", "poll", "resolve"]


@dataclass(frozen=True, slots=True)
class RowStart:
    """Whether this task may run its call, and what to run. Anything but OK and ALREADY means: do not run.

    OFF says that a call whose results are looked for was cancelled: what is said of it is for stopping what goes on elsewhere.
    LOST says that the owner is not alive any more, and nothing about the call: ask again under the next name.
    `mode` is what the task comes for: to run the tool's body, to look again (poll), or to read `raw`, the oldest answer that came
    to the call's URL (resolve). `request` is what the call was parked with. `args` are those that people approved, where they
    changed any; `decided` is what they said. `metadata` is that of the message that the call was made for. `deadline_ms` is when the call times out, by the store's clock.
    """

    code: Literal["OK", "ALREADY", "OFF", "FENCED", "GONE", "LOST"]
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
    mode: Mode = "run"
    kind: CallKind = "lift"
    request: dict[str, Any] | None = None
    raw: dict[str, Any] | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    platform: str = ""
    decided: dict[str, Any] | None = None

    @property
    def expires(self) -> int:
        """Return when the call times out, ms of the store's clock."""
        return self.deadline_ms


async def begin_row(shard: Shard, store: str, call: str, *, owner: str, task: str) -> RowStart:
    """Take a parked call's row for this task: the first one to come has it.

    Raises:
        StoreUnavailable: no answer; ask again with the same owner and task.
    """
    sid, _, ordinal = store.partition(".")
    reply = await shard.run("begin_row", sid, ordinal, call, owner, task)
    code = text(reply[0])
    if code not in ("OK", "ALREADY", "OFF"):
        return RowStart(code)  # pyright: ignore[reportArgumentType]
    body: dict[str, Any] = orjson.loads(reply[1]) if reply[1] else {}
    tenant, session, turn = text(reply[2]), text(reply[3]), text(reply[6])
    decided = _json(reply[13])
    return RowStart(
        code,  # pyright: ignore[reportArgumentType]
        name=body.get("name", ""),
        args=(decided or {}).get("input", body.get("args", {})),
        tenant=tenant,
        session=session,
        user=text(reply[4]),
        agent=text(reply[5]),
        turn=turn,
        deadline_ms=int(reply[7] or 0),
        attempt=int(reply[8] or 1),
        idempotency_key=idempotency_key(tenant, session, turn, call),
        mode=text(reply[9]),  # pyright: ignore[reportArgumentType]
        kind=text(reply[10]),  # pyright: ignore[reportArgumentType]
        request=_json(reply[11]),
        raw=_json(reply[12]),
        decided=decided,
        platform=text(reply[14]),
        metadata=orjson.loads(reply[15]) if reply[15] else {},
    )


async def report(shard: Shard, store: str, call: str, *, owner: str, task: str, fraction: float | None = None, note: str = "") -> bool:
    """Say where the call stands, for `explain`, the session's view and whoever follows; the log does not grow by it.

    `fraction` is how much is done, 0 to 1, None where nobody knows. It stands beside the call's row, goes with its outcome, and the
    latest counts: report at most once per second. False: the call is not this task's any more.

    Raises:
        StoreUnavailable: no answer; it may be noted or not.
    """
    sid, _, ordinal = store.partition(".")
    body = orjson.dumps({"fraction": fraction, "note": note})
    return bool(await shard.run("report", sid, ordinal, call, owner, task, body, progress_text(call, fraction, note)))


async def put_off(
    yard: Yard,
    shard: Shard,
    store: str,
    call: str,
    *,
    owner: str,
    task: str,
    after_ms: int | None,
    request: dict[str, Any] | None = None,
) -> Accepted:
    """Let go of a call that is not done yet: it is handed out again after `after_ms`, at once while answers wait to be read.

    None: when the next answer comes. The answer that this task came to read counts as read. `request` is what the next task has to
    know, which comes to look again. Codes: accepted; duplicate (said before); conflict (the call is not this task's any more).

    Raises:
        StoreUnavailable: no answer; say it again.
    """
    body: dict[str, Any] = {"after_ms": after_ms}
    body |= {} if request is None else {"request": orjson.dumps(request).decode()}
    return await accept_outcome(
        yard, shard=shard.n, store=store, call=call, outcome="later", body=body, secret_hash=None, owner=owner, task=task
    )


def _json(raw: bytes) -> dict[str, Any] | None:
    return orjson.loads(raw) if raw else None


def read_progress(raw: bytes | str | None) -> dict[str, Any] | None:
    """Return what a task last said of its call as {"fraction", "note", "at"} (ms), None when it said nothing."""
    at, _, body = text(raw).partition("\n")
    return {**orjson.loads(body), "at": int(at)} if body else None
