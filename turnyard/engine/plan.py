"""The strategy that plans first: a plan, its steps side by side, another look, and an answer from what came of it.

The plan is JSON that the model writes; each step is a call of a tool, most often of another agent, and all steps of one
plan are declared together, so that they run at the same time wherever they run. A model that calls tools instead of
writing a plan has planned, too. A plan that cannot be read is sent back once; another look that cannot be read means that
the plan is done.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from turnyard.engine.strategy import Ask, Call, Continue, Decision, Fail, Finish, Strategy
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import TurnView

MAX_ROUNDS = 4

_FORM = 'Answer with JSON alone: {"steps": [{"tool": NAME, "args": {...}}, ...]}.'
_PLAN = f"Plan how to answer. {_FORM} The steps of one plan run at the same time, so none may need another's result."
_AGAIN = f"You have the results of the plan. {_FORM} Give the steps that are still needed, or no steps when you can answer."
_ANSWER = "Answer now, from the results you have. Do not plan further."


class _Step(BaseModel):
    model_config = ConfigDict(extra="ignore")
    tool: str
    args: dict[str, Any] = {}


class _Steps(BaseModel):
    model_config = ConfigDict(extra="ignore")
    steps: list[_Step]


@dataclass(frozen=True, slots=True)
class Planning:
    """Where the turn is: `phase` is plan, look or answer; `rounds` plans were carried out, `corrected` was sent back."""

    phase: str = "plan"
    rounds: int = 0
    corrected: bool = False


_NOTES = {"plan": _PLAN, "look": _AGAIN, "answer": _ANSWER}


class PlanExecute(Strategy[Planning]):
    """Plan, execute, look again, answer."""

    name: ClassVar[str] = "plan_execute"

    def init(self, view: TurnView) -> Planning:
        """Begin with a plan."""
        del view
        return Planning()

    def step(self, view: TurnView, state: Planning, answer: Done | None) -> tuple[Planning, Decision]:
        """Ask for what the phase needs, and do what the answer says."""
        del view
        if answer is None:
            return state, Ask(_NOTES[state.phase], tools=state.phase != "answer")
        if state.phase == "answer":
            return state, Finish()
        calls = answer.calls or _read(answer.text)
        if calls is None:
            return self._unreadable(state)
        if not calls or state.rounds >= MAX_ROUNDS:
            return Planning("answer", state.rounds), Continue()
        return Planning("look", state.rounds + 1), Call(calls)

    def _unreadable(self, state: Planning) -> tuple[Planning, Decision]:
        if state.phase == "look":
            return Planning("answer", state.rounds), Continue()
        if state.corrected:
            return state, Fail("strategy_error", "the model gave no plan that could be read, and its correction was none either")
        return Planning("plan", state.rounds, corrected=True), Continue((f"That is no plan. {_FORM}",))

    def encode(self, state: Planning) -> Any:
        """Return the state as JSON."""
        return asdict(state)

    def decode(self, version: int, value: Any) -> Planning:
        """Return the state of JSON."""
        del version
        return Planning(**value)


def _read(text: str) -> tuple[AskedCall, ...] | None:
    """Return the calls that a plan's steps are, None when it is no plan. Text around the JSON is let pass."""
    first, last = text.find("{"), text.rfind("}")
    try:
        steps = _Steps.model_validate_json(text[first : last + 1]).steps
    except ValidationError:
        return None
    return tuple(AskedCall(f"step_{i}", s.tool, json.dumps(s.args)) for i, s in enumerate(steps))
