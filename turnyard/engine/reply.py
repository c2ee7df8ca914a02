"""What is committed for a decision: an answer with its calls, an end, another round, a wait.

An answer of the model and what the strategy makes of it are one transition. A reply ends the turn only if it is what
the agent must give; otherwise it is sent back, a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import orjson

from turnyard.engine.calls import declare, starts
from turnyard.engine.decide import Decided
from turnyard.engine.effects import Failure, Judgement, ModelAnswer, ToolTable
from turnyard.engine.guards import is_own, notice
from turnyard.engine.history import has_called, last_answer, of_turn
from turnyard.engine.strategy import Ask, Call, Continue, Fail, Finish, Sleep
from turnyard.errors import StrategyError
from turnyard.records import ids
from turnyard.records.commit import Commit, Say, TurnView, Wait
from turnyard.records.log import ASSISTANT, RESULT

MAX_CORRECTIONS = 2
CUT_OFF = "the answer was cut off at its length limit, so the call was not executed; make it again with a shorter answer"
_OUTPUT, _STRATEGY, _TERMINAL = "output", "strategy", "terminal"
LENGTH = "length"
_NO_LANE = frozenset({"", "http", "local", "client", "redis", "child"})


def carry_out(
    view: TurnView, facts: ToolTable, decided: Decided, answer: ModelAnswer | None = None, *, judged: Sequence[Judgement] = ()
) -> Commit:
    """Return the commit of a decision, together with the answer it was taken on. `judged` is what the rules say of the calls it makes.

    Raises:
        StrategyError: the decision cannot be carried out.
    """
    said = None if answer is None else body_of(answer)
    change = _change(view, facts, decided, said, answer, judged)
    usage = {} if answer is None else paid(answer)
    if any(isinstance(part, Say) for part in change.append):
        usage = _with_children(view, usage)
    return replace(change, usage=usage, state=None if change.ending == "finish" else decided.state(view))


def _with_children(view: TurnView, usage: dict[str, int]) -> dict[str, int]:
    """Add what the children used whose results the model reads with this answer: each result is followed by one next answer."""
    for entry in takewhile(lambda e: e.type != ASSISTANT, reversed(view.entries)):
        used: dict[str, int] = entry.body.get("usage") or {} if entry.type == RESULT and entry.kind == "child" else {}
        for name, n in used.items():
            usage[name] = usage.get(name, 0) + n
    return usage


def fail(view: TurnView, failure: Failure) -> Commit:
    """Return the commit that ends the turn's jobs as failed; what was said before stays as the partial result."""
    error = {"code": failure.code, "message": failure.message, "retryable": failure.retryable, "ref": failure.ref}
    return Commit(ending="finish", failure=error, usage=dict(failure.usage), lanes=lanes(view))


def lanes(view: TurnView) -> tuple[str, ...]:
    """Return the lane of the platform the session lives on, if replies are sent there."""
    platform = view.head.get("platform", "")
    return () if platform in _NO_LANE else (platform,)


def paid(answer: ModelAnswer) -> dict[str, int]:
    """Return what an answer cost, as counts."""
    return ({"model_calls": answer.asked} if answer.asked else {}) | (answer.done.usage or {})


def body_of(answer: ModelAnswer) -> dict[str, Any]:
    """Return the body of an answer's entry; `asked` is in it when it is not one."""
    done = answer.done
    body: dict[str, Any] = {"text": done.text, "usage": done.usage, "model": done.model, "finish": done.finish}
    return body if answer.asked == 1 else body | {"asked": answer.asked}


def _change(
    view: TurnView,
    facts: ToolTable,
    decided: Decided,
    said: dict[str, Any] | None,
    on: ModelAnswer | None,
    judged: Sequence[Judgement],
) -> Commit:
    answer = () if said is None else (Say(said),)
    match decided.decision:
        case Call(calls=calls):
            refusal = CUT_OFF if on is not None and on.done.finish == LENGTH else None
            return _make(view, facts, calls, said, judged=judged, refusal=refusal)
        case Finish(output=output):
            return _finish(view, facts, output, said)
        case Continue(notes=notes):
            return Commit(append=(*answer, *(notice(_STRATEGY, text) for text in notes)), claim=True)
        case Sleep(delay_ms=delay_ms):
            wait = Wait(ids.wait_id(view.store, view.turn, view.rev + 1), "timer", max(0, int(delay_ms)))
            return Commit(append=answer, wait=(wait,), ending="park")
        case Fail(code=code, message=message):
            return replace(fail(view, Failure(code, message)), append=answer)
        case Ask():
            raise StrategyError("to ask is an effect of its own")


