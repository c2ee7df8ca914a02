"""How a call that waits outside is given its outcome by whoever holds the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from turnyard.engine.effects import ToolFact
from turnyard.engine.memory import CallRow, MemorySession
from turnyard.engine.results import ParkedCall
from turnyard.errors import AlreadyDecided, Conflict, NotApprover, NotFound
from turnyard.records.approvals import Approval, Decision, check, said


def give_outcome(memory: MemorySession, which: ParkedCall | str, value: Any, error: str | None) -> tuple[CallRow, bool]:
    """Give a call its result, or its error; return its row and whether that was news.

    Raises:
        NotFound: no such call.
        AlreadyDecided: the call has another outcome; the first one stands.
        Conflict: the call takes no outcome.
    """
    row = _find(memory, which)
    body = {"content": _text(value) if error is None else error, "is_error": error is not None}
    settled = memory.outcome(row.call, "result" if error is None else "error", body)
    if settled == "conflict":
        raise AlreadyDecided(f"call {row.call} of {row.name} has the outcome {row.outcome}; the first one stands")
    if settled == "gone":
        raise Conflict(f"call {row.call} of {row.name} takes no outcome")
    return row, settled == "accepted"


def give_raw(memory: MemorySession, which: ParkedCall | str, raw: Any, fact: Callable[[str], ToolFact | None]) -> tuple[CallRow, bool]:
    """Give a call what its vendor said: its result, or what its tool is to read. Returns and raises what `give_outcome` does."""
    row = _find(memory, which)
    known = fact(row.name)
    if known is None or not known.resolves or row.outcome is not None:
        return give_outcome(memory, row.call, raw, None)
    row.raw.append(_text(raw))
    return row, True


def decide(memory: MemorySession, which: ParkedCall | str, decision: Decision) -> CallRow:
    """Decide a call that waits for approval, or answer a question; return its row.

    Raises:
        NotFound: no such call, or it does not wait for people.
        NotApprover: `by` is none of those who may decide. Whoever holds the session may, as nobody in particular ("").
        AlreadyDecided: it was decided otherwise, or came to an end without a decision.
        InvalidInput: a question is to be answered, an approval allowed or denied; or the answer is empty.
    """
    row = _find(memory, which)
    if (row.request or {}).get("kind") not in ("allow_deny", "question"):
        if row.decision is not None:
            raise AlreadyDecided(f"call {row.call} of {row.name} was decided; the first decision stands")
        raise NotFound(f"call {row.call} of {row.name} does not wait for people")
    approval = approval_of(memory.head, row)
    check(approval, decision)
    if decision.by and not approval.may_be_decided_by(decision.by):
        raise NotApprover(
            f"{decision.by} may not decide call {row.call} of {row.name}: {', '.join(approval.approvers) or 'another than the asker'} may"
        )
    outcome, body, grant = said(approval, decision)
    if outcome == "result":
        settled = memory.outcome(row.call, outcome, body)
    else:
        settled = memory.decide(row.call, allow=outcome == "allow", body=body, by=decision.by, grant=grant)
    if settled in ("conflict", "gone"):
        raise AlreadyDecided(f"call {row.call} of {row.name} is {row.outcome or 'allowed'}; the first decision stands")
    return row


def approval_of(head: dict[str, str], row: CallRow) -> Approval:
    """Return what people are asked about a parked call."""
    asked = row.request or {}
    who: dict[str, Any] = {name: head.get(name, "") for name in ("tenant", "session", "agent")}
    return Approval(
        id=row.call,
        kind=asked["kind"],
        **who,
        user=head.get("user", ""),
        turn=row.turn,
        call=row.call,
        tool=row.name,
        args=row.args,
        reason=asked.get("reason", ""),
        approvers=tuple(asked.get("approvers") or ()),
        self_approve=asked.get("self_approve", True),
        scope=asked.get("scope", "asker"),
        remember=asked.get("remember"),
        options=tuple(asked.get("options") or ()),
        multi_select=asked.get("multi_select", False),
        expires_ms=row.deadline_ms,
    )


def _find(memory: MemorySession, which: ParkedCall | str) -> CallRow:
    wanted = which if isinstance(which, str) else which.call
    found = memory.rows.get(wanted)
    found = found or next((r for r in memory.rows.values() if r.correlation == wanted), None)
    if found is None:
        raise NotFound(f"no call {wanted!r} in this session")
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    dump = getattr(value, "model_dump", None)
    return orjson.dumps(dump(mode="json") if dump else value, default=str).decode()
