"""What a repeat, a decision, a dead letter or an agent that changed must not do to turns and rows."""

from __future__ import annotations

import pytest

from tests.protocol.scene import DAY_MS, OK, SECRET, Scene, call, shown
from turnyard.engine.effects import NoEffect, ToolTable
from turnyard.engine.turn import next_effect
from turnyard.records.commit import Answer, Commit, Park
from turnyard.records.ids import hash_secret
from turnyard.state.ingress import accept_outcome, cancel_job


async def test_a_repeated_yield_says_that_the_turn_is_over_although_another_worker_runs_it_by_now(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first)
    await scene.commit(view, ending="yield")
    await scene.dispatch()
    other = await scene.begin(second)
    assert other is not None
    again = await scene.commit(view, owner=first, ending="yield")
    assert (again.code, again.ending, again.ended) == ("ALREADY", "yield", True)
    await scene.reply(other)


async def test_a_repeated_yield_is_over_for_the_old_epoch_when_the_same_worker_has_the_next(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.commit(view, ending="yield")
    await scene.dispatch()
    other = await scene.begin(owner)
    assert other is not None
    again = await scene.commit(view, ending="yield")
    assert again.ended
    await scene.reply(other)


async def test_an_allowed_call_waits_no_more_and_has_no_deadline(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "approval", awaited=True)
    view = await scene.park(await scene.ask(view, made), made.id)
    store = f"{view.session}.0"
    assert (await scene.outcome(store, made.id, "allow", secret_hash=None)).code == "accepted"
    shard = scene.shard()
    assert await shard.redis.hget(shard.keys.calls(store), "_") is None
    assert await shard.redis.zcard(shard.keys.prefix + "deadlines") == 0
    view = await scene.start(owner)
    view = await scene.commit(view, start=(made.id,))
    view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    assert (await scene.rows()) == {} or "h" in (await scene.rows())[made.id]
    await scene.reply(view)


@pytest.mark.parametrize("value", ["allow", "deny"])
async def test_a_call_that_asks_for_no_approval_takes_no_decision(scene: Scene, value: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback")
    view = await scene.launch(await scene.ask(view, made), made.id)
    await scene.reply(view)
    assert (await scene.outcome(view, made.id, value)).code == "conflict"
    assert (await scene.rows())[made.id]["s"] == "parked"
    assert (await scene.outcome(view, made.id)).code == "accepted"
    await scene.reply(await scene.start(owner))


async def test_a_lifted_call_is_run_as_the_agent_that_made_it(scene: Scene) -> None:
    owner, lifted = await scene.worker(agents={"bot": 0, "other": 0}), await scene.worker(role="lifted")
    view = await scene.open_turn(owner)
    made = call(view, 0, "lift")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False)
    await scene.reply(view)
    await scene.reply(await scene.open_turn(owner, agent="other"))
    assert (await scene.begin_row(view, made.id, owner=lifted)).agent == "bot"
    await scene.outcome(view, made.id, owner=lifted, task="task-1")
    await scene.reply(await scene.start(owner))


async def test_a_notice_that_was_taken_is_a_duplicate_even_when_no_more_fit(scene: Scene) -> None:
    await scene.notice("first", key="k0", event="e0")
    for i in range(1, 400):
        await scene.notice("more", key=f"k{i}")
    await scene.dispatch()
    assert (await scene.notice("one too many", key="k400")).code == "inbox_full"
    assert (await scene.notice("first", key="k0", event="e0")).code == "duplicate"


async def test_a_message_that_could_not_be_read_gives_its_place_back_and_ends_its_job(scene: Scene) -> None:
    said = await scene.say()
    shard = scene.shard()
    ((eid, fields),) = await shard.redis.xrange(shard.keys.ingress)
    await shard.redis.xdel(shard.keys.ingress, eid)
    await shard.redis.xadd(shard.keys.ingress, {**fields, b"dy": b"soon"})
    assert (await scene.dispatch()).dead == 1
    assert (await scene.head())["q"] == "0"
    assert (await scene.job(said)).state == "failed"


@pytest.mark.parametrize("outcome", ["timeout", "cancelled"])
async def test_a_task_that_ends_because_its_call_was_given_up_adds_nothing_to_the_conversation(scene: Scene, outcome: str) -> None:
    owner, lifted = await scene.worker(), await scene.worker(role="lifted")
    said = await scene.say()
    view = await scene.start(owner)
    made = call(view, 0, "lift")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False, deadline_ms=1000)
    await scene.begin_row(view, made.id, owner=lifted)
    view = await scene.reply(view)
    if outcome == "timeout":
        await scene.pass_ms(1001)
        await scene.tick(parts="d")
    else:
        assert said.job is not None
        assert (await cancel_job(scene.yard, said.job, tenant="default")).code == "accepted"
    await scene.dispatch()
    code = (
        await accept_outcome(
            scene.yard,
            shard=0,
            store=f"{view.session}.0",
            call=made.id,
            outcome="cancelled",
            body={"content": "stopped", "is_error": True},
            secret_hash=None,
            owner=lifted,
            task="task-1",
        )
    ).code
    assert code == "conflict"
    assert await scene.yard.redis.scard(scene.shard().keys.owned(lifted)) == 0
    if outcome == "timeout":
        view = await scene.start(owner)
        assert (await scene.outcome(view, made.id, owner=lifted, task="task-1")).code == "accepted", "the late result is still taken"
        await scene.dispatch()
        view = await scene.commit(view, claim=True)
        assert (await scene.entries())[-2:] == [f"{made.id}:timeout", f"{made.id}:result"]
        await scene.reply(view)
    await scene.pass_ms(10 * DAY_MS)


