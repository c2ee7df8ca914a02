"""Results that come from outside: each is shown once, in its place, whenever it comes and whatever the turn does meanwhile."""

from __future__ import annotations

from functools import partial

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, OK, Scene, call, shown
from turnyard.engine.render import render
from turnyard.records.commit import Answer, Commit, NewCall, Park, Say, TurnView
from turnyard.records.log import RESOLVED
from turnyard.state import fleet

pytestmark = pytest.mark.asyncio

MINUTE_MS = 60_000


async def busy(scene: Scene, owner: str, minutes: int) -> None:
    """Time passes while a live worker runs something long."""
    shard = scene.yard.shards[0]
    for _ in range(minutes):
        for _ in range(12):
            await scene.pass_ms(MINUTE_MS // 12)
            assert not (await fleet.beat(shard, owner, held=1)).lost
        await scene.tick()


async def with_detached(scene: Scene, owner: str, n: int, kind: str = "callback") -> tuple[TurnView, list[NewCall], NewCall]:
    """A turn with n calls outside whose placeholders are shown, and a tool that runs."""
    view = await scene.open_turn(owner)
    outside = [call(view, i, kind) for i in range(n)]
    tool = call(view, n)
    view = await scene.ask(view, *outside, tool)
    for made in outside:
        view = await scene.launch(view, made.id, secret=False)
    return await scene.commit(view, start=(tool.id,)), outside, tool


async def results(view: TurnView, made: list[NewCall]) -> list[str]:
    """The results of these calls that are no placeholders, in the order in which a model sees them."""
    names = {m.id: str(i) for i, m in enumerate(made)}
    return [
        f"{names[e.call]}:{e.outcome}" for e in view.entries if e.call in names and e.type == "tool/result" and e.outcome != "placeholder"
    ]


@pytest.mark.spec("rival-13", "rival-24", "L34")
async def test_the_result_of_a_child_reaches_a_parent_that_is_busy_for_half_an_hour_and_disturbs_nothing(scene: Scene) -> None:
    owner = await scene.worker()
    view, children, tool = await with_detached(scene, owner, 1, "child")
    assert (await scene.outcome(view, children[0].id, secret_hash=None)).code == "accepted"
    await scene.dispatch()
    await busy(scene, owner, 30)
    head = await scene.head()
    assert (head["st"], head["ep"], await scene.take(owner)) == ("running", "1", None)
    view = await scene.commit(view, append=(Answer(tool.id, "result", OK),), claim=True)
    assert await results(view, children) == ["0:result"]
    await scene.reply(view)
    assert await scene.state() == "idle"


@pytest.mark.spec("rival-14")
@pytest.mark.parametrize("end", ["timeout", "error", "cancelled"])
async def test_timeout_failure_and_cancel_of_a_parked_call_are_results_with_their_reason(scene: Scene, end: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "child", awaited=True)
    view = await scene.ask(view, made)
    store = view.store
    await scene.commit(view, park=(Park(made.id, 4000),), ending="park")
    if end == "timeout":
        await scene.pass_ms(4001)
        await scene.tick()
    elif end == "error":
        await scene.outcome(store, made.id, "error", secret_hash=None, body={"content": "the child gave up", "is_error": True})
    else:
        await scene.control("cancel")
    view = await scene.start(owner)
    if end == "cancelled":
        await scene.commit(view, ending="finish", closing=True)
        assert (await scene.entries())[-1] == f"{made.id}:cancelled"
        return
    assert view.entries[-1].outcome == end
    told = str(render(view.entries)[-1])
    assert ("did not finish in time" if end == "timeout" else "the child gave up") in told
    await scene.reply(view)


@pytest.mark.spec("rival-15")
async def test_results_that_land_during_a_long_turn_are_each_shown_once_in_its_next_step_and_kept_until_then(scene: Scene) -> None:
    owner = await scene.worker()
    view, outside, tool = await with_detached(scene, owner, 3)
    for made in reversed(outside):
        await busy(scene, owner, 16)
        await scene.outcome(view, made.id, secret_hash=None)
        await scene.dispatch()
    view = await scene.commit(view, append=(Answer(tool.id, "result", OK),), claim=True)
    assert await results(view, outside) == ["2:result", "1:result", "0:result"]
    view = await scene.commit(view, append=(Say({"text": "more"}),), claim=True)
    assert await results(view, outside) == ["2:result", "1:result", "0:result"]
    await scene.reply(view)


@pytest.mark.spec("rival-16")
async def test_results_that_arrive_together_cost_one_turn(scene: Scene) -> None:
    owner = await scene.worker()
    view, outside, tool = await with_detached(scene, owner, 5)
    store = view.store
    await scene.reply(await scene.commit(view, append=(Answer(tool.id, "result", OK),), claim=True))
    for made in outside:
        await scene.outcome(store, made.id, secret_hash=None)
    view = await scene.start(owner)
    assert await results(view, outside) == [f"{i}:result" for i in range(5)]
    await scene.reply(view)
    await scene.dispatch()
    assert (await scene.state(), (await scene.head())["ep"]) == ("idle", "2")


@pytest.mark.spec("rival-17", "rival-18")
async def test_the_result_of_a_turn_that_is_over_goes_to_the_history_that_made_the_call_and_names_it(scene: Scene) -> None:
    owner = await scene.worker()
    view, (made,), tool = await with_detached(scene, owner, 1)
    store, turn = view.store, view.turn
    await scene.reply(await scene.commit(view, append=(Answer(tool.id, "result", OK),), claim=True))
    await scene.control("new")
    await scene.reply(await scene.open_turn(owner, "another history"))
    await scene.outcome(store, made.id, secret_hash=None)
    view = await scene.start(owner)
    assert view.store == store
    assert (shown(view)[-1], view.entries[-1].aside) == (f"{made.id}:result", True)
    (resolved,) = [r for r in await scene.log() if r.type == RESOLVED]
    assert (resolved.call, resolved.turn) == (made.id, turn)
    # Whatever came between, a model reads it as the result of that call.
    last = render(view.entries)[-1]
    assert last["role"] == "user"
    assert made.id in str(last)
    await scene.reply(view)
    assert await scene.entries(ordinal=1) == ["another history", "=bye"]


@pytest.mark.spec("rival-19")
@pytest.mark.parametrize("first", ["result", "interrupt"])
async def test_a_tool_that_finished_keeps_its_result_although_the_turn_was_interrupted_at_that_moment(scene: Scene, first: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    tools = [call(view, 0), call(view, 1)]
    view = await scene.ask(view, *tools, start=(tools[0].id,))
    done = Commit(append=(Answer(tools[0].id, "result", OK),), start=(tools[1].id,))
    if first == "result":
        view = await scene.commit(view, done)
    await scene.say("stop that", mode="interrupt")
    await scene.dispatch()
    view = await scene.commit(view, done if first == "interrupt" else Commit(unstart=(tools[1].id,)))
    assert view.cancel == "superseded"
    await scene.commit(view, ending="finish", closing=True)
    view = await scene.start(owner)
    assert [w for w in shown(view) if ":" in w] == [f"{tools[0].id}:result", f"{tools[1].id}:cancelled"]
    assert shown(view)[-1] == "stop that"
    await scene.reply(view)


@pytest.mark.spec("rival-20")
@pytest.mark.parametrize("how", ["detached", "overtaken"])
async def test_a_parked_call_is_shown_as_running_and_never_as_refused(scene: Scene, how: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=how == "overtaken")
    view = await scene.ask(view, made)
    store = view.store
    if how == "overtaken":
        await scene.park(view, made.id)
        await scene.say("are you there?")
        view = await scene.start(owner)
    else:
        view = await scene.commit(view, append=(Answer(made.id, "placeholder"),), park=(Park(made.id, DAY_MS),), claim=True)
    assert f"{made.id}:placeholder" in shown(view)
    text = " ".join(str(m) for m in render(view.entries))
    assert "still running" in text
    assert not any(word in text.lower() for word in ("denied", "refused", "declined"))
    await scene.reply(view)
    await scene.outcome(store, made.id, secret_hash=None)
    await scene.reply(await scene.start(owner))


@pytest.mark.spec("rival-22")
async def test_approvals_given_in_reverse_order_reach_their_own_calls(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = [call(view, i, "approval", awaited=True) for i in range(3)]
    view = await scene.ask(view, *made)
    store = view.store
    await scene.commit(view, park=tuple(Park(m.id, DAY_MS) for m in made), ending="park")
    for m, decision in zip(reversed(made), ("deny", "allow", "deny"), strict=True):
        assert (await scene.outcome(store, m.id, decision, secret_hash=None)).code == "accepted"
    await scene.dispatch()
    view = await scene.start(owner)
    assert {e.call: e.outcome for e in view.entries if e.type == "tool/result"} == {made[0].id: "denied", made[2].id: "denied"}
    assert [(row.call, row.state) for row in view.rows] == [(made[1].id, "allowed")]
    view = await scene.commit(view, start=(made[1].id,))
    await scene.reply(await scene.commit(view, append=(Answer(made[1].id, "result", OK),), claim=True))


@pytest.mark.spec("rival-23")
async def test_settling_a_closed_call_changes_nothing_and_says_so_and_the_same_outcome_again_is_fine(scene: Scene) -> None:
    owner = await scene.worker()
    view, (made,), tool = await with_detached(scene, owner, 1)
    store = view.store
    assert (await scene.outcome(store, made.id, secret_hash=None)).code == "accepted"
    await scene.dispatch()
    view = await scene.commit(view, append=(Answer(tool.id, "result", OK),), claim=True)
    before, ingress = await scene.log(), await scene.ingress()
    codes = [(await scene.outcome(store, made.id, secret_hash=None, body=body)).code for body in (OK, {"content": "other"}, OK)]
    assert codes == ["duplicate", "conflict", "duplicate"]
    assert (await scene.log(), await scene.ingress()) == (before, ingress)
    await scene.reply(view)
    assert await scene.state() == "idle"


@pytest.mark.spec("runner-32")
@pytest.mark.parametrize("comes", ["idle", "busy", "twice", "late"])
async def test_a_lifted_result_is_merged_once_together_with_what_else_waits(scene: Scene, comes: str) -> None:
    owner, lifter = await scene.worker(), await scene.worker(role="lifted")
    view, (made,), tool = await with_detached(scene, owner, 1, "lift")
    assert (await scene.begin_row(view, made.id, owner=lifter)).code == "OK"
    store, done = view.store, Commit(append=(Answer(tool.id, "result", OK),), claim=True)
    if comes != "busy":
        await scene.reply(await scene.commit(view, done))
    if comes == "late":
        await scene.pass_ms(DAY_MS + 1)
        await scene.tick(parts="d")
    await scene.notice("the disk is full")
    codes = [(await scene.outcome(store, made.id, owner=lifter, task="task-1")).code for _ in range(2 if comes == "twice" else 1)]
    assert codes == ["accepted", "duplicate"][: len(codes)]
    await scene.say("and now?")
    await scene.dispatch()
    view = await scene.commit(view, done) if comes == "busy" else await scene.start(owner)
    told = [w for w in shown(view)[3:] if not w.endswith((":placeholder", f"{tool.id}:result")) and w != "=bye"]
    first = [f"{made.id}:timeout"] if comes == "late" else []
    assert [w for w in told if made.id in w] == [*first, f"{made.id}:result"]
    assert {"!the disk is full", "and now?"} < set(told)
    assert view.entries[-1].body.get("text") == "and now?"
    await scene.reply(view)
    await scene.dispatch()
    assert (await scene.state(), (await scene.head())["ep"]) == ("idle", "1" if comes == "busy" else "2")


BROKEN: dict[str, Broken] = {
    "results wake a running turn": (
        test_the_result_of_a_child_reaches_a_parent_that_is_busy_for_half_an_hour_and_disturbs_nothing,
        *("if h.st == 'idle' and (wakes(h) or next_due(h)) then", "if wakes(h) or next_due(h) then"),
    ),
    "a result goes to the current history": (
        test_the_result_of_a_turn_that_is_over_goes_to_the_history_that_made_the_call_and_names_it,
        *("put(h, {k = 'note', c = e.c, o = r.o, st = e.st,", "put(h, {k = 'note', c = e.c, o = r.o, st = tostring(h.so),"),
    ),
    "a lifted result that comes twice is merged twice": (
        partial(test_a_lifted_result_is_merged_once_together_with_what_else_waits, comes="twice"),
        *("  elseif r.o then\n    put_row(h, r)\n    local first", "  elseif false then\n    local first"),
    ),
    "a late result is lost": (
        partial(test_a_lifted_result_is_merged_once_together_with_what_else_waits, comes="late"),
        *("if (r.o == 'unknown' or r.o == 'timeout') and not r.la and", "if false and"),
    ),
    "a closed call is settled again": (
        test_settling_a_closed_call_changes_nothing_and_says_so_and_the_same_outcome_again_is_fine,
        *("return {first == body and 'duplicate' or 'conflict', 0, r.o}", "first = body"),
    ),
    "a claim forgets what it could not take": (
        test_results_that_land_during_a_long_turn_are_each_shown_once_in_its_next_step_and_kept_until_then,
        *("if it.st ~= h.ts or i > CLAIM then", "if it.st ~= h.ts or i > 1 then keep = {} elseif false then"),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_without_its_rule_a_result_goes_astray(clean: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
