"""Child sessions on the server: started once, told once, stopped when asked, whoever dies in between."""

from __future__ import annotations

import asyncio

import pytest

from platforms.children import Children
from platforms.relays import relay_once, run_relays
from tests.protocol.broken import Broken, snaps
from tests.protocol.family import Family
from tests.protocol.scene import DAY_MS, Scene, call
from turnyard.errors import FenceLost
from turnyard.records.children import MOST_DEEP
from turnyard.records.commit import Answer, Commit, Note, Park, Say
from turnyard.records.log import CALLED_OFF
from turnyard.state import children, ingress
from turnyard.state.explain import explain
from turnyard.state.lanes import PAGE, take_lane
from turnyard.testing import ManualClock, wait_until

pytestmark = pytest.mark.asyncio


async def test_a_child_is_a_session_of_its_own_for_the_same_tenant_and_user_and_its_answer_is_the_calls_result(scene: Scene) -> None:
    family = await Family.of(scene)
    await family.parent()
    await family.carry()
    view = await family.start()
    head = await scene.head(family.child())
    assert (head["tn"], head["ag"], head["us"], head["dl"], head["dp"]) == ("default", "kid", "ann", family.made[0].id, "1")
    assert view.entries[-1].body["text"] == "task 0"
    await scene.reply(view, "done")
    await family.carry()
    woken = await family.woken()
    assert family.results(woken) == ["done"]
    body = woken.entries[-1].body
    assert (body["state"], body["session"], body["is_error"]) == ("succeeded", family.child(), False)
    await scene.reply(woken)


async def test_a_child_knows_the_metadata_of_the_message_that_its_parent_works_for_and_so_do_its_own(scene: Scene) -> None:
    family = await Family.of(scene)
    await scene.say(agent="bot", metadata={"order": "o-1"})
    await family.ask(await scene.start(family.owner))
    await family.carry()
    child, made = family.child(), family.made
    view = await family.start()
    assert view.entries[-1].body["metadata"] == {"order": "o-1"}
    await family.ask(view)
    await family.carry()
    grandchild = await family.child_job(parent=child)
    assert grandchild is not None
    assert (grandchild.metadata, grandchild.input["metadata"]) == ({"order": "o-1"}, {"order": "o-1"})
    await scene.reply(await scene.start(family.owner, grandchild.session))
    await family.carry()
    await scene.reply(await scene.start(family.owner, child))
    family.made = made
    await family.carry()
    await scene.reply(await family.woken())


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_a_child_that_comes_to_no_answer_is_an_error_with_its_code_and_what_it_had_said(scene: Scene, how: str) -> None:
    family = await Family.of(scene)
    await family.parent()
    await family.carry()
    view = await scene.commit(await family.start(), append=(Say({"text": "halfway"}),), claim=True)
    if how == "failed":
        failure = {"code": "model_error", "message": "no answer", "retryable": False, "ref": None}
        await scene.commit(view, ending="finish", closing=True, failure=failure)
    else:
        job = await family.child_job()
        assert job is not None
        await ingress.cancel_job(scene.yard, job.id, tenant="default")
        await scene.dispatch()
        await scene.close_turn(view)
    await family.carry()
    woken = await family.woken()
    result = woken.entries[-1]
    assert (result.outcome, result.body["state"], result.body["code"]) == ("error", how, {"failed": "model_error"}.get(how, how))
    assert "halfway" in result.body["content"]
    await scene.reply(woken)


@pytest.mark.parametrize("steps", range(4))
async def test_a_relay_may_die_after_any_record_and_each_child_runs_once_and_is_told_once(scene: Scene, steps: int) -> None:
    family = await Family.of(scene)
    await family.parent(2)
    await family.carry_and_die(steps)
    await family.carry_and_die(steps)
    await family.carry()
    for i in range(2):
        await family.finish(i)
    await family.carry_and_die(steps)
    await family.carry_and_die(steps)
    await family.carry()
    woken = await family.woken()
    assert family.results(woken) == ["answer 0", "answer 1"]
    for i in range(2):
        assert await scene.entries(family.child(i)) == [f"task {i}", f"=answer {i}"]
    await scene.reply(woken)


@pytest.mark.spec("turn-65")
async def test_a_child_that_ten_relays_start_at_once_is_one_session_with_one_turn(scene: Scene) -> None:
    family = await Family.of(scene)
    await family.parent()
    shard = scene.shard()
    (item,) = await take_lane(shard, "session")
    relays = [Children(scene.yard) for _ in range(10)]
    await asyncio.gather(*(r.carry(shard, item, record) for r in relays for record in r.wanted(item)))
    await family.finish()
    await scene.dispatch()
    assert await scene.entries(family.child()) == ["task 0", "=answer 0"]
    assert await scene.state(family.child()) == "idle"
    await scene.pass_ms(30_001)
    await family.carry()
    await scene.reply(await family.woken())


