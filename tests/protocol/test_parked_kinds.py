"""A call may wait for something else than it was declared for, and a session may be allowed what it asked for once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, OK, Scene, call, shown
from tests.protocol.test_approvals import asked, decide, ident, listed, run, told
from turnyard.records.approvals import Decision
from turnyard.records.commit import MOST_GRANTS, Answer, Park, TurnView
from turnyard.state import approvals, ingress

pytestmark = pytest.mark.asyncio

ALWAYS = Decision("allow", "bob", scope="session")


async def kept(scene: Scene, view: TurnView, name: str) -> list[str]:
    """What is kept beside a call's row."""
    shard = scene.yard.shards[0]
    return sorted(
        k.decode().rpartition(":")[2] for k in await shard.redis.hkeys(shard.keys.calls(view.store)) if k.startswith(name.encode() + b":")
    )


async def asking(scene: Scene, owner: str, kind: Any = "plain") -> tuple[TurnView, str]:
    """A call that was started and asks for approval before it does anything."""
    view = await scene.open_turn(owner, user="ann")
    made = call(view, 0, kind)
    view = await scene.ask(view, made, start=(made.id,))
    park = Park(made.id, DAY_MS, kind="approval", awaited=True, request={"reason": "VIP", "approvers": ["bob"]})
    await scene.commit(view, park=(park,), ending="park")
    return view, made.id


@pytest.mark.parametrize("kind", ["plain", "parallel", "callback"])
async def test_a_started_call_that_asks_first_waits_for_people_and_is_run_as_its_first_attempt(scene: Scene, kind: str) -> None:
    owner = await scene.worker()
    view, name = await asking(scene, owner, kind)
    assert (await scene.state(), await listed(scene)) == ("parked", [name])
    (waiting,) = (await approvals.pending(scene.yard, "default")).items
    assert (waiting.kind, waiting.reason, waiting.approvers) == ("allow_deny", "VIP", ("bob",))
    assert (await decide(scene, view, name)).code == "accepted"
    view = await scene.start(owner)
    assert [(r.kind, r.state, r.awaited) for r in view.rows] == [("approval", "allowed", False)]
    view = await scene.commit(view, start=(name,))
    assert view.rows[0].attempt == 1
    view = await scene.commit(view, append=(Answer(name, "result", OK),), claim=True)
    await scene.reply(view)


async def test_an_approved_call_is_lifted_and_holds_its_turn_where_that_was_asked(scene: Scene) -> None:
    owner, lifted = await scene.worker(), await scene.worker(role="lifted")
    view, (name,) = await asked(scene, owner)
    await decide(scene, view, name)
    view = await scene.start(owner)
    await scene.commit(view, park=(Park(name, 60_000, kind="lift", awaited=True),), ending="park", lanes=("arq",))
    assert (await scene.state(), await listed(scene)) == ("parked", [])
    assert (await scene.begin_row(view, name, owner=lifted)).code == "OK"
    assert (await scene.outcome(view, name, owner=lifted, task="task-1")).code == "accepted"
    view = await scene.start(owner)
    assert shown(view)[-1] == f"{name}:result"
    await scene.reply(view)
    await scene.pass_ms(DAY_MS)
    await scene.tick()
    assert (await decide(scene, view, name)).code == "duplicate"


async def test_an_approved_callback_waits_detached_for_its_vendor(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner)
    await decide(scene, view, name)
    view = await scene.start(owner)
    view = await scene.commit(view, start=(name,))
    park = Park(name, DAY_MS, kind="callback")
    view = await scene.commit(view, append=(Answer(name, "placeholder", {"content": "later"}),), park=(park,), claim=True)
    await scene.reply(view)
    assert (await scene.outcome(view, name, secret_hash=None)).code == "accepted"
    view = await scene.start(owner)
    assert shown(view)[-1] == f"{name}:result"
    await scene.reply(view)


