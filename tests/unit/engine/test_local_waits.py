"""What a session in this process does while nothing but a delay holds its turn."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import ClassVar

from turnyard import App
from turnyard.engine.effects import Effect, NoEffect, ToolTable
from turnyard.engine.local import LocalSession
from turnyard.engine.react import React
from turnyard.records.commit import Commit, TurnView, Wait
from turnyard.records.log import ASSISTANT
from turnyard.testing import ManualClock, ScriptedModel


class Patient(React):
    """Waits ten seconds before each turn's first request."""

    waited: ClassVar[set[str]] = set()

    def next_effect(self, view: TurnView, facts: ToolTable) -> Effect:
        wait = f"wait {view.turn}"
        if not view.cancel and not any(e.turn == view.turn and e.type == ASSISTANT for e in view.entries) and wait not in self.waited:
            self.waited.add(wait)
            return NoEffect(Commit(wait=(Wait(wait, "timer", 10_000),), ending="park"))
        return super().next_effect(view, facts)


def session() -> tuple[LocalSession, ScriptedModel, ManualClock]:
    model, clock = ScriptedModel(["a", "b"]), ManualClock()
    talk = App().agent("a", model=model).local(clock=clock)
    talk._agent = replace(talk._agent, strategy=Patient())
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
