"""What competes for what people are asked: a decision, the deadline, a newer message, a cancel, the end of the turn. One of them wins.

Each competitor is one script, so an order of them is all that a race can be; every order of every choice is tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import permutations
from typing import Any

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, OK, Scene, call, shown
from tests.protocol.test_approvals import ALLOW, DENY, asked, decide, listed, run, told
from turnyard.records.approvals import Decision
from turnyard.records.commit import Answer, Park, TurnView
from turnyard.state import approvals

pytestmark = pytest.mark.asyncio

MS = 5000
Competitor = Callable[[Scene, TurnView, str], Awaitable[Any]]


async def answer(scene: Scene, view: TurnView, name: str) -> None:
    await decide(
        scene, view, name, ALLOW if name in {c.call for c in view.rows if c.kind == "approval"} else Decision("answer", "bob", answer="x")
    )


async def timeout(scene: Scene, view: TurnView, name: str) -> None:
    await scene.pass_ms(max(0, view.now_ms + MS - scene.now_ms))
    await scene.tick()


async def newer(scene: Scene, view: TurnView, name: str) -> None:
    await scene.say("newer", user="ann")
    await scene.dispatch()


async def cancel(scene: Scene, view: TurnView, name: str) -> None:
    await scene.control("cancel", turn=view.turn)
    await scene.dispatch()


RACERS: dict[str, Competitor] = {"allow": answer, "timeout": timeout, "superseded": newer, "cancelled": cancel}


@pytest.mark.spec("runner-13")
@pytest.mark.parametrize("order", [" ".join(o) for o in permutations(RACERS)])
async def test_of_an_answer_the_deadline_a_newer_message_and_a_cancel_the_first_one_wins(scene: Scene, order: str) -> None:
    view, (name,) = await asked(scene, await scene.worker(), ms=MS)
    racers = order.split()
    for racer in racers:
        await RACERS[racer](scene, view, name)
    # An answer gives the turn back to its worker, who hears of the cancel; nobody else may have ended the call.
    assert [(c, how) for c, how, _ in await told(scene)] == [(name, racers[0])]
    assert await listed(scene) == []
    view = await scene.start(await scene.worker())
    assert view.cancel == "user"
    view = await scene.close_turn(view)
    results = [r.outcome for r in await scene.log() if r.type == "tool/result"]
    assert results == [{"allow": "cancelled"}.get(racers[0], racers[0])]
    if not view.ended:
        await scene.reply(view)


@pytest.mark.spec("runner-13")
@pytest.mark.parametrize("first", ["answered", "timeout", "superseded", "cancelled"])
async def test_of_what_competes_for_a_question_the_first_one_wins(scene: Scene, first: str) -> None:
    view, (name,) = await asked(scene, await scene.worker(), kind="question", ms=MS)
    racers = {"answered": answer, **{n: r for n, r in RACERS.items() if n != "allow"}}
    for racer in sorted(racers, key=lambda n: n != first):
        if not (racer == "answered" and first == "timeout"):  # a late answer is still told, as of every call
            await racers[racer](scene, view, name)
    assert [(c, how) for c, how, _ in await told(scene)] == [(name, first)]
    assert await listed(scene) == []


@pytest.mark.spec("rival-22")
async def test_approvals_that_are_given_in_reverse_order_reach_their_own_calls(scene: Scene) -> None:
    owner = await scene.worker()
    view, names = await asked(scene, owner, calls=3)
    for i, name in reversed(list(enumerate(names))):
        got = await decide(scene, view, name, DENY if i == 1 else Decision("allow", "bob", input={"i": i * 10}))
        assert got.code == "accepted"
        assert await scene.state() == "parked"
        await scene.dispatch()
    view = await scene.start(owner)
    assert [(r.call, r.state, r.decided and r.decided["input"]) for r in view.rows] == [
        (names[0], "allowed", {"i": 0}),
        (names[2], "allowed", {"i": 20}),
    ]
    for row in view.rows:
        view = await scene.commit(view, start=(row.call,))
        view = await scene.commit(view, append=(Answer(row.call, "result", {"content": str(row.decided), "is_error": False}),))
    results = {e.call: (e.outcome, e.body["content"]) for e in view.entries if e.type == "tool/result"}
    assert results[names[1]][0] == "denied"
    assert "'i': 20" in results[names[2]][1]
    assert "'i': 0" in results[names[0]][1]
    view = await scene.commit(view, claim=True)
    await scene.reply(view)


async def test_the_last_of_several_answers_wakes_the_turn_and_none_before_it(scene: Scene) -> None:
    owner = await scene.worker()
    view, names = await asked(scene, owner, calls=3)
    for name in names[1:]:
        await decide(scene, view, name)
        await scene.dispatch()
        assert (await scene.state(), await scene.take(owner)) == ("parked", None)
    await decide(scene, view, names[0])
    await scene.dispatch()
    assert await scene.state() == "assigned"


@pytest.mark.spec("runner-11")
async def test_a_decision_after_its_worker_died_is_carried_out_by_another_once(scene: Scene) -> None:
    dead = await scene.worker()
    view, (name,) = await asked(scene, dead)
    await scene.tick(dead)
    await decide(scene, view, name)
    view = await run(scene, await scene.worker(), name)
    await scene.reply(view)
    assert await scene.entries() == ["hello", "=", f"?{name}", f"{name}:result", "=bye"]


async def test_an_allowed_call_whose_next_worker_dies_before_it_starts_is_run_by_the_one_after_it(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner)
    await decide(scene, view, name)
    await scene.start(owner)
    await scene.tick(owner)
    view = await run(scene, await scene.worker(), name)
    await scene.reply(view)


@pytest.mark.parametrize("decision", [ALLOW, DENY], ids=["allow", "deny"])
async def test_a_decision_while_the_turn_is_closing_starts_nothing(scene: Scene, decision: Decision) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, user="ann")
    made = call(view, 0, "approval", awaited=True), call(view, 1)
    view = await scene.ask(view, *made)
    view = await scene.commit(view, park=(Park(made[0].id, DAY_MS),), start=(made[1].id,))
    await scene.control("cancel", turn=view.turn)
    assert (await decide(scene, view, made[0].id, decision)).code == "accepted"
    await scene.dispatch()
    assert (await decide(scene, view, made[0].id, decision)).code == "duplicate"
    view = await scene.commit(view, append=(Answer(made[1].id, "result", OK),))
    assert view.cancel == "user"
    await scene.close_turn(view)
    expected = "cancelled" if decision is ALLOW else "denied"
    assert f"{made[0].id}:{expected}" in await scene.entries()
    assert (await scene.state(), await listed(scene)) == ("idle", [])
    assert (await decide(scene, view, made[0].id, decision)).code == "duplicate"


async def test_a_decision_about_a_call_that_was_cancelled_hears_what_stands(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner)
    await cancel(scene, view, name)
    got = await decide(scene, view, name)
    assert (got.code, got.approval and got.approval.state) == ("conflict", "cancelled")
    await scene.close_turn(await scene.start(owner))


# -- whose message takes the place of what is asked


@pytest.mark.spec("runner-15")
@pytest.mark.parametrize("kind", ["approval", "question"])
async def test_a_message_of_the_asker_takes_its_place_and_the_refusal_stands_before_it(scene: Scene, kind: str) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner, kind=kind)
    await newer(scene, view, name)
    assert await told(scene) == [(name, "superseded", "ann")]
    assert (await decide(scene, view, name, ALLOW if kind == "approval" else DENY)).code == "conflict"
    view = await scene.start(owner)
    assert shown(view) == ["hello", "=", f"?{name}", f"{name}:superseded", "newer"]
    await scene.reply(view)


@pytest.mark.spec("runner-15")
@pytest.mark.parametrize("kind", ["approval", "question"])
async def test_a_message_of_somebody_else_waits_behind_what_is_asked(scene: Scene, kind: str) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner, kind=kind)
    for user, asker in (("bob", True), ("ann", False), ("", True)):
        await scene.say("me too", user=user, asker=asker)
    await scene.dispatch()
    assert (await scene.state(), await listed(scene), await told(scene)) == ("parked", [name], [])
    await decide(scene, view, name, DENY)
    view = await scene.start(owner)
    assert shown(view)[2:] == [f"?{name}", f"{name}:denied", "me too", "me too", "me too"]
    await scene.reply(view)


async def test_a_message_of_somebody_else_takes_the_place_of_what_anyone_may_take_back(scene: Scene) -> None:
    view, (name,) = await asked(scene, await scene.worker(), scope="anyone")
    await scene.say("me too", user="bob", asker=False)
    await scene.dispatch()
    assert await told(scene) == [(name, "superseded", "bob")]
    assert view.turn


async def test_what_nobody_knows_the_asker_of_gives_way_to_any_message_that_may_be_his(scene: Scene) -> None:
    _, (name,) = await asked(scene, await scene.worker(), user="")
    await scene.say("me too", user="bob")
    await scene.dispatch()
    assert await told(scene) == [(name, "superseded", "bob")]


async def test_other_awaited_calls_are_let_go_of_for_an_asker_while_what_is_asked_stays(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, user="ann")
    made = call(view, 0, "approval", awaited=True), call(view, 1, "callback", awaited=True)
    view = await scene.ask(view, *made)
    await scene.commit(view, park=tuple(Park(c.id, DAY_MS) for c in made), ending="park")
    await scene.say("me too", user="bob")
    await scene.dispatch()
    rows = await scene.rows()
    assert [(rows[c.id]["aw"], rows[c.id].get("de")) for c in made] == [(1, None), (0, 1)]
    assert (await scene.state(), await listed(scene)) == ("parked", [made[0].id])


async def test_a_message_that_came_before_the_park_takes_its_place_only_if_it_is_the_askers(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, user="ann")
    made = call(view, 0, "approval", awaited=True)
    view = await scene.ask(view, made)
    await scene.say("bob's", user="bob")
    await scene.dispatch()
    view = await scene.commit(view, park=(Park(made.id, DAY_MS),), ending="park")
    assert view.ended
    view = await scene.open_turn(owner, session="t", user="ann")
    made = call(view, 0, "approval", awaited=True)
    view = await scene.ask(view, made)
    await scene.say("hers", user="ann", session="t")
    await scene.dispatch()
    view = await scene.commit(view, park=(Park(made.id, DAY_MS),), ending="park")
    assert shown(view)[-2:] == [f"{made.id}:superseded", "hers"]
    await scene.reply(view)


# -- what waits for people, by tenant


async def test_pages_of_what_waits_go_on_where_the_one_before_ended_whatever_was_decided_meanwhile(scene: Scene) -> None:
    owner = await scene.worker()
    names: list[str] = []
    for i in range(4):
        view = await scene.open_turn(owner, session=f"s{i}")
        made = [call(view, n, "approval", awaited=True) for n in range(3)]
        await scene.ask(view, *made, park=tuple(Park(c.id, DAY_MS) for c in made), ending="park")
        names += [c.id for c in made]
        await scene.pass_ms(i % 2)
    seen: list[str] = []
    place = None
    while True:
        page = await approvals.pending(scene.yard, "default", limit=5, after=place)
        seen += [one.call for one in page.items]
        if page.next is None:
            break
        last, place = page.items[-1], page.next
        await approvals.decide(scene.yard, "default", last.id, DENY)
    assert sorted(seen) == sorted(names)
    assert len(await listed(scene)) == 10
    assert (await approvals.pending(scene.yard, "other")).items == ()


async def somebody_else_writes(scene: Scene) -> None:
    await test_a_message_of_somebody_else_waits_behind_what_is_asked(scene, "approval")


async def every_second_racer_is_late(scene: Scene) -> None:
    await test_of_an_answer_the_deadline_a_newer_message_and_a_cancel_the_first_one_wins(scene, "cancelled allow timeout superseded")


REFUSED = "  if r.o then return {r.o == 'timeout' and 'expired' or 'conflict', 0, r.o} end\n"
BROKEN: dict[str, Broken] = {
    "anybody takes it back": (somebody_else_writes, *("if gives_way(r, wrote) then settle", "if true then settle")),
    "nobody but the asker takes it back": (
        test_a_message_of_somebody_else_takes_the_place_of_what_anyone_may_take_back,
        *("return r.any == 1 or wrote.asker", "return wrote.asker"),
    ),
    "nobody known is nobody": (
        test_what_nobody_knows_the_asker_of_gives_way_to_any_message_that_may_be_his,
        *("(asker == '' or wrote.askers[asker])", "wrote.askers[asker]"),
    ),
    "a decision counts after the end": (every_second_racer_is_late, REFUSED, ""),
    "an answer of another call": (
        test_approvals_that_are_given_in_reverse_order_reach_their_own_calls,
        *("c .. ':d') or nil end", "pending(h)[1] .. ':d') or nil end"),
    ),
    "a decision dies with its worker": (
        test_a_decision_after_its_worker_died_is_carried_out_by_another_once,
        *("  r.s, r.aw = 'allowed', 0\n", "  r.s, r.aw = 'started', 0\n"),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_the_rules_of_races_are_what_these_tests_see(clean: str, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
