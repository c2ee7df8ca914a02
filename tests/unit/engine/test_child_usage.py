"""What a child used is its parent's: counted against the turn's budget, and with the answer that read its result."""

from __future__ import annotations

from tests.unit.engine.logs import TABLE, asked, got, said, user, view
from turnyard.engine.budget import Spent
from turnyard.engine.effects import AskModel, ModelAnswer
from turnyard.engine.turn import commit_after
from turnyard.ports import Done
from turnyard.records.commit import TurnView

USED = {"model_calls": 3, "input_tokens": 10, "output_tokens": 5, "cost_micros": 7}
BODY = {"content": "done", "is_error": False, "usage": USED}


def used(seen: TurnView, done: Done) -> dict[str, int]:
    return commit_after(seen, AskModel("k"), result=ModelAnswer(done), facts=TABLE).usage


def test_tokens_and_cost_of_a_child_count_against_the_turn_and_its_model_calls_do_not() -> None:
    seen = view(user(1), said(2), asked(3, "a"), got(4, "a", body=BODY, kind="child"))
    spent = Spent.of(seen)
    assert (spent.model_calls, spent.tokens, spent.cost_micros) == (1, 15, 7)
    assert Spent.of(view(user(1), said(2), asked(3, "a"), got(4, "a", body=BODY, kind="plain"))).tokens == 0


def test_the_answer_that_reads_a_childs_result_adds_what_it_used_and_later_ones_do_not() -> None:
    done = Done("fine", usage={"output_tokens": 2})
    first = view(user(1), said(2), asked(3, "a"), got(4, "a", body=BODY, kind="child"))
    assert used(first, done) == {"model_calls": 4, "input_tokens": 10, "output_tokens": 7, "cost_micros": 7}
    later = view(*first.entries, said(5, "fine"), user(6, "and?"))
    assert used(later, done) == {"model_calls": 1, "output_tokens": 2}