async def test_parents_and_children_on_different_shards_reach_each_other(three_shards: Scene) -> None:
    scene = three_shards
    family = await Family.of(scene)
    await family.parent(9)
    assert {scene.shard(family.child(i)).n for i in range(9)} - {scene.shard().n}, "all on the parent's own shard: try again"
    await family.carry()
    for i in range(9):
        await family.finish(i)
    await family.carry()
    woken = await family.woken()
    assert family.results(woken) == [f"answer {i}" for i in range(9)]
    await scene.reply(woken)


@pytest.mark.spec("turn-56")
async def test_a_parent_of_twenty_wakes_once_with_the_results_in_the_order_it_declared_them_and_their_costs_counted_once(
    scene: Scene,
) -> None:
    family = await Family.of(scene)
    asked = await scene.say(agent="bot")
    view = await scene.start(family.owner)
    await family.ask(view, 20)
    await family.carry()
    for i in reversed(range(20)):
        await scene.commit(await family.start(i), append=(Say({"text": f"answer {i}", "usage": {"output_tokens": i}}),), ending="finish")
        await family.carry()
        await scene.dispatch()
        assert (await scene.state() == "parked") == (i > 0)
    woken = await family.woken()
    assert woken.epoch == view.epoch + 1
    assert family.results(woken) == [f"answer {i}" for i in range(20)]
    await scene.reply(woken)
    assert (await scene.job(asked)).usage["output_tokens"] == sum(range(20))


@pytest.mark.spec("turn-57")
async def test_a_child_that_is_done_before_its_parent_waits_makes_it_go_straight_on(scene: Scene) -> None:
    family = await Family.of(scene)
    view = await family.parent(ending="none")
    await family.carry()
    await family.finish()
    await family.carry()
    on = await scene.commit(view, ending="park")
    assert (on.ending, on.ended, family.results(on)) == ("none", False, ["answer 0"])
    assert on.epoch == view.epoch
    await scene.reply(on)
    await scene.dispatch()
    assert await scene.take(family.owner) is None


@pytest.mark.spec("turn-58")
async def test_when_the_last_two_children_are_told_at_the_same_moment_the_parent_wakes_exactly_once(three_shards: Scene) -> None:
    scene = three_shards
    family = await Family.of(scene)
    view = await family.parent(12)
    await family.carry()
    first = 0
    last = next(i for i in range(1, 12) if scene.shard(family.child(i)).n != scene.shard(family.child(first)).n)
    for i in set(range(12)) - {first, last}:
        await family.finish(i)
    await family.carry()
    await scene.dispatch(scene.shard())
    assert await scene.state() == "parked"
    await asyncio.gather(family.finish(first), family.finish(last))
    # Each is told by a relay of its own, on its own shard.
    await asyncio.gather(*(relay_once(scene.shard(family.child(i)), Children(scene.yard)) for i in (first, last)))
    woken = await family.woken()
    assert (woken.epoch, len(family.results(woken))) == (view.epoch + 1, 12)
    await scene.reply(woken)
    await scene.dispatch(scene.shard())
    assert await scene.take(family.owner) is None
    assert (await scene.head())["ep"] == str(woken.epoch)


@pytest.mark.spec("turn-59")
async def test_a_step_that_is_not_committed_leaves_no_child_behind(scene: Scene) -> None:
    family = await Family.of(scene)
    view = await scene.open_turn(family.owner, agent="bot")
    family.made = family.calls(view)
    change = Commit(append=(Say({"text": ""}, tuple(family.made)),), park=(Park(family.made[0].id, DAY_MS),), ending="park")
    await scene.tick(family.owner)
    with pytest.raises(FenceLost):
        await scene.commit(view, change)
    assert (await family.carry(), await scene.rows(), await scene.state(family.child())) == (0, {}, "idle")
    assert not await scene.head(family.child())
    await scene.reply(await scene.start(await scene.worker()))


