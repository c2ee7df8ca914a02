"""A turn whose workers die leaves the log of one whose worker did not, whatever its strategy decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.driving import Drive, Fate, answers_in_turn
from turnyard.engine.effects import ToolFact, ToolTable
from turnyard.engine.plan import PlanExecute
from turnyard.engine.react import React
from turnyard.engine.strategy import AnyStrategy, Ask, Call, Continue, Decision, Finish, Question, Sleep, Strategy
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import TurnView
from turnyard.records.log import CALL, RESULT

TOOLS = {
    "safe": ToolFact(idempotent=True),
    "once": ToolFact(),
    "far": ToolFact("lift", awaited=True, queue="gpu", timeout_ms=60_000),
    "kid": ToolFact("child", awaited=True, timeout_ms=60_000),
}
USAGE = {"input_tokens": 3, "output_tokens": 2}


def answer(text: str = "", *tools: str) -> Done:
    calls = tuple(AskedCall(f"c{i}", name, orjson.dumps({"n": i}).decode()) for i, name in enumerate(tools))
    return Done(text, calls, USAGE, "tool_calls" if calls else "stop", "m")


def scripts(*tools: str) -> st.SearchStrategy[list[Done]]:
    """Answers with calls; the last one ends the turn."""
    names = st.lists(st.sampled_from(tools), min_size=1, max_size=3)
    some = st.tuples(st.text("ab ", max_size=3), names).map(lambda given: answer(given[0], *given[1]))
    return st.lists(some, max_size=4).map(lambda given: [*given, answer("done")])


fates: st.SearchStrategy[list[Fate]] = st.lists(st.sampled_from(["", "before", "after", "yield"]), max_size=25)


def told(table: ToolTable, script: list[Done], ends: list[Fate]) -> Drive:
    drive = Drive(table, answers_in_turn(script), fates=iter(ends))
    drive.say()
    drive.wait()
    return drive


@given(scripts("safe", "safe", "far", "kid"), fates, st.integers(1, 2))
def test_a_turn_that_its_workers_leave_at_any_moment_writes_the_log_of_one_that_they_do_not_leave(
    script: list[Done], ends: list[Fate], parallel: int
) -> None:
    table = ToolTable(TOOLS, parallel=parallel)
    whole, broken = told(table, script, []), told(table, script, ends)
    assert _answered_in_order(broken) == _answered_in_order(whole)
    if parallel == 1:
        assert broken.story() == whole.story()
    assert sum((broken.asked + broken.ran).values()) <= sum((whole.asked + whole.ran).values()) + broken.deaths
    assert broken.memory.usage == whole.memory.usage
    assert not broken.memory.turn_state


def _answered_in_order(drive: Drive) -> list[Any]:
    """What was said, asked for and answered; the results of one answer in the order of its calls."""
    results = {r.call: (r.outcome, r.body) for r in drive.entries(RESULT)}
    return [(r.type, r.body, results.get(r.call) if r.type == CALL else None) for r in drive.memory.log if r.type != RESULT]


@given(scripts("once"), fates)
def test_a_call_that_may_not_be_repeated_is_run_once_at_most_whoever_dies(script: list[Done], ends: list[Fate]) -> None:
    broken = told(ToolTable(TOOLS), script, ends)
    assert max(broken.ran.values(), default=0) <= 1
    outcomes = {r.outcome for r in broken.entries(RESULT)}
    assert outcomes <= {"result", "unknown"}
    assert len(broken.entries(CALL)) == len(broken.entries(RESULT))


# -- a strategy of one's own: a programme of decisions


@dataclass(frozen=True)
class Programme(Strategy[int]):
    """Decides one thing after the other; its state is how far it is."""

    name: ClassVar[str] = "programme"
    decisions: tuple[Decision, ...] = ()

    def init(self, view: TurnView) -> int:
        return 0

    def step(self, view: TurnView, state: int, answer: Done | None) -> tuple[int, Decision]:
        if answer is not None:
            return state + 1, Call(answer.calls) if answer.calls else Continue()
        decision = self.decisions[state] if state < len(self.decisions) else Finish("the end")
        return (state if isinstance(decision, Ask) else state + 1), decision


def own(*names: str) -> Call:
    return Call(tuple(AskedCall(f"o{i}", name, f'{{"n": {i}}}') for i, name in enumerate(names)))


decisions: st.SearchStrategy[Decision] = st.one_of(
    st.just(Ask()),
    st.builds(Ask, st.sampled_from(["", "hurry"])),
    st.lists(st.sampled_from(["safe", "far", "kid"]), min_size=1, max_size=3).map(lambda names: own(*names)),
    st.just(Call((Question("colour", {"text": "which?"}), Question("size")))),
    st.integers(1, 60_000).map(Sleep),
    st.lists(st.sampled_from(["psst"]), max_size=2).map(lambda notes: Continue(tuple(notes))),
)


@given(st.lists(decisions, max_size=6), scripts("safe", "far"), fates)
def test_whatever_a_strategy_decides_survives_its_workers(programme: list[Decision], script: list[Done], ends: list[Fate]) -> None:
    table = ToolTable(TOOLS, strategy=Programme(tuple(programme)))
    whole, broken = told(table, script, []), told(table, script, ends)
    assert broken.story() == whole.story()
    assert sum((broken.asked + broken.ran).values()) <= sum((whole.asked + whole.ran).values()) + broken.deaths
    assert broken.memory.state == whole.memory.state == "idle"


steps = st.lists(st.sampled_from(["safe", "far", "kid"]), min_size=1, max_size=3).map(
    lambda tools: Done(orjson.dumps({"steps": [{"tool": t, "args": {"n": i}} for i, t in enumerate(tools)]}).decode(), (), USAGE)
)
plans = st.lists(st.one_of(steps, st.just(Done("{}", (), USAGE)), st.just(Done("no plan", (), USAGE))), max_size=5)


@given(plans, fates)
def test_a_plan_is_carried_out_alike_whoever_dies(script: list[Done], ends: list[Fate]) -> None:
    table = ToolTable(TOOLS, strategy=PlanExecute())
    script = [*script, Done("done", (), USAGE)]
    whole, broken = told(table, script, []), told(table, script, ends)
    assert broken.story() == whole.story()
    assert [j.state for j in broken.memory.jobs.values()] == [j.state for j in whole.memory.jobs.values()]


# -- two workers


@pytest.mark.spec("turn-43")
@pytest.mark.parametrize("strategy", [React(), PlanExecute()])
def test_two_workers_that_hand_a_turn_over_after_every_step_both_take_part_and_it_ends_right(strategy: AnyStrategy) -> None:
    table = ToolTable(TOOLS, strategy=strategy)
    plan = Done('{"steps": [{"tool": "safe", "args": {"n": 0}}, {"tool": "once", "args": {"n": 1}}]}', (), USAGE)
    script = [answer("", "safe", "once") if isinstance(strategy, React) else plan, answer('{"steps": []}'), answer("done")]
    alone = told(table, script, [])
    first = Drive(table, answers_in_turn(script), quota=1)
    second = replace(first, asked=Counter(), ran=Counter())
    first.memory.accept({"text": "hi"})
    held = [worker.hold() for worker in [first, second] * 3]
    assert held == [True] * sum((alone.asked + alone.ran).values()) + [False] * held.count(False)
    assert first.story() == alone.story()
    assert min(first.effort, second.effort) >= 2
    assert [j.state for j in first.memory.jobs.values()] == ["succeeded"]