def _make(
    view: TurnView,
    facts: ToolTable,
    asked: tuple[Any, ...],
    said: dict[str, Any] | None,
    *,
    judged: Sequence[Judgement],
    refusal: str | None,
) -> Commit:
    """Return the commit that declares calls. With `refusal` none is run: an answer that was cut may have incomplete arguments."""
    if not asked:
        raise StrategyError(f"strategy {facts.strategy.name} makes calls, but names none")
    calls = declare(view, facts, asked, judged=judged, refusal=refusal)
    body = said or _own("")
    return Commit(append=(Say(body, calls),), start=starts(view, facts, calls), lanes=lanes(view) if body["text"] else ())


# -- an end -----------------------------------------------------------------------------------------------------------


def _finish(view: TurnView, facts: ToolTable, output: Any, said: dict[str, Any] | None) -> Commit:
    """Return the commit that ends the turn, or sends its reply back."""
    if output is not None:
        text = output if isinstance(output, str) else ""
        return _ended(view, (said or _own(text)) | {"output": _given(facts, output)})
    if said is None:
        return _ended(view)
    terminal = facts.forced_terminal
    if terminal and not has_called(view, terminal):
        # bounded by the model calls of the turn, whose failure names the tool
        text = f"Your reply did not end the session: only a call of {terminal} does. Call it when you are done."
        return Commit(append=(Say(said), notice(_TERMINAL, text)), claim=True)
    if facts.read_output is not None:
        try:
            said["output"] = facts.read_output(said["text"])
        except ValueError as error:
            return _unfit(view, Say(said), str(error))
    return _ended(view, said)


def unsaid(view: TurnView, facts: ToolTable) -> Any:
    """Return what the model said last, as the agent's output, for a turn that ends later than that; None when its newest answer says it.

    Raises:
        StrategyError: it does not fit.
    """
    newest = last_answer(view)
    said = next((e for e in of_turn(view) if e.type == ASSISTANT and e.body.get("asked", 1)), None)
    if newest is None or said is None or "output" in newest.body or (said is newest and facts.read_output is None):
        return None
    text = str(said.body.get("text") or "")
    try:
        return text if facts.read_output is None else facts.read_output(text)
    except ValueError as error:
        raise StrategyError(f"strategy {facts.strategy.name}: what the model said last does not fit the agent's output: {error}") from error


def _given(facts: ToolTable, output: Any) -> Any:
    """Return the output that a strategy ends a turn with as JSON."""
    try:
        raw = orjson.dumps(output)
        return orjson.loads(raw) if facts.read_output is None else facts.read_output(raw.decode())
    except TypeError as error:
        raise StrategyError(f"strategy {facts.strategy.name}: the output it ends with is no JSON ({error})") from error
    except ValueError as error:
        raise StrategyError(f"strategy {facts.strategy.name}: the output it ends with does not fit the agent's: {error}") from error


def _ended(view: TurnView, said: dict[str, Any] | None = None) -> Commit:
    return Commit(append=() if said is None else (Say(said),), ending="finish", lanes=lanes(view))


def _unfit(view: TurnView, said: Say, reason: str) -> Commit:
    """Return the commit for a reply that is not the output the agent must give: corrected, but not for ever."""
    corrected = sum(1 for e in of_turn(view) if is_own(e, _OUTPUT))
    if corrected >= MAX_CORRECTIONS:
        failed = Failure("output_invalid", f"after {corrected} corrections the reply still does not fit the output: {reason}")
        return replace(fail(view, failed), append=(said,))
    text = f"Your reply does not fit the required output: {reason}. Reply again with the JSON alone."
    return Commit(append=(said, notice(_OUTPUT, text)), claim=True)


def _own(text: str) -> dict[str, Any]:
    """Return the body of what the strategy says itself: no model was asked for it."""
    return {"text": text, "asked": 0}
