"""What a strategy of one's own may decide, what of it is kept, and what happens when it fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import orjson
import pytest

from tests.unit.engine.driving import Drive, answers_in_turn
from turnyard import App, Limits
from turnyard.engine.budget import Notice, Spent, Stop
from turnyard.engine.effects import AskModel, ToolFact, ToolTable
from turnyard.engine.memory import MemoryJob
from turnyard.engine.recovery import MOST_ERRORS
from turnyard.engine.strategy import Ask, Call, Continue, Decision, Fail, Finish, Question, Sleep, Strategy, checked
from turnyard.errors import AgentVersionGone, ConfigError
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import TurnView
from turnyard.records.log import ASSISTANT, CALL, NOTICE, RESULT
from turnyard.testing import ScriptedModel

HELLO = Done("hello", (), {"input_tokens": 3, "output_tokens": 2}, "stop", "m")
STATE: dict[str, Any] = {"calls": 0}


@dataclass
class Made(Strategy[Any]):
    """A strategy made of functions."""

    name: ClassVar[str] = "made"
    decide: Callable[[TurnView, Any, Done | None], tuple[Any, Decision]] = lambda _view, state, answer: (
        state,
        Finish() if answer else Ask(),
    )
    first: Any = None
    says: Callable[[Spent], Any] = lambda _spent: None
    reads: Callable[[int, Any], Any] = lambda _version, value: value
    stepped: list[Any] = field(default_factory=list[Any])

    def init(self, view: TurnView) -> Any:
        return self.first

    def step(self, view: TurnView, state: Any, answer: Done | None) -> tuple[Any, Decision]:
        self.stepped.append(state)
        return self.decide(view, state, answer)

    def limit(self, spent: Spent) -> Any:
        return self.says(spent)

    def decode(self, version: int, value: Any) -> Any:
        return self.reads(version, value)


def driven(strategy: Strategy[Any], *answers: Done, tools: dict[str, ToolFact] | None = None) -> Drive:
    drive = Drive(ToolTable(tools or {}, strategy=strategy), answers_in_turn(answers or (HELLO,)))
    drive.say()
    return drive


def job_of(drive: Drive) -> MemoryJob:
    return list(drive.memory.jobs.values())[-1]


def in_order(*decisions: Decision) -> Made:
    """A strategy that decides one after the other; its state is how many it has decided."""

    def decide(_view: TurnView, state: int, answer: Done | None) -> tuple[int, Decision]:
        return (state + 1, Continue()) if answer else (state if isinstance(decisions[state], Ask) else state + 1, decisions[state])

    return Made(decide, first=0)


# -- declaring one


@pytest.mark.spec("turn-44")
def test_a_strategy_has_a_name_of_its_own_and_a_version_from_one_on() -> None:
    class Nameless(Strategy[None]):
        pass

    class Early(Strategy[None]):
        name = "early"
        version = 0

    for wrong, word in ((Nameless(), "no name"), (Early(), "version is 0")):
        with pytest.raises(ConfigError, match=word):
            checked([wrong])
        with pytest.raises(ConfigError, match=word):
            App().agent("a", model=ScriptedModel(["x"]), strategy=wrong)
    with pytest.raises(ConfigError, match="two strategies are called made"):
        checked([Made(), Made()])


@pytest.mark.spec("turn-44")
def test_an_agent_with_a_strategy_that_nobody_knows_is_refused_when_it_is_declared() -> None:
    with pytest.raises(ConfigError, match="'reakt' is not one of react, plan_execute"):
        App().agent("a", model=ScriptedModel(["x"]), strategy="reakt")


async def test_an_agent_works_by_a_strategy_of_its_own() -> None:
    twice = in_order(Ask("be brief"), Ask(), Finish({"heard": 2}))
    model = ScriptedModel(["one", "two"])
    agent = App().agent("a", model=model, instructions="You count.", strategy=twice)
    result = await agent.run("go")
    assert (result.state, result.output) == ("succeeded", {"heard": 2})
    assert [r.messages[0]["content"] for r in model.requests] == ["You count.\n\nbe brief", "You count."]
    assert agent.manifest().strategy == "made"


# -- what it may decide


def test_what_becomes_of_an_answer_is_committed_with_the_answer() -> None:
    drive = driven(in_order(Ask(), Finish("end")))
    assert [r.body.get("text") for r in drive.entries(ASSISTANT)] == ["hello", "end"]
    assert drive.memory.rev == 2
    assert job_of(drive).output == "end"


def test_a_strategy_may_make_calls_of_its_own_though_the_model_asked_for_none() -> None:
    tools = {"add": ToolFact(), "kid": ToolFact("child", awaited=True)}
    own = Call((AskedCall("x", "add", '{"n": 1}'), AskedCall("y", "kid", '{"input": "a"}')))
    drive = driven(in_order(own, Finish("end")), tools=tools)
    assert ([r.kind for r in drive.memory.parked()], len(drive.asked), sum(drive.ran.values())) == (["child"], 0, 1)
    drive.wait()
    assert [r.call for r in drive.entries(CALL)] == [r.call for r in drive.entries(RESULT)]
    assert job_of(drive).state == "succeeded"


def test_a_question_holds_the_turn_until_it_is_answered_or_its_time_is_over() -> None:
    ask = Call((Question("colour", {"text": "which?"}, expires_in_ms=5000),))
    for seconds, outcome in ((4999, None), (5000, "timeout")):
        drive = driven(in_order(ask, Finish("end")))
        (row,) = drive.memory.parked()
        assert (row.kind, row.args) == ("question", {"key": "colour", "text": "which?"})
        drive.clock.move(seconds)
        drive.memory.expire()
        assert drive.memory.rows[row.call].outcome == outcome
    drive.go()
    assert job_of(drive).state == "succeeded"
    drive = driven(in_order(ask, Finish("end")))
    (row,) = drive.memory.parked()
    assert drive.memory.outcome(row.call, "result", {"content": "red"}) == "accepted"
    assert drive.memory.outcome(row.call, "result", {"content": "blue"}) == "conflict"
    drive.go()
    assert [r.body["content"] for r in drive.entries(RESULT)] == ["red"]


def test_a_sleep_holds_the_turn_without_a_worker_and_not_a_moment_less() -> None:
    drive = driven(in_order(Sleep(5000), Finish("end")))
    drive.clock.move(4999)
    assert drive.memory.expire() == []
    assert drive.memory.state == "parked"
    drive.clock.move(1)
    drive.memory.expire()
    drive.go()
    assert (job_of(drive).state, drive.entries(CALL)) == ("succeeded", [])


def test_notes_are_put_before_the_model_as_notices() -> None:
    drive = driven(in_order(Continue(("think twice",)), Ask(), Finish()))
    assert [r.body["text"] for r in drive.entries(NOTICE)] == ["think twice"]
    assert drive.memory.rev == 3


def test_a_failure_keeps_what_was_said_by_then() -> None:
    drive = driven(in_order(Ask(), Fail("out_of_luck", "nothing is left")))
    assert (job_of(drive).state, job_of(drive).text) == ("failed", "hello")
    assert (job_of(drive).error or {})["code"] == "out_of_luck"


# -- what it remembers


def test_the_state_is_encoded_with_its_version_and_dropped_with_the_turn() -> None:
    strategy = in_order(Sleep(1), Sleep(1), Finish("end"))
    drive = driven(strategy)
    assert orjson.loads(drive.memory.turn_state) == {"s": 1, "v": 1}
    drive.wait()
    assert not drive.memory.turn_state
    drive.say()
    assert orjson.loads(drive.memory.turn_state) == {"s": 1, "v": 1}


def test_a_newer_version_reads_the_state_that_an_older_one_wrote() -> None:
    class Newer(Made):
        version = 2

    drive = driven(in_order(Sleep(1)))
    newer = Newer(lambda _view, state, _answer: (state, Finish(state)), reads=lambda version, value: {"was": value, "by": version})
    drive.table = ToolTable(strategy=newer)
    drive.wait()
    assert job_of(drive).output == {"was": 1, "by": 1}


def test_a_version_that_cannot_go_on_says_so_and_is_not_tried_again() -> None:
    def gone(_version: int, _value: Any) -> Any:
        raise AgentVersionGone("version 1 had another plan")

    drive = driven(in_order(Sleep(1)))
    drive.table = ToolTable(strategy=Made(reads=gone))
    with pytest.raises(AgentVersionGone):
        drive.wait()


def test_a_turn_without_a_state_of_its_own_stores_none() -> None:
    tools = {"add": ToolFact()}
    commits: list[Any] = []
    drive = Drive(ToolTable(tools), answers_in_turn([Done("", (AskedCall("c", "add", "{}"),)), HELLO]))
    drive.memory.accept({"text": "hi"})
    drive.on_commit = commits.append
    drive.go()
    assert [c.state for c in commits] == [None] * 3


@pytest.mark.parametrize("state", ["x" * 20_000, object()])
def test_a_state_that_cannot_be_kept_fails_the_turn_and_says_why(state: Any) -> None:
    drive = driven(Made(lambda _view, _state, _answer: (state, Sleep(1))))
    drive.wait()
    assert "its state" in (job_of(drive).error or {})["message"]


# -- what goes wrong in it


@pytest.mark.spec("turn-52")
@pytest.mark.parametrize("at", ["step", "limit", "encode"])
def test_a_strategy_that_always_raises_is_tried_four_times_with_pauses_and_then_fails(at: str) -> None:
    tries: list[int] = []
    drive = Drive(ToolTable(), answers_in_turn([HELLO]))

    def raises(*_any: Any) -> Any:
        tries.append(drive.clock.now_ms())
        raise RuntimeError("a bug")

    class Broken(Made):
        def encode(self, state: Any) -> Any:
            return raises() if at == "encode" else state

    strategy = Broken(raises) if at == "step" else Broken(says=raises if at == "limit" else lambda _spent: None)
    drive.table = ToolTable(strategy=strategy)
    drive.say()
    assert (drive.memory.state, len(tries)) == ("parked", 1)
    drive.wait()
    assert len(tries) == 1 + MOST_ERRORS == 4
    pauses = [later - before for before, later in pairwise(tries)]
    assert pauses == [2000, 4000, 8000]
    error = job_of(drive).error or {}
    assert (error["code"], drive.asked.total(), drive.deaths) == ("retry_exhausted", 0, 0)
    assert "a bug" in error["message"]


def test_an_error_that_passes_costs_a_pause_and_the_count_begins_anew() -> None:
    tries: Counter[int] = Counter()

    def flaky(_view: TurnView, state: int, answer: Done | None) -> tuple[int, Decision]:
        tries[state] += 1
        if tries[state] <= MOST_ERRORS:
            raise RuntimeError("not now")
        return (state + 1, Continue()) if answer else (state, Ask() if state < 4 else Finish("end"))

    drive = driven(Made(flaky, first=0))
    drive.wait()
    assert (job_of(drive).output, drive.asked.total()) == ("end", 4)


def test_to_go_on_with_nothing_done_is_an_error_rather_than_a_turn_without_an_end() -> None:
    drive = driven(Made(lambda _view, state, _answer: (state, Continue())))
    drive.wait()
    assert (job_of(drive).error or {})["code"] == "retry_exhausted"
    assert "for ever" in (job_of(drive).error or {})["message"]


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (Call((Question("who", {"text": object()}),)), "no JSON"),
        (Call(()), "names none"),
    ],
)
def test_a_decision_that_cannot_be_carried_out_is_an_error_of_the_strategy(decision: Decision, says: str) -> None:
    drive = driven(Made(lambda _view, state, _answer: (state, decision)))
    drive.wait()
    assert (job_of(drive).error or {})["code"] == "retry_exhausted"
    assert says in (job_of(drive).error or {})["message"]


async def test_a_strategy_that_raises_what_would_end_a_process_fails_its_turn() -> None:
    def leave(_view: TurnView, _state: Any, _answer: Done | None) -> tuple[Any, Decision]:
        raise SystemExit(3)

    agent = App().agent("a", model=ScriptedModel(["x"]), strategy=Made(leave), limits=Limits(retry_base=0.001))
    result = await agent.run("go")
    assert (result.state, (result.error or {})["code"]) == ("failed", "retry_exhausted")


def test_an_answer_that_was_paid_for_is_counted_though_the_strategy_raised_on_it() -> None:
    def raises(_view: TurnView, state: Any, answer: Done | None) -> tuple[Any, Decision]:
        if answer is not None:
            raise RuntimeError("a bug")
        return state, Ask()

    drive = driven(Made(raises))
    drive.wait()
    assert drive.memory.usage == {"model_calls": 4, "input_tokens": 12, "output_tokens": 8}


# -- its own limits


@pytest.mark.spec("turn-47")
def test_a_strategy_may_stop_the_turn_at_a_limit_of_its_own_and_what_was_said_is_kept() -> None:
    def stop(spent: Spent) -> Any:
        return Stop("limit_exceeded", "six are enough") if spent.model_calls >= 6 else None

    drive = driven(Made(lambda _view, state, answer: (state, Continue(("on",)) if answer else Ask()), says=stop))
    assert drive.asked.total() == 6
    assert (job_of(drive).state, job_of(drive).text) == ("failed", "hello")
    assert job_of(drive).error == {"code": "limit_exceeded", "message": "six are enough", "retryable": False, "ref": None}


@pytest.mark.spec("turn-48")
def test_a_strategy_may_warn_the_model_in_the_system_message_of_the_next_request() -> None:
    def warn(spent: Spent) -> Any:
        return Notice("come to an end") if spent.model_calls == 2 else None

    drive = driven(Made(lambda _view, state, answer: (state, Continue(("on",)) if answer else Ask()), says=warn))
    notes = [e.note for e in drive.effects if isinstance(e, AskModel)]
    assert notes[:4] == ["", "", "come to an end", ""]