@pytest.mark.spec("turn-60")
@pytest.mark.parametrize("cascade", [False, True])
async def test_a_cancel_takes_children_along_only_when_it_is_asked_to(scene: Scene, cascade: bool) -> None:
    family = await Family.of(scene)
    await family.parent(3)
    await family.carry()
    running = await family.start(0)
    await family.finish(1)
    await family.carry()
    await scene.cancel(cascade=cascade, cause="budget")
    await scene.dispatch()
    await family.carry()
    await scene.dispatch()
    first, second, third = [await family.child_job(i) for i in range(3)]
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.cancel_requested, second.state) == (cascade, "succeeded")
    assert (third.state, third.cause) == (("cancelled", "budget") if cascade else ("queued", None))
    closing = await family.woken()
    await scene.close_turn(closing)
    assert [e for e in await scene.entries() if ":" in e][1] == f"{family.made[1].id}:result"
    if cascade:
        await scene.close_turn(running)
    else:
        await scene.reply(running)
        await family.finish(2)
    await family.carry()
    assert await scene.state() == "idle"


async def test_a_cancel_with_cascade_goes_on_to_the_children_of_children(scene: Scene) -> None:
    family = await Family.of(scene)
    await family.parent()
    await family.carry()
    child, made = family.child(), family.made
    await family.ask(await family.start(), 1)
    await family.carry()
    grandchild = await family.child_job(parent=child)
    assert grandchild is not None
    await scene.cancel(cascade=True)
    await scene.dispatch()
    await family.carry()
    await scene.dispatch()
    await family.carry()
    ended = await family.child_job(parent=child)
    assert ended is not None
    assert ended.state == "cancelled"
    await scene.close_turn(await scene.start(family.owner, child))
    family.made = made
    await family.carry()
    await scene.close_turn(await family.woken())


async def test_a_child_whose_call_was_cancelled_before_a_relay_came_is_never_started(scene: Scene) -> None:
    family = await Family.of(scene)
    await family.parent()
    await scene.cancel()
    await scene.dispatch()
    await family.carry()
    assert not await scene.head(family.child())
    await scene.close_turn(await family.woken())


