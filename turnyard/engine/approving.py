"""What stands in a call's record of what the rules say of it, what people are asked, and what is kept of their answer.

What people are shown is what runs: the question holds the arguments and their hash, both are those of the call's record, and
nothing but an approver's own arguments takes their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import orjson

from turnyard.engine.effects import Judgement
from turnyard.engine.texts import denied_text
from turnyard.records.commit import Note, Row
from turnyard.records.ids import body_hash

REQUESTED = "permission/request"
_TERMS = ("reason", "approvers", "expires_in_ms", "scope", "self_approve", "remember")
_SHOWN = ("tool", "args", "reason", "approvers", "expires_in_ms", "self_approve", "remember", "options", "multi_select")


def verdict_of(judgement: Judgement) -> dict[str, Any]:
    """Return what the record of a call holds of its judgement; nothing where it is simply allowed."""
    audit = dict(judgement.audit)
    if judgement.decision == "deny":
        content = judgement.reason if judgement.faulty else denied_text(judgement.reason, judgement.guidance)
        body: dict[str, Any] = {"content": content, "is_error": judgement.faulty}
        return {"denied": body | ({"audit": audit} if audit else {})}
    kept = {"audit": audit} if audit else {}
    return kept | {"approval": terms_of(judgement)} if judgement.decision == "ask" else kept


def terms_of(judgement: Judgement) -> dict[str, Any]:
    """Return on which terms people decide."""
    said = asdict(judgement)
    return {name: said[name] for name in _TERMS}


def request_of(name: str, args: dict[str, Any], terms: Mapping[str, Any], *, approval_ms: int) -> dict[str, Any]:
    """Return what people are asked about a call. `approval_ms` is how long where the terms do not say."""
    shown = {"kind": "allow_deny", "tool": name, "args": args, "hash": args_hash(args)}
    return shown | dict(terms) | {"expires_in_ms": terms.get("expires_in_ms") or approval_ms}


def question_of(name: str, args: dict[str, Any], *, expires_in_ms: int) -> dict[str, Any]:
    """Return what people are asked who are to answer a question."""
    options = args.get("options")
    return {
        "kind": "question",
        "tool": name,
        "args": args,
        "reason": str(args.get("prompt") or args.get("text") or ""),
        "options": [str(one) for one in options] if isinstance(options, list) else [],  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        "multi_select": bool(args.get("multi_select")),
        "expires_in_ms": expires_in_ms,
    }


def requested(call: str, request: Mapping[str, Any]) -> Note:
    """Return the event that tells followers of a question to people."""
    kind: Literal["question", "approval"] = "question" if request["kind"] == "question" else "approval"
    return Note(REQUESTED, {"call": call, "kind": kind} | {name: request[name] for name in _SHOWN if name in request})


def consent_of(row: Row) -> dict[str, Any]:
    """Return what is kept, out of the model's sight, of the approval of a call; nothing where there was none."""
    said = row.decided
    if row.decision != "allow" or said is None:
        return {}
    consent = {"decision": "allow", "approved_by": said.get("by"), "approved_at": said.get("at"), "edited": edited(row) is not None}
    return consent | {name: said[name] for name in ("reason", "scope") if said.get(name)}


def audit_of(body: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """Return what is kept with the result of a call: what the rules said of it, then what people did."""
    return {**(body.get("audit") or {}), **consent_of(row)}


def edited(row: Row) -> dict[str, Any] | None:
    """Return the arguments that an approver gave in place of the model's; None when there are none."""
    return (row.decided or {}).get("input") if row.decision == "allow" else None


def args_hash(args: dict[str, Any]) -> str:
    """Return the hash by which arguments are known: the same for the same JSON, whatever the order of its keys."""
    return body_hash(orjson.dumps(args, option=orjson.OPT_SORT_KEYS))