async def test_a_call_beyond_sixty_four_without_a_result_is_answered_with_an_error(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    lifts = [call(view, i, "lift") for i in range(60)]
    view = await scene.ask(view, *lifts)
    parks = tuple(Park(c.id, DAY_MS) for c in lifts)
    view = await scene.commit(view, append=tuple(Answer(c.id, "placeholder", OK) for c in lifts), park=parks, claim=True)
    made = [call(view, i) for i in range(6)]
    view = await scene.ask(view, *made, start=(made[0].id,))
    assert [row.call for row in view.rows] == [c.id for c in made[:4]]
    assert shown(view)[-8:] == [f"?{c.id}" for c in made] + [f"{c.id}:error" for c in made[4:]]
    assert [record.seq for record in view.entries] == [record.seq for record in await scene.log() if record.is_entry]
    for i in range(4):
        following = (made[i + 1].id,) if i < 3 else ()
        view = await scene.commit(view, append=(Answer(made[i].id, "result", OK),), start=following)
    view = await scene.reply(view)
    for c in lifts:
        await scene.outcome(view.session + ".0", c.id, owner=owner, task="t")
    await scene.reply(await scene.start(owner))
    assert len([r for r in await scene.log() if r.aside]) == 60


async def test_a_turn_acts_for_the_user_who_asked_it_and_a_bystander_changes_nothing(scene: Scene) -> None:
    owner, lifted = await scene.worker(), await scene.worker(role="lifted")
    await scene.reply(await scene.open_turn(owner, user="ann"))
    view = await scene.open_turn(owner, user="bob")
    assert view.head["user"] == "bob"
    made = call(view, 0, "lift")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False)
    await scene.say("by the way", user="eve", asker=False)
    await scene.dispatch()
    view = await scene.commit(view, claim=True)
    assert view.head["user"] == "bob"
    await scene.reply(view)
    view = await scene.open_turn(owner, user="")
    assert view.head["user"] == ""
    assert (await scene.begin_row(view, made.id, owner=lifted)).user == "bob"
    await scene.reply(view)
    await scene.outcome(view, made.id, owner=lifted, task="task-1")
    await scene.reply(await scene.start(owner))