async def test_a_child_that_is_started_while_its_call_gets_its_outcome_is_stopped_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = await Family.of(scene)
    await family.parent()
    accept = children.accept_message

    async def late(*args: object, **more: object) -> object:
        await scene.cancel(cascade=True)
        await scene.dispatch()
        await family.carry()
        return await accept(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(children, "accept_message", late)
    await family.carry()
    job = await family.child_job()
    assert job is not None
    assert job.state == "cancelled"
    await family.carry()
    await scene.close_turn(await family.woken())


@pytest.mark.parametrize("wrong", ["agent", "input", "depth"])
async def test_a_call_that_can_have_no_child_is_answered_with_the_reason(scene: Scene, wrong: str) -> None:
    family = await Family.of(scene, **({"most_deep": 0} if wrong == "depth" else {}))
    await family.parent(agent="nobody" if wrong == "agent" else "kid", args={"input": " "} if wrong == "input" else None)
    await family.carry()
    woken = await family.woken()
    (told,) = family.results(woken)
    assert {"agent": "'nobody'", "input": "some text", "depth": "0 deep"}[wrong] in told
    assert not await scene.head(family.child())
    await scene.reply(woken)


async def test_agents_may_call_each_other_four_deep(scene: Scene) -> None:
    family = await Family.of(scene)
    await family.parent()
    session, calls = "s", [("s", family.made[0])]
    for _ in range(MOST_DEEP):
        await family.carry()
        session = family.child(parent=session)
        await family.ask(await scene.start(family.owner, session))
        calls.append((session, family.made[0]))
    await family.carry()
    for session, _ in reversed(calls):
        woken = await scene.start(family.owner, session)
        assert ("4 deep" in family.results(woken)[0]) == (session == calls[-1][0])
        await scene.reply(woken)
        await family.carry()


async def test_a_child_may_take_as_long_as_its_call_may_wait_and_then_is_stopped(scene: Scene) -> None:
    family = await Family.of(scene)
    await family.parent(deadline_ms=4000)
    await family.carry()
    await scene.pass_ms(4001)
    await scene.tick()
    job = await family.child_job()
    assert job is not None
    assert (job.state, job.cause) == ("cancelled", "deadline")
    await family.carry()
    woken = await family.woken()
    assert woken.entries[-1].outcome == "timeout"
    await scene.reply(woken)
    assert await scene.state() == "idle"


async def test_arguments_without_an_input_are_told_as_json(scene: Scene) -> None:
    family = await Family.of(scene)
    await family.parent(args={"topic": "rivers", "words": 3})
    await family.carry()
    view = await family.start()
    assert view.entries[-1].body["text"] == '{"topic":"rivers","words":3}'
    await scene.reply(view)
    await family.carry()
    await scene.reply(await family.woken())


@pytest.mark.spec("turn-66")
async def test_children_answers_and_a_cancel_that_come_during_a_slow_step_neither_repeat_it_nor_get_lost(scene: Scene) -> None:
    family = await Family.of(scene)
    view = await scene.open_turn(family.owner, agent="bot")
    family.made = family.calls(view, 20, awaited=False)
    tool = call(view, 20)
    view = await scene.ask(view, *family.made, tool)
    launched = tuple(Answer(made.id, "placeholder", {"content": "later"}) for made in family.made)
    view = await scene.commit(view, append=launched, park=tuple(Park(m.id, DAY_MS) for m in family.made), start=(tool.id,))
    await family.carry()
    for i in range(20):
        await family.finish(i)
        await family.carry()
        await scene.dispatch()
    # The step that was under way all the time is taken as it is, and brings them all.
    on = await scene.commit(view, append=(Answer(tool.id, "result", {"content": "slow"}),), claim=True)
    assert (on.epoch, on.rev) == (view.epoch, view.rev + 1)
    assert sorted(r for r in family.results(on) if r.startswith("answer")) == sorted(f"answer {i}" for i in range(20))
    await scene.reply(on)
    assert [r.type for r in await scene.log() if r.type == CALLED_OFF] == []


async def test_a_child_of_a_long_conversation_is_started_without_a_pause_at_every_page_of_its_log(scene: Scene, clean: str) -> None:
    family = await Family.of(scene)
    view = await scene.open_turn(family.owner, agent="bot")
    view = await scene.commit(view, append=tuple(Note("notification", {"text": "x"}) for _ in range(3 * PAGE)))
    await family.ask(view)
    drain, clock = asyncio.Event(), ManualClock()
    relays = asyncio.create_task(run_relays(scene.yard, drain, clock=clock, lifted_url=clean))

    async def started() -> bool:
        return bool(await scene.head(family.child()))

    await wait_until(started, description="the child to be started although no time passes")
    relays.cancel()
    await asyncio.gather(relays, return_exceptions=True)
    await family.finish()
    await family.carry()
    await scene.reply(await family.woken())


async def test_a_session_that_waits_for_a_child_says_which_session_that_is(scene: Scene) -> None:
    family = await Family.of(scene)
    await family.parent()
    await family.carry()
    found = await explain(scene.yard, tenant="default", session="s")
    assert found is not None
    assert (found.code, found.holder) == ("child", {"kind": "session", "session": family.child()})
    await family.finish()
    await family.carry()
    await scene.reply(await family.woken())


BROKEN: dict[str, Broken] = {
    "a turn parks although nothing holds it": (
        test_a_child_that_is_done_before_its_parent_waits_makes_it_go_straight_on,
        *("  if h.aw == 0 then\n    claim(h)\n    return 'none'\n  end\n", ""),
    ),
    "results come in the order in which they were told": (
        test_a_parent_of_twenty_wakes_once_with_the_results_in_the_order_it_declared_them_and_their_costs_counted_once,
        *(
            "  for _, c in ipairs(pending(h)) do\n    local r = row(h, h.ts, c)\n    if r and r.o and",
            "  for i = #pending(h), 1, -1 do local c = pending(h)[i]\n    local r = row(h, h.ts, c)\n    if r and r.o and",
        ),
    ),
    "a dead worker's step is taken": (
        test_a_step_that_is_not_committed_leaves_no_child_behind,
        *("if h.st ~= 'running' or h.ep ~= epoch or h.ow ~= owner or not lease or lease == '-inf' then", "if false then"),
    ),
    "every cancel goes on to children": (
        lambda scene: test_a_cancel_takes_children_along_only_when_it_is_asked_to(scene, False),
        *("if r.k == 'child' and how.cascade == '1' then", "if r.k == 'child' then"),
    ),
    "no cancel goes on to children": (
        lambda scene: test_a_cancel_takes_children_along_only_when_it_is_asked_to(scene, True),
        *("if r.k == 'child' and how.cascade == '1' then", "if false then"),
    ),
    "an outcome moves what a commit is checked by": (
        test_children_answers_and_a_cancel_that_come_during_a_slow_step_neither_repeat_it_nor_get_lost,
        *("  elseif r.aw ~= 1 and e.kind == 'outcome' then\n", "  elseif r.aw ~= 1 and e.kind == 'outcome' then\n    add(h, 'rv', 1)\n"),
    ),
    "nobody knows how deep a session stands": (test_agents_may_call_each_other_four_deep, *("if m.dp then", "if false then")),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_the_rules_of_children_are_what_these_tests_see(clean: str, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
