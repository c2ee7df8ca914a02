"""What the words of an entry are, and what a model reads where no tool has spoken: a sentence that says what to do now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from turnyard.engine.effects import READ_ENTRY
from turnyard.records.approvals import DENIED
from turnyard.records.log import CALL, RESULT, LogRecord

_OUTCOMES = {
    "timeout": "No result: the call did not finish in time. Its effect is unknown; verify before repeating it.",
    "cancelled": "Cancelled: the call was stopped before it gave a result. Do not repeat it unless asked to.",
    "denied": DENIED,
    "superseded": "Not done: the user wrote something new before anybody had decided or answered. Follow the newer message.",
    "unknown": "Outcome unknown: the worker that ran this call was lost. It may have taken effect; verify before repeating it.",
}
_ASKED = {
    "timeout": "Not executed: nobody decided about this call in time. Do not try it again; say so or find another way.",
    "superseded": _OUTCOMES["superseded"],
}
_QUESTIONS = {
    "timeout": "No answer: nobody answered in time. Say what you assume, and go on with that.",
    "superseded": "No answer: the user wrote something new instead. Follow the newer message.",
    "cancelled": "No answer: the question was taken back.",
}
_BY_KIND = {"approval": _ASKED, "question": _QUESTIONS}
INTERRUPTED = "Interrupted: this call has no result. Its effect is unknown; verify before repeating it."


def outcome_text(outcome: str | None, name: str, call: str, *, kind: str | None = None, facts: Mapping[str, Any] | None = None) -> str:
    """Return what stands for the result of a call whose record has no text. `kind` is what it waited for, `facts` what the record holds."""
    if outcome == "placeholder":
        known = facts or {}
        said: dict[str, Any] = {key: known[key] for key in ("note", "correlation", "expires_in_ms") if key in known}
        return pending_text(name, call, **said)
    if text := _BY_KIND.get(kind or "", {}).get(outcome or ""):
        return text
    return _OUTCOMES.get(outcome or "", INTERRUPTED)


def pending_text(name: str, call: str, *, note: str = "", correlation: str | None = None, expires_in_ms: int | None = None) -> str:
    """Return the sentence that answers a parked call until its result is there."""
    which = f"call {call} of {name}" if name else f"call {call}"
    where = f" (correlation id {correlation})" if correlation else ""
    limit = f" It is given up after {expires_in_ms // 1000} s." if expires_in_ms else ""
    lead = f"{note}\n" if note else ""
    return f"{lead}Pending: {which}{where} is still running elsewhere. Do not retry it; its result will follow in a later message.{limit}"


def denied_text(reason: str, guidance: str = "") -> str:
    """Return the result of a call that a rule denies."""
    return "\n\n".join(part for part in (reason, guidance) if part)


def edited_text(args: dict[str, Any], content: str) -> str:
    """Return the result of a call that a person allowed with other arguments, which the model has to know."""
    return f"[approved with other arguments: {orjson.dumps(args).decode()}]\n{content}"


def late_text(name: str, call: str, content: str, *, late: bool) -> str:
    """Return the user message that brings the result of a call which was answered before."""
    when = "late result for the call that was given up" if late else "result for the earlier pending call"
    return f"[{name or 'tool'} {call}] {when}: {content}"


def orphan_text(name: str, call: str, content: str) -> str:
    """Return the user message that brings a result which answers no call that is shown."""
    return f"[{name or 'tool'} {call or 'unknown'}] result for an earlier call: {content}"


def text_of(entry: LogRecord, tool: str = "") -> str:
    """Return the words of an entry, those of its parts joined; `tool` is the name of the tool that a result is of."""
    body = entry.body
    if entry.type == RESULT:
        return _result_text(entry, tool)
    if entry.type == CALL:
        return arguments_of(entry)
    if body.get("parts"):
        return parts_text(body["parts"])
    return str(body.get("text") or "")


def arguments_of(entry: LogRecord) -> str:
    """Return the arguments of a call as the JSON object that every model API wants."""
    args: Any = entry.body.get("args") or {}
    return orjson.dumps(cast("Any", args if isinstance(args, dict) else {"arguments": args})).decode()


def parts_text(parts: Sequence[Any]) -> str:
    """Return the texts of a message's parts, a line each."""
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _result_text(entry: LogRecord, tool: str) -> str:
    body = entry.body
    if "content" not in body:
        return outcome_text(entry.outcome, tool, entry.call or str(entry.seq), kind=entry.kind, facts=body)
    text = str(body["content"])
    text = f"ERROR: {text}" if body.get("is_error") and not text.startswith("ERROR:") else text
    if not body.get("ref") or body.get("media_type"):
        return text
    return f"{text}\n[event_id={entry.seq}: the whole has {body.get('size')} bytes; {READ_ENTRY} shows parts of it, offset and length being bytes]"
