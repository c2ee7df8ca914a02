"""How the calls of an answer, or of a strategy, become calls of the log.

Every call gets an id of ours, unique in the session whatever the provider sent, because servers reuse theirs in each
round and a late result must find the one call it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from turnyard.engine.approving import verdict_of
from turnyard.engine.arguments import Arguments, read_arguments
from turnyard.engine.batch import first_marks
from turnyard.engine.effects import Judgement, ToolFact, ToolTable
from turnyard.engine.open_calls import Batch, OpenCall
from turnyard.engine.strategy import Question
from turnyard.errors import StrategyError
from turnyard.ports import AskedCall
from turnyard.records import ids
from turnyard.records.commit import CallKind, NewCall, Row, TurnView
from turnyard.text import scrub_tree

QUESTION = "question"
_PLAIN = ToolFact()
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS = 64


def declare(
    view: TurnView,
    facts: ToolTable,
    asked: Sequence[AskedCall | Question],
    *,
    judged: Sequence[Judgement] = (),
    refusal: str | None = None,
) -> tuple[NewCall, ...]:
    """Give each call an id and a kind; `judged` is what the rules say of the tools' calls. With `refusal` none of them is run.

    Raises:
        StrategyError: there are rules, and other calls were judged than those that are made.
    """
    made = [call for call in asked if isinstance(call, AskedCall)]
    verdicts = [Judgement()] * len(made) if refusal is not None or not facts.judged else judged
    if len(verdicts) != len(made):
        raise StrategyError(
            f"strategy {facts.strategy.name} makes {len(made)} calls, of which {len(verdicts)} were judged: its step is not pure"
        )
    said = iter(verdicts)
    plain = sum(
        1 for call, on in zip(made, verdicts, strict=True) if on.decision != "ask" and _may_run_beside(facts.fact(call.name) or _PLAIN)
    )
    together = facts.parallel > 1 and plain > 1
    seen: set[str] = {""}
    calls: list[NewCall] = []
    for index, call in enumerate(asked):
        ident = ids.call_id(view.store, view.turn, view.rev + 1, index)
        if isinstance(call, Question):
            calls.append(_question(ident, call, facts))
            continue
        body = _body(call, read_arguments(call.arguments), ident if call.id in seen else call.id, facts)
        if refusal is not None:
            body["refused"] = refusal
        body |= verdict_of(next(said))
        seen.add(call.id)
        calls.append(_new_call(ident, body, facts, together=together))
    return tuple(calls)


def starts(view: TurnView, facts: ToolTable, calls: tuple[NewCall, ...]) -> tuple[str, ...]:
    """Return the calls whose STARTED mark rides along with the commit that declares them."""
    rows = [Row(c.id, c.kind, "open", c.awaited, None, demoted=False, idempotent=c.idempotent, decision=None) for c in calls]
    fresh = tuple(OpenCall(row, call.body, row.kind == "parallel") for row, call in zip(rows, calls, strict=True))
    batch = Batch(view, facts, fresh)
    return first_marks(batch, fresh) if batch.runs(fresh[0]) else ()


def _question(ident: str, asked: Question, facts: ToolTable) -> NewCall:
    try:
        args: dict[str, Any] = orjson.loads(orjson.dumps(scrub_tree({**asked.body, "key": asked.key})))
    except TypeError as error:
        raise StrategyError(f"strategy {facts.strategy.name}: the body of its question {asked.key!r} is no JSON ({error})") from error
    body: dict[str, Any] = {"name": QUESTION, "args": args, "provider_id": ident}
    if asked.expires_in_ms is not None:
        body["expires_in_ms"] = asked.expires_in_ms
    return NewCall(ident, "question", body, awaited=True)


def _body(call: AskedCall, given: Arguments, provider_id: str, facts: ToolTable) -> dict[str, Any]:
    # a name that no API accepts would make every later request of the session fail
    name = call.name if facts.fact(call.name) is not None else _UNFIT.sub("_", call.name)[:_NAME_CHARS] or "unknown"
    body: dict[str, Any] = {"name": name, "args": given.value, "provider_id": provider_id}
    if given.refusal is not None:
        body["refused"] = given.refusal
    return body


def _new_call(ident: str, body: dict[str, Any], facts: ToolTable, *, together: bool) -> NewCall:
    fact = _PLAIN if "refused" in body or "denied" in body else facts.fact(body["name"]) or _PLAIN
    if "approval" in body and "refused" not in body and facts.fact(body["name"]) is not None:
        return NewCall(ident, "approval", body, awaited=True, idempotent=fact.idempotent, queue=fact.queue, timeout_ms=fact.timeout_ms)
    kind: CallKind = "parallel" if together and _may_run_beside(fact) else fact.kind
    awaited = fact.awaited and kind not in ("plain", "parallel")
    return NewCall(ident, kind, body, awaited, fact.idempotent, fact.queue, fact.timeout_ms)


def _may_run_beside(fact: ToolFact) -> bool:
    """Tell whether a call of this tool may run while others of its answer do."""
    return fact.kind == "plain" and not fact.alone