async def test_an_approved_call_that_goes_on_outside_is_no_approval_any_more(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner)
    await decide(scene, view, name)
    view = await scene.start(owner)
    view = await scene.commit(view, start=(name,))
    park = Park(name, DAY_MS, task="long")
    view = await scene.commit(view, append=(Answer(name, "placeholder", {"content": "later"}),), park=(park,), claim=True)
    await scene.reply(view)
    assert (await listed(scene), (await scene.rows())[name]["k"]) == ([], "plain")
    assert (await scene.outcome(view, name, owner=owner, task="long")).code == "accepted"
    await scene.reply(await scene.start(owner))


@pytest.mark.spec("S17")
async def test_an_approved_call_is_not_asked_about_again_so_that_a_second_click_decides_nothing_new(scene: Scene) -> None:
    owner = await scene.worker()
    view, name = await asking(scene, owner)
    await decide(scene, view, name)
    view = await scene.start(owner)
    view = await scene.commit(view, start=(name,))
    view = await scene.commit(view, park=(Park(name, DAY_MS, kind="approval", awaited=True, request={}),), ending="park")
    assert (view.ended, shown(view)[-1], await listed(scene)) == (False, f"{name}:error", [])
    assert (await decide(scene, view, name)).code == "duplicate"
    await scene.reply(view)


async def test_what_is_asked_is_kept_as_long_as_somebody_may_ask_for_it_and_no_longer(scene: Scene) -> None:
    owner = await scene.worker()
    view, name = await asking(scene, owner)
    assert await kept(scene, view, name) == ["q"]
    await decide(scene, view, name)
    view = await run(scene, owner, name)
    await scene.reply(view)
    found = await approvals.read(scene.yard, "default", ident(scene, view, name))
    assert found is not None
    assert (found.state, found.reason, found.tool) == ("allowed", "VIP", "tool0")
    assert await kept(scene, view, name) == ["d", "q"]
    await scene.pass_ms(8 * DAY_MS)
    await scene.tick()
    assert await kept(scene, view, name) == []
    assert await approvals.read(scene.yard, "default", ident(scene, view, name)) is None


async def test_a_lift_that_was_approved_does_not_wait_with_what_people_were_asked(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner)
    await decide(scene, view, name)
    view = await scene.start(owner)
    view = await scene.commit(view, park=(Park(name, 60_000, kind="lift", awaited=True, request={"at": 7}),))
    raw = await scene.yard.redis.hget(scene.yard.shards[0].keys.calls(view.store), f"{name}:q")
    assert raw == b'{"at":7}'


async def test_what_is_allowed_for_the_session_is_known_to_its_turns_until_a_new_history(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner, remember="session")
    assert view.head["grants"] == ""
    assert (await decide(scene, view, name, ALWAYS)).code == "accepted"
    view = await run(scene, owner, name)
    assert view.head["grants"] == "tool0"
    await scene.reply(view)
    view = await scene.open_turn(owner)
    assert view.head["grants"] == "tool0"
    await scene.control("new")
    await scene.dispatch()
    await scene.reply(view)
    view = await scene.open_turn(owner)
    assert view.head["grants"] == ""
    await scene.reply(view)


async def test_nothing_is_allowed_for_a_session_that_was_not_offered_it_or_that_began_anew_since(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner)
    got = await decide(scene, view, name, ALWAYS)
    assert (got.code, got.approval and (got.approval.decided or {})["scope"]) == ("accepted", "once")
    view = await run(scene, owner, name)
    await scene.reply(view)
    view, (name,) = await asked(scene, owner, remember="session")
    await scene.control("new")
    await scene.dispatch()
    await decide(scene, view, name, ALWAYS)
    assert (await scene.head()).get("gn", "") == ""


