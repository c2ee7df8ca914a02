"""What plan and execute makes of what the model writes: a plan, its steps at once, another look, an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from tests.unit.engine.driving import Drive, answers_in_turn
from tests.unit.engine.logs import view
from turnyard import App, tool
from turnyard.engine.bounds import Bounds
from turnyard.engine.effects import AskModel, NoEffect, ToolFact, ToolTable
from turnyard.engine.memory import MemoryJob
from turnyard.engine.plan import MAX_ROUNDS, PlanExecute, Planning
from turnyard.engine.strategy import Call
from turnyard.ports import AskedCall, Done
from turnyard.records.log import CALL, NOTICE, RESULT
from turnyard.testing import ScriptedModel
from turnyard.testing.checkers import check_gemini

TABLE = ToolTable({"kid": ToolFact("child", awaited=True), "add": ToolFact()}, strategy=PlanExecute())
NONE = '{"steps": []}'


def plan(*steps: tuple[str, dict[str, Any]]) -> str:
    return orjson.dumps({"steps": [{"tool": name, "args": args} for name, args in steps]}).decode()


def kids(*inputs: str) -> str:
    return plan(*(("kid", {"input": text}) for text in inputs))


def carried_out(*texts: str, table: ToolTable = TABLE) -> tuple[Drive, MemoryJob]:
    drive = Drive(table, answers_in_turn([Done(text, (), {"input_tokens": 1, "output_tokens": 1}) for text in texts]))
    drive.say()
    drive.wait()
    (job,) = drive.memory.jobs.values()
    return drive, job


def test_the_steps_of_a_plan_wait_outside_together_and_their_results_stand_in_its_order() -> None:
    drive = Drive(TABLE, answers_in_turn([Done(kids("a", "b", "c")), Done(NONE), Done("all")]))
    drive.say()
    assert [row.kind for row in drive.memory.parked()] == ["child"] * 3
    assert (drive.memory.state, drive.memory.rev) == ("parked", 2)
    drive.wait()
    assert [r.call for r in drive.entries(RESULT)] == [c.call for c in drive.entries(CALL)]
    assert [r.body["content"] for r in drive.entries(RESULT)] == [f"answer to {{'input': '{name}'}}" for name in "abc"]
    (job,) = drive.memory.jobs.values()
    assert (job.state, job.text) == ("succeeded", "all")


def test_an_agent_without_others_may_plan_calls_of_its_own_tools() -> None:
    drive, job = carried_out(plan(("add", {"n": 1}), ("add", {"n": 2})), NONE, "3")
    assert [r.body["content"] for r in drive.entries(RESULT)] == ["add [('n', 1)]", "add [('n', 2)]"]
    assert job.text == "3"


def test_a_model_that_calls_tools_instead_of_writing_a_plan_has_planned() -> None:
    drive = Drive(
        TABLE, answers_in_turn([Done("", (AskedCall("x", "add", '{"n":1}'), AskedCall("y", "add", '{"n":2}'))), Done(NONE), Done("3")])
    )
    drive.say()
    assert [r.body["content"] for r in drive.entries(RESULT)] == ["add [('n', 1)]", "add [('n', 2)]"]
    (job,) = drive.memory.jobs.values()
    assert (job.state, job.text) == ("succeeded", "3")


def test_a_plan_may_hold_any_number_json_knows() -> None:
    written = f'{{"steps": [{{"tool": "add", "args": {{"n": {10**29}}}}}]}}'
    _, decision = PlanExecute().step(view(), Planning(), Done(written))
    assert isinstance(decision, Call)


def test_another_look_may_add_steps_but_only_so_often() -> None:
    drive, job = carried_out(*[kids("again")] * (MAX_ROUNDS + 1), "enough")
    assert len(drive.entries(CALL)) == MAX_ROUNDS
    assert job.text == "enough"


def test_a_plan_that_cannot_be_read_is_sent_back_once() -> None:
    drive, job = carried_out("I would rather not", kids("a"), NONE, "done")
    assert len(drive.entries(NOTICE)) == 1
    assert job.text == "done"
    drive, job = carried_out("I would rather not", '{"steps": 3}')
    assert (job.state, (job.error or {})["code"], job.text) == ("failed", "strategy_error", '{"steps": 3}')
    assert len(drive.asked) == 2


def test_another_look_that_cannot_be_read_means_that_the_plan_is_done() -> None:
    drive, job = carried_out(kids("a"), "I am happy", "the answer")
    assert (job.text, drive.entries(NOTICE)) == ("the answer", [])


def test_a_plan_of_a_tool_that_nobody_has_is_told_so_and_goes_on() -> None:
    drive, job = carried_out(plan(("teleport", {})), NONE, "sorry")
    assert "no tool 'teleport'" in drive.entries(RESULT)[0].body["content"]
    assert job.text == "sorry"


def test_the_answer_alone_is_asked_for_without_tools_and_each_request_says_what_it_is_for() -> None:
    drive, _ = carried_out(kids("a"), NONE, "done")
    asks = [e for e in drive.effects if isinstance(e, AskModel)]
    assert [ask.tools for ask in asks] == [True, True, False]
    assert [ask.note.partition(" ")[0] for ask in asks] == ["Plan", "You", "Answer"]


def test_a_turn_whose_hooks_go_on_answers_them_and_is_asked_nothing_that_it_has_answered() -> None:
    table = replace(TABLE, hooks=True, bounds=Bounds(continuations=1))
    drive = Drive(table, answers_in_turn([Done(NONE), Done("the answer"), Done("and more")]), hooks=["is that all?"])
    drive.say()
    assert [e.note.partition(" ")[0] for e in drive.effects if isinstance(e, AskModel)] == ["Plan", "Answer", "Answer"]
    assert [type(e).__name__ for e in drive.effects if not isinstance(e, NoEffect)].count("AskHooks") == 2
    assert [job.text for job in drive.memory.jobs.values()] == ["and more"]


async def test_an_app_may_choose_it_by_name() -> None:
    @tool
    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    model = ScriptedModel([plan(("double", {"n": 21})), NONE, "42"])
    agent = App().agent("planner", model=model, tools=[double], strategy="plan_execute")
    assert (await agent.run("what is twice 21?")).text == "42"
    assert agent.manifest().strategy == "plan_execute"
    assert model.requests[1].messages[-1]["content"] == "42"
    assert [complaint for request in model.requests for complaint in check_gemini(request.messages)] == []
