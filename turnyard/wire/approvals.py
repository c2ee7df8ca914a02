"""How what a person said becomes the decision of a parked call, and what a refusal means.

Whoever reaches a tenant's approvals may read them; who may decide one is checked where it is decided, in the step that
also makes the first decision stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnyard import errors
from turnyard.errors import InvalidInput, NotFound
from turnyard.records.approvals import Approval, Decided, Decision, default_answer, is_blank
from turnyard.records.input import check_id
from turnyard.text import scrub
from turnyard.wire.edge import Edge
from turnyard.wire.fitting import faults_of

NO_APPROVAL = "no such approval: check the id; decided ones are kept for a week"
MAX_REASON_CHARS = 2_000

Choice = str | int
Answer = Choice | Sequence[Choice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What somebody says about an approval, as it was sent. `user` is who says so.

    `answer` is for questions: an option by its number (from 1) or label, several in a list, or free text.
    """

    decision: Literal["allow", "deny", "answer"]
    user: str
    scope: Literal["once", "session"] = "once"
    input: dict[str, Any] | None = None
    reason: str | None = None
    answer: Answer | None = None


class Unfit(InvalidInput):
    """The arguments do not fit the tool: correct each of `errors` and send them again."""

    def __init__(self, faults: list[dict[str, str]]) -> None:
        first = faults[0]
        super().__init__(f"{first['pointer']} {first['detail']}", pointer=first["pointer"])
        self.errors = faults


async def list_approvals(
    edge: Edge, *, tenant: str, session: str | None, limit: int, after: str | None
) -> tuple[Sequence[Approval], str | None]:
    """Return what waits for people, oldest first, and the cursor behind it.

    Raises:
        NotFound: the session that is asked for does not exist.
    """
    if session is None:
        page = await edge.pending_approvals(tenant=tenant, limit=limit, after=after)
        return page.items, page.next
    view = await edge.read_session(session, tenant=tenant)
    if view is None:
        raise NotFound(f"no session {session!r}: check the id")
    found = [await edge.read_approval(call.approval, tenant=tenant) for call in view.parked if call.approval is not None]
    return [each for each in found if each is not None and each.state == "pending"][:limit], None


async def find_approval(edge: Edge, approval: str, *, tenant: str) -> Approval:
    """Return an approval of the tenant.

    Raises:
        NotFound: there is none; another tenant's looks the same.
    """
    found = await edge.read_approval(approval, tenant=tenant)
    if found is None:
        raise NotFound(NO_APPROVAL)
    return found


async def decide_approval(edge: Edge, approval: str, verdict: Verdict, *, tenant: str) -> tuple[Approval, bool]:
    """Decide an approval or answer a question; return it, and whether the same had been said before.

    The first decision stands, and the same one again changes nothing.

    Raises:
        NotFound: there is none of this tenant.
        InvalidInput: the decision is not one for it, or its arguments do not fit the tool.
        NotApprover: this user may not decide it.
        AlreadyDecided: it was decided otherwise.
        Expired: its time is over.
    """
    asked = await find_approval(edge, approval, tenant=tenant)
    decided = await edge.decide(approval, await _decision(edge, asked, verdict), tenant=tenant)
    if decided.code not in ("accepted", "duplicate") or decided.approval is None:
        raise _refusal(decided, asked)
    return decided.approval, decided.code == "duplicate"


def _refusal(decided: Decided, asked: Approval) -> errors.TurnyardError:
    match decided.code:
        case "not_approver":
            own = "" if asked.self_approve else "; whoever asked for it may not"
            return errors.NotApprover(f"this may be decided by {', '.join(asked.approvers) or 'anybody who says who they are'}{own}")
        case "expired":
            return errors.Expired("its time is over: the model was told that nobody decided")
        case "conflict":
            return errors.AlreadyDecided(_what_stands(decided.approval or asked))
        case _:
            return NotFound(NO_APPROVAL)


def _what_stands(approval: Approval) -> str:
    """Return what became of an approval that cannot be decided any more."""
    by = (approval.decided or {}).get("by")
    if by:
        return f"{by} decided this first: it is {approval.state}"
    return f"it is {approval.state}: nobody's decision is waited for any more"


async def _decision(edge: Edge, asked: Approval, verdict: Verdict) -> Decision:
    if asked.kind == "question":
        return _of_question(asked, verdict)
    if verdict.decision == "answer":
        raise InvalidInput("this is no question: allow or deny it", pointer="/decision")
    if verdict.scope == "session" and (verdict.decision != "allow" or asked.remember != "session"):
        raise InvalidInput("this is decided once; it is not remembered for the session", pointer="/scope")
    if verdict.input is not None:
        if verdict.decision != "allow":
            raise InvalidInput("arguments go with allow; to deny, give a reason", pointer="/input")
        await _check_input(edge, asked, verdict.input)
    return Decision(
        decision=verdict.decision,
        by=check_id(verdict.user, pointer="/user"),
        scope=verdict.scope,
        input=verdict.input,
        reason=scrub(verdict.reason)[:MAX_REASON_CHARS] if verdict.reason else None,
    )


def _of_question(asked: Approval, verdict: Verdict) -> Decision:
    if verdict.decision != "answer":
        raise InvalidInput("this is a question: answer it", pointer="/decision")
    if verdict.input is not None or verdict.scope != "once":
        raise InvalidInput("a question has no arguments and is answered once", pointer="/input" if verdict.input is not None else "/scope")
    return Decision(decision="answer", by=check_id(verdict.user, pointer="/user"), answer=read_answer(asked, verdict.answer))


def read_answer(asked: Approval, answer: Answer | None) -> str | list[str]:
    """Return an answer in words: options by their labels, everything else as it was written, nothing as the question's default.

    Raises:
        InvalidInput: it is empty, or names an option that is not there, or several where one is asked for.
    """
    if is_blank(answer) and default_answer(asked):
        return _chosen(asked, default_answer(asked), "/answer")
    if isinstance(answer, str | int):
        return _chosen(asked, answer, "/answer")
    if not answer:
        raise InvalidInput("say what the answer is: an option by its number or label, or free text", pointer="/answer")
    if not asked.multi_select:
        if len(answer) > 1:
            raise InvalidInput("this question takes one answer", pointer="/answer")
        return _chosen(asked, answer[0], "/answer/0")
    return list(dict.fromkeys(_chosen(asked, item, f"/answer/{i}") for i, item in enumerate(answer)))


def _chosen(asked: Approval, item: Choice, pointer: str) -> str:
    labels = asked.options
    if isinstance(item, int):
        if not 1 <= item <= len(labels):
            raise InvalidInput(
                f"the options are numbered from 1 to {len(labels)}" if labels else "this question has no options", pointer=pointer
            )
        return labels[item - 1]
    said = item.strip()
    if not said:
        raise InvalidInput("an answer has some text", pointer=pointer)
    label = next((label for label in labels if label.casefold() == said.casefold()), None)
    if label is None and said.isascii() and said.isdigit() and said in {str(n) for n in range(1, len(labels) + 1)}:
        label = labels[int(said) - 1]
    return scrub(said) if label is None else label


async def _check_input(edge: Edge, asked: Approval, given: dict[str, Any]) -> None:
    manifest = await edge.manifest(asked.agent)
    facts = next((tool for tool in manifest.tools if tool.name == asked.tool), None) if manifest else None
    faults = faults_of(given, facts.schema, pointer="/input") if facts else []
    if faults:
        raise Unfit(faults)
