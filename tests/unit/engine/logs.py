"""Short ways to write logs, views and tables down in tests of the engine."""

from __future__ import annotations

from typing import Any

from turnyard.engine.effects import ToolFact, ToolTable
from turnyard.records.commit import CallKind, Row, TurnView
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, NOTICE, RESULT, USER, LogRecord

TURN = "turn_1"


def user(seq: int, text: str = "hi", **body: Any) -> LogRecord:
    """A user's message."""
    return LogRecord(seq, USER, turn=TURN, body={"text": text} | body)


def said(seq: int, text: str = "") -> LogRecord:
    """An answer of the model."""
    return LogRecord(seq, ASSISTANT, turn=TURN, body={"text": text})


def asked(seq: int, call: str, name: str = "add", **body: Any) -> LogRecord:
    """A call the model made."""
    return LogRecord(seq, CALL, turn=TURN, call=call, body={"name": name, "args": {}} | body)


def got(seq: int, call: str, content: str | None = "3", **fields: Any) -> LogRecord:
    """A result; content None leaves the text to the outcome."""
    body = fields.pop("body", {"content": content, "is_error": False} if content is not None else {})
    return LogRecord(seq, RESULT, turn=TURN, call=call, outcome=fields.pop("outcome", "result"), body=body, **fields)


def noticed(seq: int, text: str = "news", kind: str = NOTICE, **body: Any) -> LogRecord:
    """A notice, or an entry of another kind that carries text."""
    return LogRecord(seq, kind, turn=TURN, body={"text": text} | body)


def folded(seq: int, text: str = "before") -> LogRecord:
    """A summary."""
    return LogRecord(seq, COMPACTION, turn=TURN, body={"text": text})


def row(call: str, kind: CallKind = "plain", state: Any = "open", **fields: Any) -> Row:
    """A row without an outcome."""
    given: dict[str, Any] = {"awaited": False, "outcome": None, "demoted": False, "idempotent": False, "decision": None} | fields
    return Row(call, kind, state, **given)


def view(*entries: LogRecord, rows: tuple[Row, ...] = (), mine: tuple[str, ...] = (), **fields: Any) -> TurnView:
    """A view of the turn that all these entries are part of."""
    given = {"rev": len(entries)} | fields
    return TurnView("OK", "s", "s.0", TURN, 1, entries=entries, rows=rows, mine=frozenset(mine), **given)


def batch(*rows: Row, names: dict[str, str] | None = None, mine: tuple[str, ...] = (), **fields: Any) -> TurnView:
    """A view whose last answer made these calls; what `names` leaves out is a call of add."""
    calls = [asked(3 + i, r.call, (names or {}).get(r.call, "add")) for i, r in enumerate(rows)]
    return view(user(1), said(2), *calls, rows=rows, mine=mine, **fields)


TABLE = ToolTable(
    tools={
        "add": ToolFact(),
        "render": ToolFact("lift", queue="gpu", timeout_ms=60_000),
        "wait": ToolFact("lift", awaited=True, timeout_ms=60_000),
        "order": ToolFact("callback", timeout_ms=1000),
        "refund": ToolFact("approval", awaited=True),
        "safe": ToolFact(idempotent=True),
    }
)
