"""Cancels on the server: what ends at once, what ends with the turn, and what a cancel may not touch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import OK, Scene, call, shown
from turnyard.records.commit import Answer, NewCall, Say, TurnView
from turnyard.records.log import JOB, TURN_END
from turnyard.state import flows
from turnyard.state.flows import set_limits

pytestmark = pytest.mark.asyncio


async def begun_for_nothing(scene: Scene, owner: str) -> None:
    """An assignment whose cause is gone shows nothing, and ends."""
    view = await scene.begin(owner)
    assert view is not None
    assert (shown(view), view.jobs) == ([], ())
    assert (await scene.commit(view, ending="finish")).ended


# -- a queued job ends in the script that accepts its cancel


async def test_a_queued_job_whose_cancel_was_accepted_never_starts_although_nobody_drained_since(scene: Scene) -> None:
    owner = await scene.worker()
    first = await scene.say("first")
    await scene.say("second")
    await scene.dispatch()
    assert await scene.state() == "assigned"
    assert (await scene.cancel_job(first)).code == "accepted"
    view = await scene.begin(owner)
    assert view is not None
    assert shown(view) == ["second"]
    assert (await scene.job(first)).state == "cancelled"
    await scene.reply(view)
    assert await scene.entries() == ["second", "=bye"]


async def test_a_job_cancelled_before_its_message_was_drained_never_starts(scene: Scene) -> None:
    owner = await scene.worker()
    first = await scene.say("first")
    assert (await scene.cancel_job(first)).code == "accepted"
    assert ((await scene.job(first)).state, (await scene.job(first)).cause) == ("cancelled", "user")
    view = await scene.open_turn(owner, "second")
    assert shown(view) == ["second"]
    await scene.reply(view)


@pytest.mark.parametrize("mode", ["follow_up", "collect", "steer"])
async def test_a_job_cancelled_in_its_queue_leaves_the_session_idle_and_its_place_free(scene: Scene, mode: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "running")
    waiting = await scene.say("waiting", mode=mode)
    await scene.dispatch()
    await scene.cancel_job(waiting)
    assert (await scene.head())["q"] == "0"
    view = await scene.reply(view)
    assert view.ended
    assert await scene.state() == "idle"
    await scene.pass_ms(20_000)
    await scene.tick()
    assert await scene.state() == "idle"


async def test_a_ready_session_whose_only_job_is_cancelled_leaves_its_flow_at_once(scene: Scene) -> None:
    only = await scene.say()
    await scene.dispatch()
    assert await scene.state() == "ready"
    await scene.cancel_job(only)
    assert await scene.state() == "idle"
    await scene.worker()
    assert (await scene.dispatch()).admitted == 0


async def test_a_cancel_whose_answer_was_lost_is_accepted_again_and_counts_once(scene: Scene) -> None:
    first = await scene.say("first")
    await scene.say("second")
    with scene.lost_reply():
        assert (await scene.cancel_job(first)).code in ("accepted", "duplicate")
    assert (await scene.head())["q"] == "1"
    assert [r.outcome for r in await scene.log() if r.type == JOB] == ["cancelled"]
    await scene.dispatch()


async def test_a_job_that_ended_by_itself_cannot_be_cancelled(scene: Scene) -> None:
    done = await scene.say()
    await scene.reply(await scene.start(await scene.worker()))
    again = await scene.cancel_job(done)
    assert (again.code, again.entry) == ("late", "succeeded")


# -- causes


@pytest.mark.parametrize("cause", ["user", "deadline", "superseded", "budget"])
async def test_the_cause_of_a_cancel_reaches_the_worker_the_job_and_whoever_follows(scene: Scene, cause: Any) -> None:
    owner = await scene.worker()
    asked = await scene.say()
    view = await scene.start(owner)
    assert (await scene.cancel(cause=cause)).code == "accepted"
    await scene.dispatch()
    view = await scene.commit(view, append=(Say({"text": "half"}),), claim=True)
    assert view.cancel == cause
    await scene.close_turn(view)
    job = await scene.job(asked)
    assert (job.state, job.cause) == ("cancelled", cause)
    (end,) = [r for r in await scene.log() if r.type == TURN_END]
    assert (end.outcome, end.extra["ca"]) == ("cancelled", cause)


async def test_the_job_of_a_cancelled_detached_call_carries_the_cause(scene: Scene) -> None:
    owner = await scene.worker()
    asked = await scene.say()
    view = await scene.start(owner)
    made = call(view, 0, "callback")
    view = await scene.launch(await scene.ask(view, made), made.id)
    await scene.reply(view)
    assert (await scene.job(asked)).state == "waiting"
    await scene.cancel_job(asked, cause="budget")
    await scene.dispatch()
    job = await scene.job(asked)
    assert (job.state, job.cause, job.open) == ("cancelled", "budget", 0)


# -- all that waits


async def test_a_cancel_of_all_takes_the_turn_and_every_message_that_waits_and_no_later_one(scene: Scene) -> None:
    owner = await scene.worker()
    running = await scene.say("running")
    view = await scene.start(owner)
    steer, later = await scene.say("steer"), await scene.say("follow", mode="follow_up")
    await scene.dispatch()
    undrained = await scene.say("undrained")
    assert (await scene.cancel(everything=True)).code == "accepted"
    after = await scene.say("after")
    await scene.dispatch()
    view = await scene.close_turn(view)
    view = await scene.start(owner)
    assert shown(view) == ["running", "after"]
    await scene.reply(view)
    jobs = [(await scene.job(job)).state for job in (running, steer, later, undrained, after)]
    assert jobs == ["cancelled"] * 4 + ["succeeded"]
    assert (await scene.head())["q"] == "0"
    assert await scene.state() == "idle"


async def test_a_cancel_of_all_without_an_open_turn_takes_what_waits_and_nothing_of_it_starts(scene: Scene) -> None:
    owner = await scene.worker()
    first, second = await scene.say("one"), await scene.say("two", delay_ms=5000)
    await scene.dispatch()
    third = await scene.say("three")
    assert (await scene.cancel(everything=True)).code == "accepted"
    await begun_for_nothing(scene, owner)
    await scene.dispatch()
    assert [(await scene.job(job)).state for job in (first, second, third)] == ["cancelled"] * 3
    assert await scene.entries() == []
    assert (await scene.cancel(everything=True, turn="turn_other")).code == "late"


async def test_a_cancel_of_all_leaves_notices_and_results_where_they_are(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback")
    view = await scene.launch(await scene.ask(view, made), made.id)
    await scene.notice("careful")
    await scene.outcome(view, made.id)
    gone = await scene.say("gone")
    await scene.dispatch()
    await scene.cancel(everything=True)
    await scene.dispatch()
    await scene.close_turn(view)
    view = await scene.start(owner)
    assert shown(view)[-2:] == ["!careful", f"{made.id}:result"]
    assert (await scene.job(gone)).state == "cancelled"
    await scene.reply(view)


async def test_more_waiting_messages_than_one_script_may_end_are_ended_by_the_next_ones_and_none_starts(scene: Scene) -> None:
    owner = await scene.worker()
    shard = scene.yard.shards[0]
    view = await scene.open_turn(owner)
    jobs = [await scene.say(f"m{i}", mode="steer" if i % 2 else "follow_up", inbox_cap=200) for i in range(130)]
    await scene.dispatch()
    await shard.redis.config_resetstat()
    before = await scene.commands()
    await scene.cancel(everything=True)
    assert await scene.commands() - before < 400
    facts = await scene.facts()
    assert (facts["wakers"], facts["undelayed"]) == (0, 0)
    states = [(await scene.job(job)).state for job in jobs]
    assert (states.count("cancelled"), states.count("queued")) == (50, 80)
    # One of the rest is cancelled by name meanwhile: it ends once.
    left = jobs[states.index("queued")]
    assert (await scene.cancel_job(left)).code == "accepted"
    while (await flows.dispatch(shard)).applied:
        pass
    assert {(await scene.job(job)).state for job in jobs} == {"cancelled"}
    assert (await scene.head())["q"] == "0"
    await scene.close_turn(view)
    assert await scene.state() == "idle"


# -- stale, overdue, twice


@pytest.mark.parametrize("overdue_ms", [None, 1500])
async def test_an_ignored_cancel_takes_its_session_alone_away_and_the_closing_elsewhere_counts(
    scene: Scene, overdue_ms: int | None
) -> None:
    deaf, other = await scene.worker(), await scene.worker()
    asked = await scene.say()
    view = await scene.start(deaf)
    if overdue_ms is not None:
        await set_limits(scene.yard.shards[0], overdue_ms=overdue_ms)
    await scene.cancel(cause="budget")
    await scene.dispatch()
    await scene.pass_ms((overdue_ms or 10_000) - 1)
    assert (await scene.tick(parts="d")).due == 0
    await scene.pass_ms(1)
    await scene.tick(parts="d")
    again = await scene.start(other)
    assert (again.cancel, again.epoch) == ("budget", view.epoch + 1)
    await scene.close_turn(again)
    assert (await scene.job(asked)).cause == "budget"
    assert await scene.running() == 0


@pytest.mark.spec("I15")
@pytest.mark.parametrize("point", ["queued", "assigned"])
async def test_a_stop_before_the_turn_began_means_that_nothing_of_it_happens(scene: Scene, point: str) -> None:
    owner = await scene.worker()
    asked = await scene.say()
    if point == "assigned":
        await scene.dispatch()
    assert (await scene.cancel_job(asked)).code == "accepted"
    await scene.dispatch()
    if point == "assigned":
        await begun_for_nothing(scene, owner)
    assert (await scene.job(asked)).state == "cancelled"
    assert (await scene.entries(), await scene.state()) == ([], "idle")


# Where the turn stands, and what its worker commits next because it has not heard of the stop.
STEPS: dict[str, Callable[[Scene, TurnView, list[NewCall]], Awaitable[TurnView]]] = {
    "asking": lambda scene, view, made: scene.ask(view, *made, start=(made[0].id,)),
    "started": lambda scene, view, made: scene.commit(view, append=(Answer(made[0].id, "result", OK),), start=(made[1].id,)),
    "answered": lambda scene, view, made: scene.commit(view, start=(made[1].id,)),
}


@pytest.mark.spec("I15", "turn-60")
@pytest.mark.parametrize("point", STEPS)
async def test_once_a_stop_is_accepted_no_further_tool_starts_and_every_call_has_its_answer(scene: Scene, point: str) -> None:
    owner = await scene.worker()
    asked = await scene.say()
    view, made = await walk_to(scene, await scene.start(owner), point)
    assert (await scene.cancel()).code == "accepted"
    await scene.dispatch()
    view = await STEPS[point](scene, view, made)
    assert (view.cancel, view.mine) == ("user", frozenset())
    assert {row["s"] for row in (await scene.rows()).values()} == {"open"}
    await scene.close_turn(view)
    assert ((await scene.job(asked)).state, (await scene.job(asked)).cause) == ("cancelled", "user")
    # What was done is kept, what was not is said.
    done = [] if point == "asking" else ["result"]
    outcomes = [e.outcome for e in await scene.log() if e.type == "tool/result"]
    assert outcomes == done + ["cancelled"] * (2 - len(done))
    view = await scene.open_turn(owner, "next")
    assert shown(view)[-1] == "next"
    await scene.reply(view)


@pytest.mark.spec("I15", "turn-60")
async def test_a_stop_wakes_a_parked_turn_to_be_closed(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    await scene.park(await scene.ask(view, made), made.id)
    await scene.cancel()
    view = await scene.start(owner)
    assert view.cancel == "user"
    await scene.close_turn(view)
    assert (await scene.entries())[-1] == f"{made.id}:cancelled"


@pytest.mark.spec("I15")
async def test_a_stop_that_crosses_the_last_answer_ends_the_job_once(scene: Scene) -> None:
    owner = await scene.worker()
    asked = await scene.say()
    view = await scene.start(owner)
    await scene.cancel()
    await scene.dispatch()
    assert (await scene.reply(view)).ended
    assert (await scene.job(asked)).state == "cancelled"
    assert [r.outcome for r in await scene.log() if r.type == TURN_END] == ["cancelled"]


async def walk_to(scene: Scene, view: TurnView, point: str) -> tuple[TurnView, list[NewCall]]:
    """Walk a turn of two tools to the point where it is cancelled."""
    made = [call(view, 0), call(view, 1)]
    if point != "asking":
        view = await scene.ask(view, *made, start=(made[0].id,))
    if point == "answered":
        view = await scene.commit(view, append=(Answer(made[0].id, "result", OK),))
    return view, made


async def test_of_a_cancel_and_a_stray_ctl_line_each_names_its_turn(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.cancel()
    await scene.dispatch()
    (told,) = await scene.told(owner)
    assert (told.session, told.epoch) == (view.session, view.epoch)
    await scene.close_turn(view)
    assert (await scene.control("cancel", turn=view.turn)).code == "late"


BROKEN: dict[str, Broken] = {
    "the cancel of a queued job is left to dispatch": (
        test_a_queued_job_whose_cancel_was_accepted_never_starts_although_nobody_drained_since,
        *("  if v[1] == 'queued' then\n    leave_queue(load(v[2]), ARGV[2], ARGV[3])\n  else", "  if true then"),
    ),
    "dispatch takes a message whose job has ended": (
        test_a_job_cancelled_before_its_message_was_drained_never_starts,
        *("if call('HGET', job_key(e.job), 'st') ~= 'queued' then return end\n", ""),
    ),
    "a cancel of all forgets what lies in ingress": (
        test_a_cancel_of_all_takes_the_turn_and_every_message_that_waits_and_no_later_one,
        *("if is_void(h, e.eid) then", "if false then"),
    ),
    "a cancel of all ends as many as there are": (
        test_more_waiting_messages_than_one_script_may_end_are_ended_by_the_next_ones_and_none_starts,
        *("local ENDS = 50", "local ENDS = 5000"),
    ),
    "the rest of a cancel of all is forgotten": (
        test_more_waiting_messages_than_one_script_may_end_are_ended_by_the_next_ones_and_none_starts,
        *(
            "  if #left > 0 then call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'ended'",
            "  if false then call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'ended'",
        ),
    ),
    "no overdue cancel": (
        partial(test_an_ignored_cancel_takes_its_session_alone_away_and_the_closing_elsewhere_counts, overdue_ms=None),
        *("    call('ZADD', DEADLINES, NOW + tonumber(limit('overdue') or OVERDUE), 'x!' .. h.sid)\n", ""),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_without_its_rule_a_cancel_goes_wrong(clean: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