async def test_the_latest_grants_of_a_session_are_kept_each_once(scene: Scene) -> None:
    owner = await scene.worker()
    view = None
    for i in [*range(MOST_GRANTS + 2), 5]:
        view, (name,) = await asked(scene, owner)
        await ingress.accept_outcome(
            scene.yard, shard=0, store=view.store, call=name, outcome="allow", body={}, secret_hash=None, by="b", grant=f"g{i}"
        )
        view = await run(scene, owner, name)
        await scene.reply(view)
    assert view is not None
    assert view.head["grants"].split("\n") == [*(f"g{i}" for i in range(2, MOST_GRANTS + 2) if i != 5), "g5"]


async def test_a_decision_costs_no_more_in_a_session_with_many_parked_calls(scene: Scene) -> None:
    owner = await scene.worker()
    costs: list[int] = []
    for session, calls in (("few", 1), ("many", 60)):
        view = await scene.open_turn(owner, session=session)
        made = [call(view, i, "approval", awaited=True) for i in range(calls)]
        await scene.ask(view, *made, park=tuple(Park(c.id, DAY_MS, request={}) for c in made), ending="park")
        await scene.yard.redis.config_resetstat()
        got = await scene.outcome(view, made[0].id, "allow", session=session, secret_hash=None, by="bob")
        costs.append(await scene.commands())
        assert got.code == "accepted"
    assert costs[0] == costs[1]


async def test_an_event_tells_each_outcome_with_its_reason(scene: Scene) -> None:
    view, (name,) = await asked(scene, await scene.worker())
    await decide(scene, view, name, Decision("allow", "bob", reason="fine"))
    (event,) = [r for r in await scene.log() if r.type == "permission/resolved"]
    assert (event.call, event.kind, event.outcome, event.extra) == (name, "approval", "allow", {"by": "bob", "rs": "fine"})
    assert event.at_ms == scene.now_ms
    assert "call/resolved" not in {r.type for r in await scene.log()}
    assert await told(scene) == [(name, "allow", "bob")]


BROKEN: dict[str, Broken] = {
    "a second question is asked under the first one's name": (
        test_an_approved_call_is_not_asked_about_again_so_that_a_second_click_decides_nothing_new,
        *("  if asks_again(r, more) then return end\n", ""),
    ),
    "an approval cannot become a lift": (
        test_an_approved_call_is_lifted_and_holds_its_turn_where_that_was_asked,
        *("started = true, allowed = true}", "started = true}"),
    ),
    "what goes on outside is still an approval": (
        test_an_approved_call_that_goes_on_outside_is_no_approval_any_more,
        *("r.k = more.k or more.tk and r.k == 'approval' and 'plain' or r.k", "r.k = more.k or r.k"),
    ),
    "an awaited park holds nothing": (
        test_an_approved_call_is_lifted_and_holds_its_turn_where_that_was_asked,
        *("  if more.aw == 1 then r.aw = 1 end\n", ""),
    ),
    "the request of an approval stays with its lift": (
        test_what_is_asked_is_kept_as_long_as_somebody_may_ask_for_it_and_no_longer,
        *("c .. ':l', c .. ':q', c .. ':d')", "c .. ':l')"),
    ),
    "a new history keeps the grants of the old": (
        test_what_is_allowed_for_the_session_is_known_to_its_turns_until_a_new_history,
        *("  set(h, 'gn', '')\n", ""),
    ),
    "a decision about an old history grants to the new one": (
        test_nothing_is_allowed_for_a_session_that_was_not_offered_it_or_that_began_anew_since,
        *("if grant ~= '' and r.ord == tostring(h.so) then", "if grant ~= '' then"),
    ),
    "grants grow": (test_the_latest_grants_of_a_session_are_kept_each_once, *("if #list > MOST_GRANTS then", "if false then")),
    "an event does not say why": (test_an_event_tells_each_outcome_with_its_reason, *("if reason and reason ~= '' then", "if false then")),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_the_rules_of_kinds_and_grants_are_what_these_tests_see(clean: str, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
