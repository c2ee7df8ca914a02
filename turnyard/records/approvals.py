"""What people decide: a call that may not run before somebody allows it, or a question of a turn.

An approval has no record of its own: it is a parked call, and its id says where that call's row is. The id is no secret;
who may read or decide it is asked of the tenant and of the row.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Literal

ApprovalKind = Literal["allow_deny", "question"]
ApprovalState = Literal["pending", "allowed", "denied", "answered", "timeout", "superseded", "cancelled"]

_PREFIX = "apr_"
_MOST_CHARS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One approval or question, pending or decided.

    `user` is who asked the agent. `approvers` may decide: user ids or globs of them, empty: whoever may use the API; without
    `self_approve` not `user`. With `scope` anyone a newer message of any user takes its place, else only one of `user`.
    With `remember` session the tool may be allowed for the whole session. `options` are the labels of a question's choices.
    `decided` is what was said: {"by", "at" (ms)}, and where they were given "scope", "input", "reason" and "answer".
    Times are milliseconds of the server's clock.
    """

    id: str
    kind: ApprovalKind
    tenant: str
    session: str
    agent: str
    user: str
    turn: str
    call: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict[str, Any])
    reason: str = ""
    approvers: tuple[str, ...] = ()
    self_approve: bool = True
    scope: Literal["asker", "anyone"] = "asker"
    remember: Literal["session"] | None = None
    options: tuple[str, ...] = ()
    multi_select: bool = False
    since_ms: int = 0
    expires_ms: int | None = None
    state: ApprovalState = "pending"
    decided: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What somebody says about an approval; `by` is who.

    `scope` session allows the tool for the rest of the session. `input` are arguments in place of the model's. `answer` is that
    of a question, in words; of several choices a list.
    """

    decision: Literal["allow", "deny", "answer"]
    by: str
    scope: Literal["once", "session"] = "once"
    input: dict[str, Any] | None = None
    reason: str | None = None
    answer: str | list[str] | None = None


def approval_id(shard: int, store: str, call: str) -> str:
    """Return the id of what a parked call asks: the same for the same call."""
    return _PREFIX + base64.urlsafe_b64encode(f"{shard}|{store}|{call}".encode()).decode().rstrip("=")


def read_approval_id(approval: str) -> tuple[int, str, str] | None:
    """Return (shard, store, call) of an id, or None when it is not one."""
    if not approval.startswith(_PREFIX) or len(approval) > _MOST_CHARS or not approval.isascii():
        return None
    raw = approval.removeprefix(_PREFIX)
    try:
        shard, store, call = base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)).decode("ascii").split("|")
        number = int(shard)
    except ValueError:
        return None
    # One call, one spelling.
    return (number, store, call) if number >= 0 and approval_id(number, store, call) == approval else None
