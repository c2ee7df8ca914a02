"""What a session in this process does while nothing but a delay holds its turn."""

from __future__ import annotations

import asyncio

from turnyard import App
from turnyard.engine.history import unseen
from turnyard.engine.local import LocalSession
from turnyard.engine.strategy import Ask, Decision, Finish, Sleep, Strategy
from turnyard.ports import Done
from turnyard.records.commit import TurnView
from turnyard.testing import ManualClock, ScriptedModel


class Patient(Strategy[bool]):
    """Waits ten seconds before each turn's first request."""

    name = "patient"

    def init(self, view: TurnView) -> bool:
        return False

    def step(self, view: TurnView, state: bool, answer: Done | None) -> tuple[bool, Decision]:
        if answer is not None or not unseen(view):
            return state, Finish()
        return True, Ask() if state else Sleep(10_000)


def session() -> tuple[LocalSession, ScriptedModel, ManualClock]:
    model, clock = ScriptedModel(["a", "b"]), ManualClock()
    talk = App().agent("a", model=model, strategy=Patient()).local(clock=clock)
    return talk, model, clock


async def test_a_run_sleeps_out_a_delay_and_goes_on() -> None:
    talk, model, clock = session()
    running = asyncio.ensure_future(talk.prompt("hi"))
    await clock.advance(9.9)
    assert (model.requests, talk.state().is_streaming, talk.parked) == ([], True, ())
    await clock.advance(0.1)
    result = await running
    assert (result.state, result.text) == ("succeeded", "a")


async def test_an_abort_ends_a_delay_and_the_turn_with_it() -> None:
    talk, model, clock = session()
    running = asyncio.ensure_future(talk.prompt("hi"))
    await clock.advance(1)
    talk.abort()
    assert (await running).state == "cancelled"
    assert (model.requests, clock.sleepers) == ([], 0)
    assert (talk.memory.state, talk.memory.turn) == ("idle", "")


async def test_what_steers_during_a_delay_is_taken_up_after_it() -> None:
    talk, _, clock = session()
    running = asyncio.ensure_future(talk.prompt("hi"))
    await clock.advance(1)
    talk.steer("quick")
    await clock.advance(9)
    await clock.advance(10)
    await running
    assert [m.text for m in talk.messages] == ["hi", "a", "quick", "b"]
