"""What people are asked, and what they may answer: an approval of a call, or a question.

An approval is the record of one call that waits for people. What it asks never changes once it is asked, and it is decided once.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

import orjson

from turnyard.errors import InvalidInput
from turnyard.text import scrub, scrub_tree

ApprovalKind = Literal["allow_deny", "question"]
ApprovalState = Literal["pending", "allowed", "denied", "answered", "timeout", "superseded", "cancelled"]
DecideCode = Literal["accepted", "duplicate", "conflict", "expired", "gone", "not_approver"]

DENIED = "Denied: a person refused this call; it was not executed. Do not try it again; say so or find another way."
UNANSWERED = "No answer: a person declined to answer this. State your assumptions and go on, or find another way."
APPROVAL_PREFIX = "apr_"
_MOST_ID = 200


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody says to an approval. `by` is who, as the door knows them; "" may decide nothing.

    `scope` session lets the session do the same again unasked, where the approval offers that. `input` are arguments in place of the
    model's, of an allow; None leaves them. `reason` of a deny is told to the model. `answer` is that of a question: a text, the number
    of an option (from 1) or its label, or several of them.
    """

    decision: Literal["allow", "deny", "answer"]
    by: str
    scope: Literal["once", "session"] = "once"
    input: dict[str, Any] | None = None
    reason: str | None = None
    answer: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A call that waits for people, or what became of it. `user` is who asked ("": nobody knows).

    `tool` and `args` are what will run; of a question `args` is all it says and `reason` its prompt. `approvers` are those who may
    decide (exact ids, `*` for anyone, globs; none: whoever may use the API); without `self_approve` the asker may not. With `scope`
    anyone a newer message of any user takes its place, else only the asker's. `remember` "session" offers the scope session.
    `expires_ms` is when it is given up, by the server's clock. `decided` is {"by", "at"} (ms) and what else was said, None while
    nobody has decided.
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

    def may_be_decided_by(self, who: str) -> bool:
        """Tell whether this user may decide. Nobody may without a name: who decided is part of the record."""
        if not who or (not self.self_approve and who == self.user):
            return False
        return not self.approvers or any(who == entry or fnmatchcase(who, entry) for entry in self.approvers)


@dataclass(frozen=True, slots=True)
class ApprovalPage:
    """Some of what is waited for, oldest first. `next` is where the page after it begins, None when there is none."""

    items: tuple[Approval, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a decision, and the approval as it is now (None: gone).

    Codes: accepted; duplicate (the same person said the same before); conflict (another decision stands, or the call was cancelled or
    superseded: `approval.state` says which); expired; gone (no such approval, or none of this tenant); not_approver.
    """

    code: DecideCode
    approval: Approval | None = None


def approval_id(shard: int, store: str, call: str) -> str:
    """Return how people name a call that waits for them: it says where its row is, and is no secret."""
    return APPROVAL_PREFIX + base64.urlsafe_b64encode(f"{shard}|{store}|{call}".encode()).decode().rstrip("=")


def read_approval_id(ident: str) -> tuple[int, str, str] | None:
    """Return (shard, store, call) of what `approval_id` made, or None when it is none of ours."""
    if not ident.startswith(APPROVAL_PREFIX) or len(ident) > _MOST_ID or not ident.isascii():
        return None
    raw = ident.removeprefix(APPROVAL_PREFIX)
    try:
        shard, store, call = base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)).decode("ascii").split("|")
        number = int(shard)
    except ValueError:
        return None
    return (number, store, call) if number >= 0 and approval_id(number, store, call) == ident else None


def default_answer(approval: Approval) -> str:
    """Return what is meant by an answer that says nothing, "" where that means nothing."""
    default = approval.args.get("default")
    return default.strip() if approval.kind == "question" and isinstance(default, str) else ""


def is_blank(answer: Any) -> bool:
    """Tell whether an answer says nothing."""
    return answer is None or answer == [] or (isinstance(answer, str) and not answer.strip())


def check(approval: Approval, decision: Decision) -> None:
    """Refuse a decision that is none about this.

    Raises:
        InvalidInput: a question cannot be allowed, an approval not be answered; or the answer is empty.
    """
    if decision.decision == ("allow" if approval.kind == "question" else "answer"):
        what = "a question: answer it, or deny an answer" if approval.kind == "question" else "an approval: allow or deny it"
        raise InvalidInput(f"{approval.id} is {what}")
    if decision.decision == "answer" and is_blank(decision.answer) and not default_answer(approval):
        raise InvalidInput(f"the answer to {approval.id} is empty: say something, or name an option")


def said(approval: Approval, decision: Decision) -> tuple[str, dict[str, Any], str]:
    """Return (outcome, body, grant) of a decision. A session grant that was not offered is an allow for this once."""
    if decision.decision == "answer":
        return "result", {"content": scrub(answer_text(approval, decision.answer)), "is_error": False}, ""
    kept: dict[str, Any] = {"by": decision.by} | ({"reason": scrub(decision.reason)} if decision.reason else {})
    if decision.decision == "deny":
        lead = UNANSWERED if approval.kind == "question" else DENIED
        content = f"{lead}\nThe reason given: {kept['reason']}" if decision.reason else lead
        return "deny", {"content": content, "audit": {"decision": "deny", **kept}}, ""
    scope = decision.scope if approval.remember == "session" else "once"
    edited = {} if decision.input is None else {"input": scrub_tree(decision.input)}
    return "allow", {**kept, "scope": scope, **edited}, approval.tool if scope == "session" else ""


def answer_text(approval: Approval, answer: Any) -> str:
    """Return what a model is told of an answer: options by their labels, one of them unless several may be chosen.

    What names no option is taken as it is: people may always say something else. One that says nothing is the question's default.
    """
    if is_blank(answer):
        answer = default_answer(approval)
    if not approval.options:
        return answer if isinstance(answer, str) else orjson.dumps(answer).decode()
    given: Sequence[Any] = cast("list[Any]", answer) if isinstance(answer, list) else [answer]
    chosen = [_option(approval.options, one) for one in given]
    return ", ".join(chosen if approval.multi_select else chosen[:1])


def _option(options: tuple[str, ...], given: Any) -> str:
    said = (given if isinstance(given, str) else orjson.dumps(given).decode()).strip()
    labels = {label.casefold(): label for label in options}
    if said.casefold() in labels:
        return labels[said.casefold()]
    number = int(said) if said.isdecimal() and len(said) < 4 else 0
    return options[number - 1] if 0 < number <= len(options) else said
