"""What happens next in a turn, and which commit follows from what came of it.

`next_effect` and `commit_after` are the worker's side of the protocol as pure functions of a `TurnView`: the same view
gives the same decision on any worker. A turn ends without a model call when nothing is new since the last answer, so
a duplicate wake costs nothing. A replay repeats at most the one effect whose commit is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from turnyard.engine.arguments import read_arguments
from turnyard.engine.batch import (
    Batch,
    OpenCall,
    batch_effect,
    first_marks,
    open_batch,
    result_commit,
    running_batch,
)
from turnyard.engine.effects import (
    AskModel,
    Effect,
    Failure,
    ModelAnswer,
    NoEffect,
    Parked,
    Result,
    RunTool,
    ToolFact,
    ToolResult,
    ToolTable,
)
from turnyard.engine.pending import read_pending
from turnyard.ports import AskedCall, Done
from turnyard.records import ids
from turnyard.records.commit import Commit, NewCall, Note, Row, Say, TurnView
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, NOTICE, RESULT, LogRecord

_PLAIN = ToolFact()
_TURN, _OUTPUT = "turn", "output"
_MAX_CORRECTIONS = 2
_NO_LANE = frozenset({"", "http", "local", "client"})


def next_effect(view: TurnView, facts: ToolTable) -> Effect:
    """Return the one thing to do now in the turn that `view` shows."""
    if view.cancel:
        return NoEffect(Commit(ending="finish", closing=True, lanes=_lanes(view)))
    batch = open_batch(view, facts)
    if (view.drain or view.yield_) and not running_batch(batch):
        return NoEffect(Commit(ending="yield", unstart=tuple(r.call for r in view.rows if r.call in view.mine)))
    if batch.calls:
        return batch_effect(batch)
    return _between(view, facts)


def commit_after(view: TurnView, effect: Effect, *, result: Result, facts: ToolTable) -> Commit:
    """Return the commit that follows `effect`, which `result` came of, on the view that asked for it.

    For a call of a `RunBatch` pass the `RunTool` of that call and the newest view.
    """
    match effect, result:
        case NoEffect(commit=commit), _:
            return commit
        case AskModel(), ModelAnswer(done=done):
            return _say(view, facts, done)
        case AskModel(), Failure() as failure:
            return _fail(view, failure)
        case RunTool(row=row), ToolResult() | Parked():
            batch = open_batch(view, facts)
            pending = read_pending(result.content) if isinstance(result, ToolResult) and row.kind == "plain" else None
            return result_commit(batch, batch[row.call], pending or result)
        case _:
            raise TypeError(f"{type(effect).__name__} cannot end with {type(result).__name__}")


# -- between two answers ----------------------------------------------------------------------------------------------


def _between(view: TurnView, facts: ToolTable) -> Effect:
    """Return what is due when every call is answered: ask again, end, or stop at a limit."""
    if view.code == "AWAITS":
        return NoEffect(Commit(ending="park"))
    new = _unseen(view)
    if not new or any(e.type == RESULT and e.body.get("closes") and not e.aside for e in new):
        return NoEffect(_finish(view, facts))
    stop = _limit(view, facts)
    return AskModel(f"{view.turn}:{view.rev + 1}") if stop is None else NoEffect(_fail(view, stop))


def _unseen(view: TurnView) -> list[LogRecord]:
    """Return what this turn brought since the last answer; a summary is nothing new."""
    found: list[LogRecord] = []
    for entry in reversed(view.entries):
        if entry.type == ASSISTANT:
            break
        if entry.turn == view.turn and entry.type not in (CALL, COMPACTION):
            found.append(entry)
    return found


def _of_turn(view: TurnView) -> Iterator[LogRecord]:
    """Yield the entries of the open turn, newest first. They are the last ones of the log."""
    for entry in reversed(view.entries):
        if entry.turn != view.turn:
            return
        yield entry


def _limit(view: TurnView, facts: ToolTable) -> Failure | None:
    asked = called = tokens = 0
    for entry in _of_turn(view):
        if entry.type == ASSISTANT:
            asked += 1
            usage: dict[str, int] = entry.body.get("usage") or {}
            tokens += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        elif entry.type == CALL:
            called += 1
    if asked >= facts.model_calls:
        return Failure("step_limit", _too_many(view, facts))
    if facts.tool_calls is not None and called > facts.tool_calls:
        return Failure("step_limit", f"the turn made {called} tool calls and may make {facts.tool_calls}; raise Limits(tool_calls=...)")
    if facts.tokens is not None and tokens > facts.tokens:
        return Failure("budget_exceeded", f"the turn used {tokens} tokens and may use {facts.tokens}; raise Limits(tokens=...)")
    return None


def _too_many(view: TurnView, facts: ToolTable) -> str:
    terminal = facts.forced_terminal
    if terminal and not _has_called(view, terminal):
        return f"the model never called {terminal} in {facts.model_calls} model calls; the provider may ignore tool_choice"
    return f"the turn asked the model {facts.model_calls} times without an end; raise Limits(model_calls=...)"


def _has_called(view: TurnView, name: str) -> bool:
    return any(e.type == CALL and e.body.get("name") == name for e in _of_turn(view))


# -- after the model answered -----------------------------------------------------------------------------------------


def _say(view: TurnView, facts: ToolTable, done: Done) -> Commit:
    """Return the commit of one answer: its calls are recorded, or it ends the turn."""
    calls = _new_calls(view, facts, done.calls)
    say = Say({"text": done.text, "usage": done.usage, "model": done.model, "finish": done.finish}, calls)
    usage = {"model_calls": 1} | (done.usage or {})
    if calls:
        return Commit(append=(say,), start=_starts(view, facts, calls), usage=usage, lanes=_lanes(view) if done.text else ())
    correction = _correction(view, facts, done.text)
    if correction is not None and (correction.body["key"] != _OUTPUT or _corrections(view) < _MAX_CORRECTIONS):
        return Commit(append=(say, correction), claim=True, usage=usage)
    if correction is not None:
        failed = Failure("output_invalid", f"after {_MAX_CORRECTIONS} corrections the reply still does not fit the required output")
        return replace(_fail(view, failed), append=(say,), usage=usage)
    return _finish(view, facts, say=say, usage=usage)


def _new_calls(view: TurnView, facts: ToolTable, asked: tuple[AskedCall, ...]) -> tuple[NewCall, ...]:
    """Give each call an id of ours, unique in the session whatever the provider sent, and judge its arguments."""
    together = facts.parallel > 1 and sum(1 for c in asked if facts.tools.get(c.name, _PLAIN).kind == "plain") > 1
    seen: set[str] = set()
    calls: list[NewCall] = []
    for index, call in enumerate(asked):
        fact = facts.tools.get(call.name, _PLAIN)
        given = read_arguments(call.arguments)
        ident = ids.call_id(view.store, view.turn, view.rev + 1, index)
        provider_id = ident if not call.id or call.id in seen else call.id
        seen.add(call.id)
        body: dict[str, Any] = {"name": call.name, "args": given.value, "provider_id": provider_id}
        if given.refusal is not None:
            body["refused"] = given.refusal
        refused = given.refusal is not None or call.name not in facts.tools
        kind = "plain" if refused else fact.kind
        kind = "parallel" if kind == "plain" and together else kind
        awaited = fact.awaited and not refused
        calls.append(NewCall(ident, kind, body, awaited, fact.idempotent, fact.queue if kind == "lift" else None, fact.timeout_ms))
    return tuple(calls)


def _starts(view: TurnView, facts: ToolTable, calls: tuple[NewCall, ...]) -> tuple[str, ...]:
    """Return the calls whose STARTED mark rides along with the answer that makes them."""
    rows = [Row(c.id, c.kind, "open", c.awaited, None, demoted=False, idempotent=c.idempotent, decision=None) for c in calls]
    fresh = tuple(OpenCall(r, c.body["name"], c.body["args"], c.body.get("refused")) for r, c in zip(rows, calls, strict=True))
    batch = Batch(view, facts, fresh)
    return first_marks(batch, fresh) if batch.runs(fresh[0]) else ()


def _correction(view: TurnView, facts: ToolTable, text: str) -> Note | None:
    """Return the notice that sends a reply back, None when it may end the turn."""
    terminal = facts.forced_terminal
    if terminal and not _has_called(view, terminal):
        # bounded by the model calls of the turn, whose failure names the tool
        say = f"Your reply did not end the session: only a call of {terminal} does. Call it when you are done."
        return Note(NOTICE, {"text": say, "group": _TURN, "key": terminal, "tag": "notice"})
    try:
        _output(facts, text)
    except ValueError as error:
        say = f"Your reply does not fit the required output: {error}. Reply again with the JSON alone."
        return Note(NOTICE, {"text": say, "group": _TURN, "key": _OUTPUT, "tag": "notice"})
    return None


def _corrections(view: TurnView) -> int:
    """Count the replies of this turn that were sent back for their output."""
    return sum(1 for e in _of_turn(view) if e.type == NOTICE and e.body.get("group") == _TURN and e.body.get("key") == _OUTPUT)


def _output(facts: ToolTable, text: str) -> Any:
    return facts.read_output(text) if facts.read_output is not None else None


# -- endings ----------------------------------------------------------------------------------------------------------


def _finish(view: TurnView, facts: ToolTable, *, say: Say | None = None, usage: dict[str, int] | None = None) -> Commit:
    """Return the commit that ends the turn with its last text; `silent` marks a reply without a word of its own."""
    said = say.body["text"] if say else ""
    output: dict[str, Any] = {"text": said or _last_text(view), "output": _output(facts, said) if say and said else None}
    if say is not None and not said:
        output["silent"] = True
    return Commit(append=(say,) if say else (), ending="finish", output=output, usage=usage or {}, lanes=_lanes(view))


def _fail(view: TurnView, failure: Failure) -> Commit:
    """Return the commit that ends the turn's jobs as failed; what was said before stays as the partial result."""
    error = {"code": failure.code, "message": failure.message, "retryable": failure.retryable, "ref": failure.ref}
    return Commit(ending="finish", failure=error, output={"text": _last_text(view), "output": None}, lanes=_lanes(view))


def _last_text(view: TurnView) -> str:
    return next((e.body["text"] for e in _of_turn(view) if e.type == ASSISTANT and e.body.get("text")), "")


def _lanes(view: TurnView) -> tuple[str, ...]:
    """Return the lane of the platform the session lives on, if replies are sent there."""
    platform = view.head.get("platform", "")
    return () if platform in _NO_LANE else (platform,)
