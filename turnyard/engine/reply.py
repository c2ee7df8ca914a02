"""What becomes of an answer of the model: its calls are recorded, it ends the turn, or it is sent back.

Every call gets an id of ours, unique in the session whatever the provider sent, because servers reuse theirs in each
round and a late result must find the one call it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from turnyard.engine.arguments import Arguments, read_arguments
from turnyard.engine.batch import Batch, OpenCall, first_marks
from turnyard.engine.budget import entries_of
from turnyard.engine.effects import Failure, ToolFact, ToolTable
from turnyard.ports import AskedCall, Done
from turnyard.records import ids
from turnyard.records.commit import CallKind, Commit, NewCall, Note, Row, Say, TurnView
from turnyard.records.log import ASSISTANT, CALL, NOTICE, RESULT

MAX_CORRECTIONS = 2
_PLAIN = ToolFact()
_TURN, _OUTPUT = "turn", "output"
_NO_LANE = frozenset({"", "http", "local", "client", "redis", "child"})
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS = 64


def say(view: TurnView, facts: ToolTable, done: Done) -> Commit:
    """Return the commit of one answer."""
    usage = _with_children(view, {"model_calls": 1} | (done.usage or {}))
    body = {"text": done.text, "usage": done.usage, "model": done.model, "finish": done.finish}
    if not done.calls:
        return _reply(view, facts, body, usage)
    calls = _new_calls(view, facts, done.calls)
    out = lanes(view) if done.text else ()
    return Commit(append=(Say(body, calls),), start=_starts(view, facts, calls), usage=usage, lanes=out)


def _with_children(view: TurnView, usage: dict[str, int]) -> dict[str, int]:
    """Add what the children used whose results the model reads with this answer: each result is read first by one answer."""
    for entry in takewhile(lambda e: e.type != ASSISTANT, reversed(view.entries)):
        used: dict[str, int] = entry.body.get("usage") or {} if entry.type == RESULT and entry.kind == "child" else {}
        for name, n in used.items():
            usage[name] = usage.get(name, 0) + n
    return usage


def fail(view: TurnView, failure: Failure) -> Commit:
    """Return the commit that ends the turn's jobs as failed; what was said before stays as the partial result."""
    error = {"code": failure.code, "message": failure.message, "retryable": failure.retryable, "ref": failure.ref}
    return Commit(ending="finish", failure=error, lanes=lanes(view))


def has_called(view: TurnView, name: str) -> bool:
    """Tell whether the turn has a call of this tool."""
    return any(e.type == CALL and e.body.get("name") == name for e in entries_of(view))


def lanes(view: TurnView) -> tuple[str, ...]:
    """Return the lane of the platform the session lives on, if replies are sent there."""
    platform = view.head.get("platform", "")
    return () if platform in _NO_LANE else (platform,)


# -- a reply without calls --------------------------------------------------------------------------------------------


def _reply(view: TurnView, facts: ToolTable, body: dict[str, Any], usage: dict[str, int]) -> Commit:
    """Return the commit that ends the turn with a reply, or sends it back."""
    terminal = facts.forced_terminal
    if terminal and not has_called(view, terminal):
        # bounded by the model calls of the turn, whose failure names the tool
        text = f"Your reply did not end the session: only a call of {terminal} does. Call it when you are done."
        return Commit(append=(Say(body), _notice(terminal, text)), claim=True, usage=usage)
    if facts.read_output is not None:
        try:
            body["output"] = facts.read_output(body["text"])
        except ValueError as error:
            return _unfit(view, Say(body), usage, str(error))
    return Commit(append=(Say(body),), ending="finish", usage=usage, lanes=lanes(view))


def _unfit(view: TurnView, said: Say, usage: dict[str, int], reason: str) -> Commit:
    """Return the commit for a reply that is not the output the agent must give: corrected, but not for ever."""
    corrected = sum(1 for e in entries_of(view) if e.type == NOTICE and (e.body.get("group"), e.body.get("key")) == (_TURN, _OUTPUT))
    if corrected >= MAX_CORRECTIONS:
        failed = Failure("output_invalid", f"after {corrected} corrections the reply still does not fit the output: {reason}")
        return replace(fail(view, failed), append=(said,), usage=usage)
    text = f"Your reply does not fit the required output: {reason}. Reply again with the JSON alone."
    return Commit(append=(said, _notice(_OUTPUT, text)), claim=True, usage=usage)


def _notice(key: str, text: str) -> Note:
    return Note(NOTICE, {"text": text, "group": _TURN, "key": key, "tag": "notice"})


# -- calls ------------------------------------------------------------------------------------------------------------


def _new_calls(view: TurnView, facts: ToolTable, asked: Sequence[AskedCall]) -> tuple[NewCall, ...]:
    """Give each call an id and a kind, and judge its arguments."""
    judged = [(call, read_arguments(call.arguments)) for call in asked]
    plain = sum(1 for call, _ in judged if facts.tools.get(call.name, _PLAIN).kind == "plain")
    together = facts.parallel > 1 and plain > 1
    seen: set[str] = {""}
    calls: list[NewCall] = []
    for index, (call, given) in enumerate(judged):
        ident = ids.call_id(view.store, view.turn, view.rev + 1, index)
        body = _call_body(call, given, ident if call.id in seen else call.id, facts)
        seen.add(call.id)
        calls.append(_new_call(ident, body, facts, together=together))
    return tuple(calls)


def _call_body(call: AskedCall, given: Arguments, provider_id: str, facts: ToolTable) -> dict[str, Any]:
    # a name that no API accepts would make every later request of the session fail
    name = call.name if call.name in facts.tools else _UNFIT.sub("_", call.name)[:_NAME_CHARS] or "unknown"
    body: dict[str, Any] = {"name": name, "args": given.value, "provider_id": provider_id}
    if given.refusal is not None:
        body["refused"] = given.refusal
    return body


def _new_call(ident: str, body: dict[str, Any], facts: ToolTable, *, together: bool) -> NewCall:
    fact = facts.tools.get(body["name"], _PLAIN) if "refused" not in body else _PLAIN
    kind: CallKind = "parallel" if fact.kind == "plain" and together else fact.kind
    queue = fact.queue if kind == "lift" else None
    return NewCall(ident, kind, body, fact.awaited, fact.idempotent, queue, fact.timeout_ms)


def _starts(view: TurnView, facts: ToolTable, calls: tuple[NewCall, ...]) -> tuple[str, ...]:
    """Return the calls whose STARTED mark rides along with the answer that makes them."""
    rows = [Row(c.id, c.kind, "open", c.awaited, None, demoted=False, idempotent=c.idempotent, decision=None) for c in calls]
    fresh = tuple(OpenCall(r, c.body["name"], c.body["args"], c.body.get("refused")) for r, c in zip(rows, calls, strict=True))
    batch = Batch(view, facts, fresh)
    return first_marks(batch, fresh) if batch.runs(fresh[0]) else ()
