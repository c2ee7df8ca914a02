"""What becomes of calls that are open when a worker dies, an outcome comes out of order or nobody answers. On the real server.

`BROKEN` names for each of these rules the line of the Lua without which its test fails.
"""

from __future__ import annotations

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, OK, Scene, call, shown
from turnyard.records.commit import Answer

pytestmark = pytest.mark.asyncio


async def a_message_after_a_crash_is_answered(scene: Scene) -> None:
    dead, owner = await scene.worker(), await scene.worker()
    view = await scene.open_turn(dead, "m1")
    made = call(view)
    await scene.ask(view, made)  # and it dies before the tool runs
    await scene.tick(dead)
    await scene.say("m2")
    view = await scene.start(owner)
    assert [row.call for row in view.rows] == [made.id]
    assert shown(view) == ["m1", "=", f"?{made.id}"], "a message came between a call and its result"
    view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    await scene.reply(view)
    assert await scene.entries() == ["m1", "=", f"?{made.id}", f"{made.id}:result", "m2", "=bye"]


@pytest.mark.spec("L25")
async def test_a_message_after_a_crash_between_an_answer_and_its_tool_is_answered_behind_one_result(scene: Scene) -> None:
    await a_message_after_a_crash_is_answered(scene)


async def outcomes_in_reverse_reach_their_calls(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = [call(view, i, "callback", awaited=True) for i in range(3)]
    await scene.park(await scene.ask(view, *made), *(one.id for one in made))
    for one in reversed(made):
        assert await scene.state() == "parked"
        assert (await scene.outcome(view, one.id, body={"content": f"of {one.id}"})).code == "accepted"
        await scene.dispatch()
    view = await scene.start(owner)
    results = [(r.call, r.body["content"]) for r in view.entries if r.type == "tool/result"]
    assert results == [(one.id, f"of {one.id}") for one in made]
    await scene.reply(view)


@pytest.mark.spec("L26")
async def test_outcomes_that_come_in_reverse_order_each_reach_their_own_call(scene: Scene) -> None:
    await outcomes_in_reverse_reach_their_calls(scene)


async def a_batch_with_a_failure_resumes(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    failing, one, two = call(view, 0), call(view, 1, "lift", awaited=True), call(view, 2, "lift", awaited=True)
    view = await scene.ask(view, failing, one, two, start=(failing.id,))
    error = Answer(failing.id, "error", {"content": "ERROR: no", "is_error": True})
    await scene.park(await scene.commit(view, append=(error,)), one.id, two.id)
    for made in (two, one):
        assert await scene.state() == "parked"
        await scene.outcome(view, made.id)
        await scene.dispatch()
    view = await scene.start(owner)
    assert [(r.call, r.outcome) for r in view.entries if r.type == "tool/result"] == [
        (failing.id, "error"),
        (one.id, "result"),
        (two.id, "result"),
    ]
    await scene.reply(view)


@pytest.mark.spec("L29")
async def test_a_batch_with_one_failing_and_two_lifted_calls_resumes_when_the_two_have_arrived(scene: Scene) -> None:
    await a_batch_with_a_failure_resumes(scene)


async def an_approval_expires_into_a_result(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    asked = call(view, 0, "approval", awaited=True)
    await scene.park(await scene.ask(view, asked), asked.id)
    assert (await scene.say("later", mode="follow_up")).code == "accepted"
    await scene.dispatch()
    assert await scene.state() == "parked"
    await scene.pass_ms(DAY_MS + 1)
    await scene.tick()
    late = await scene.worker()
    view = await scene.start(late)
    assert [(r.call, r.outcome) for r in view.entries if r.type == "tool/result"] == [(asked.id, "timeout")]
    view = await scene.reply(view)
    view = view if not view.ended else await scene.start(late)
    assert shown(view)[-1] == "later"
    await scene.reply(view)


@pytest.mark.spec("L32")
async def test_an_approval_that_nobody_decides_expires_into_a_result_and_messages_are_accepted_meanwhile(scene: Scene) -> None:
    await an_approval_expires_into_a_result(scene)


BROKEN: dict[str, Broken] = {
    "a message comes between a call and its result": (a_message_after_a_crash_is_answered, "if h.pe ~= '' then return end", ""),
    "a parked turn wakes at its first outcome": (
        outcomes_in_reverse_reach_their_calls,
        "elseif h.st == 'parked' and h.aw == 0 then",
        "elseif h.st == 'parked' then",
    ),
    "a batch wakes at its first outcome": (
        a_batch_with_a_failure_resumes,
        "elseif h.st == 'parked' and h.aw == 0 then",
        "elseif h.st == 'parked' then",
    ),
    "nothing is due": (an_approval_expires_into_a_result, "if what == 'c' then call_due(sid, ord, c)", "if what == 'c' then"),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_the_rules_are_what_these_tests_see(clean: str, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