async def test_cancelling_a_job_that_runs_again_ends_its_calls_of_earlier_turns_too(scene: Scene) -> None:
    owner = await scene.worker()
    said = await scene.say(complete_when="settled")
    view = await scene.start(owner)
    first, second = call(view, 0, "lift"), call(view, 1, "lift")
    view = await scene.ask(view, first, second)
    answers = tuple(Answer(c.id, "placeholder", OK) for c in (first, second))
    view = await scene.commit(view, append=answers, park=(Park(first.id, DAY_MS), Park(second.id, DAY_MS)))
    await scene.reply(view)
    assert (await scene.job(said)).state == "waiting"
    await scene.outcome(view, first.id, owner=owner, task="t")
    view = await scene.start(owner)
    assert (await scene.job(said)).state == "running"
    assert said.job is not None
    await cancel_job(scene.yard, said.job, tenant="default")
    await scene.dispatch()
    view = await scene.commit(view, ending="finish", closing=True)
    job = await scene.job(said)
    assert (job.state, job.open) == ("cancelled", 0)


async def test_an_interrupted_call_of_a_batch_is_told_without_a_body(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    first, second = call(view, 0, "parallel"), call(view, 1, "parallel")
    view = await scene.ask(view, first, second, start=(first.id, second.id))
    view = await scene.commit(view, settle=(Answer(first.id, "unknown"),))
    view = await scene.commit(view, append=(Answer(first.id, "unknown"), Answer(second.id, "result", OK)), claim=True)
    assert [(r.outcome, r.body) for r in await scene.log() if r.type == "tool/result"] == [("unknown", {}), ("result", OK)]
    await scene.reply(view)


async def test_what_a_cancelled_turn_launches_all_the_same_is_cancelled_in_that_commit(scene: Scene) -> None:
    owner, lifted = await scene.worker(), await scene.worker(role="lifted")
    said = await scene.say(complete_when="settled")
    view = await scene.start(owner)
    made = call(view, 0, "lift")
    view = await scene.ask(view, made)
    await scene.control("cancel")
    await scene.dispatch()
    view = await scene.launch(view, made.id, secret=False, lanes=("arq",))
    assert view.cancel == "user"
    view = await scene.commit(view, ending="finish", closing=True)
    assert view.ended
    assert (await scene.rows())[made.id]["o"] == "cancelled"
    assert (await scene.begin_row(view.session + ".0", made.id, owner=lifted)).code == "FENCED"
    job = await scene.job(said)
    assert (job.state, job.open) == ("cancelled", 0)
    await scene.reply(await scene.open_turn(owner, "again"))
    assert [r.outcome for r in await scene.log() if r.type == "tool/result"] == ["placeholder", "cancelled"]


async def test_a_turn_that_nothing_woke_leaves_notices_for_one_that_somebody_asked_for(scene: Scene) -> None:
    owner = await scene.worker()
    said = await scene.say()
    await scene.notice("for later")
    await scene.dispatch()
    assert said.job is not None
    await cancel_job(scene.yard, said.job, tenant="default")
    await scene.dispatch()
    view = await scene.begin(owner)
    assert view is not None
    assert next_effect(view, ToolTable()) == NoEffect(Commit(ending="finish"))
    await scene.commit(view, ending="finish")
    view = await scene.open_turn(owner, "now")
    assert shown(view) == ["!for later", "now"]
    await scene.reply(view)


async def test_a_call_that_was_answered_from_outside_while_its_body_returned_a_result_is_told_once(scene: Scene) -> None:
    owner = await scene.worker()
    said = await scene.say(complete_when="settled")
    view = await scene.start(owner)
    made = call(view, 0, "callback")
    view = await scene.ask(view, made, start=(made.id,), tokens=((made.id, hash_secret(SECRET)),))
    assert (await scene.outcome(view, made.id)).code == "accepted"
    await scene.dispatch()
    view = await scene.commit(view, append=(Answer(made.id, "result", {"content": "mine", "is_error": False}),), claim=True)
    assert [(r.outcome, r.aside, r.body) for r in await scene.log() if r.type == "tool/result"] == [
        ("placeholder", False, {}),
        ("result", True, OK),
    ]
    assert shown(view)[-2:] == [f"{made.id}:placeholder", f"{made.id}:result"]
    await scene.reply(view)
    job = await scene.job(said)
    assert (job.state, job.open) == ("succeeded", 0)
