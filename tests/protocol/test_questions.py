"""Questions on the server: calls that only wait for an answer from outside, which comes once, or not in time."""

from __future__ import annotations

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, Scene, call, shown
from turnyard.records.commit import Park, TurnView

pytestmark = pytest.mark.asyncio

YES, NO = {"content": "yes", "is_error": False}, {"content": "no", "is_error": False}


async def asked(scene: Scene, owner: str, *, deadline_ms: int = DAY_MS) -> tuple[TurnView, str]:
    """A turn that waits for the answer to a question."""
    view = await scene.open_turn(owner)
    made = call(view, 0, "question", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, deadline_ms),), ending="park")
    assert (await scene.state(), await scene.running()) == ("parked", 0)
    return view, made.id


@pytest.mark.spec("turn-54")
async def test_the_answer_to_a_question_wakes_its_turn_once_and_a_second_answer_is_refused(scene: Scene) -> None:
    owner = await scene.worker()
    view, question = await asked(scene, owner)
    assert (await scene.outcome(view, question, body=YES, secret_hash=None)).code == "accepted"
    assert (await scene.outcome(view, question, body=NO, secret_hash=None)).code == "conflict"
    woken = await scene.start(owner)
    assert (woken.epoch, woken.turn, shown(woken)[-1]) == (view.epoch + 1, view.turn, f"{question}:result")
    assert woken.entries[-1].body == YES
    assert (await scene.outcome(view, question, body=NO, secret_hash=None)).code == "conflict"
    await scene.reply(woken)
    await scene.dispatch()
    assert (await scene.state(), await scene.take(owner)) == ("idle", None)


@pytest.mark.spec("turn-54")
async def test_a_question_that_nobody_answers_in_time_expires_and_not_before(scene: Scene) -> None:
    owner = await scene.worker()
    _, question = await asked(scene, owner, deadline_ms=5000)
    await scene.pass_ms(4999)
    assert ((await scene.tick()).due, await scene.state()) == (0, "parked")
    await scene.pass_ms(1)
    assert (await scene.tick()).due == 1
    woken = await scene.start(owner)
    assert shown(woken)[-1] == f"{question}:timeout"
    await scene.reply(woken)


async def test_a_question_that_is_answered_before_its_turn_waits_does_not_stop_it(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "question", awaited=True)
    view = await scene.ask(view, made)
    view = await scene.commit(view, park=(Park(made.id, DAY_MS),))
    await scene.outcome(view, made.id, body=YES, secret_hash=None)
    on = await scene.commit(view, ending="park")
    assert (on.ended, shown(on)[-1]) == (False, f"{made.id}:result")
    await scene.reply(on)


BROKEN: dict[str, Broken] = {
    "a second answer counts": (
        test_the_answer_to_a_question_wakes_its_turn_once_and_a_second_answer_is_refused,
        *("  elseif r.o then\n    put_row(h, r)\n", "  elseif false then\n    put_row(h, r)\n"),
    ),
    "an answer wakes nobody": (
        test_the_answer_to_a_question_wakes_its_turn_once_and_a_second_answer_is_refused,
        *(
            "    if r.aw == 1 then add(h, 'aw', -1) end\n    waits_no_more(h, r)\n    if only_wakes(r)",
            "    waits_no_more(h, r)\n    if only_wakes(r)",
        ),
    ),
    "questions wait for ever": (
        test_a_question_that_nobody_answers_in_time_expires_and_not_before,
        *(
            "  settle(h, r, outcome, 'tick')\n  if task",
            "  if r.k == 'question' then return end\n  settle(h, r, outcome, 'tick')\n  if task",
        ),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_the_rules_of_questions_are_what_these_tests_see(clean: str, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
