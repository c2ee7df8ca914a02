"""The unanswered calls of the last answer: what their rows and records say, and so how each goes on.

A call that people allowed goes on as what its tool is, with the arguments that were shown to them or those that they gave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnyard.engine.approving import edited
from turnyard.engine.effects import ToolTable
from turnyard.records.commit import CallKind, Row, TurnView
from turnyard.records.log import ASSISTANT, CALL, LogRecord

_MOST_NAMED = 50


@dataclass(frozen=True, slots=True)
class OpenCall:
    """An unanswered call: its row, and what its record says. One of a group was declared to run beside others, whatever became of it."""

    row: Row
    body: dict[str, Any]
    grouped: bool = False

    @property
    def id(self) -> str:
        """Return the call's id."""
        return self.row.call

    @property
    def name(self) -> str:
        """Return the name of its tool."""
        return str(self.body.get("name", ""))

    @property
    def args(self) -> dict[str, Any]:
        """Return what it runs with: what was declared, and shown to people, or what an approver gave in its place."""
        given = edited(self.row)
        return (self.body.get("args") or {}) if given is None else given

    @property
    def refusal(self) -> str | None:
        """Return why it was never to run, None when it was."""
        denied = self.body.get("denied")
        return self.body.get("refused") or (str(denied["content"]) if denied else None)

    @property
    def live(self) -> bool:
        """Tell whether it is this worker's turn to do something about the call."""
        return self.row.state != "parked" and (self.row.outcome is None or self.row.detached)

    @property
    def held(self) -> bool:
        """Tell whether the call waits outside, or its outcome waits to be claimed: nothing after it may start."""
        return not self.live and (self.row.state == "parked" or not self.grouped)


@dataclass(frozen=True, slots=True)
class Batch:
    """The unanswered calls in source order, within one view of one turn."""

    view: TurnView
    facts: ToolTable
    calls: tuple[OpenCall, ...]

    def __getitem__(self, call: str) -> OpenCall:
        return next(c for c in self.calls if c.id == call)

    def mine(self, call: OpenCall) -> bool:
        """Tell whether this worker marked the call STARTED and owes its result."""
        return call.id in self.view.mine

    def kind(self, call: OpenCall) -> CallKind:
        """Return how the call goes on: one that was approved by what its tool is."""
        row = call.row
        if row.kind != "approval" or row.state not in ("allowed", "started"):
            return row.kind
        fact = self.facts.fact(call.name)
        return "plain" if fact is None or fact.kind == "approval" else fact.kind

    def runs(self, call: OpenCall) -> bool:
        """Tell whether the call, as it stands, is run by this worker rather than waited for."""
        row, kind = call.row, self.kind(call)
        if kind == "callback":
            return row.outcome is None and not row.demoted and (row.state in ("open", "allowed") or self.mine(call))
        return kind in ("plain", "parallel")

    def detached(self, call: OpenCall) -> bool:
        """Tell whether a placeholder answers the call once it waits outside."""
        kind = self.kind(call)
        if kind == call.row.kind or kind not in ("lift", "callback", "child"):
            return call.row.detached
        fact = self.facts.fact(call.name)
        return call.row.demoted or fact is None or not fact.awaited

    def judges(self, call: OpenCall) -> bool:
        """Tell whether the call was approved and is to be judged once more before anything of it is done."""
        return self.facts.judged and call.row.state == "allowed" and self.refusal(call) is None

    def refusal(self, call: OpenCall) -> str | None:
        """Return why the call is answered with an error instead of being run, None when it may run.

        One that this worker runs may be of a tool that is gone by now: its result is what came of it.
        """
        if call.refusal is not None or self.mine(call):
            return call.refusal
        return None if self.facts.fact(call.name) is not None else unknown_tool(call.name, self.facts)


def open_batch(view: TurnView, facts: ToolTable) -> Batch:
    """Return the unanswered calls of the last answer with their names and arguments."""
    if not view.rows:
        return Batch(view, facts, ())
    said: dict[str, LogRecord] = {}
    for entry in reversed(view.entries):
        if entry.type == ASSISTANT:
            break
        if entry.type == CALL and entry.call:
            said[entry.call] = entry
    return Batch(view, facts, tuple(_open_call(row, said.get(row.call)) for row in view.rows))


def _open_call(row: Row, record: LogRecord | None) -> OpenCall:
    body: dict[str, Any] = {} if record is None else record.body
    grouped = "parallel" in (row.kind, None if record is None else record.kind)
    return OpenCall(row, body, grouped)


def unknown_tool(name: str, facts: ToolTable) -> str:
    """Return what a model is told that called a tool nobody has."""
    known = sorted(facts.tools)
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return f"{facts.absence(name)}; not executed. Tools: {', '.join(known[:_MOST_NAMED]) or 'none'}{more}"
