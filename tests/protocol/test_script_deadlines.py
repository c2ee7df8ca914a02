"""Deadlines on the server: of jobs, of calls that wait for somebody to begin them, and of rows that are answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, Scene, call, shown
from turnyard.records.commit import Park, Wait
from turnyard.state import ingress, upkeep
from turnyard.state.lanes import LaneItem, sent, take_lane

pytestmark = pytest.mark.asyncio

HOUR_MS = 3_600_000


async def deadlines(scene: Scene) -> list[str]:
    home = scene.yard.shards[0]
    return [m.decode() for m in await home.redis.zrange(home.keys.prefix + "deadlines", 0, -1)]


# -- deadlines of jobs


@pytest.mark.spec("L41", "rival-1")
async def test_messages_behind_a_job_that_ran_into_its_deadline_start_the_next_turn(scene: Scene) -> None:
    owner = await scene.worker()
    slow = await scene.say("slow", timeout_ms=5000)
    view = await scene.start(owner)
    waiting = await scene.say("behind", mode="follow_up")
    await scene.dispatch()
    await scene.pass_ms(5001)
    await scene.tick()
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    assert (view.cancel, view.mine) == ("deadline", frozenset())
    await scene.commit(view, ending="finish", closing=True)
    job = await scene.job(slow)
    assert (job.state, job.cause) == ("cancelled", "deadline")
    view = await scene.start(owner)
    assert shown(view)[-1] == "behind"
    await scene.reply(view)
    assert (await scene.job(waiting)).state == "succeeded"
    assert f"{made.id}:cancelled" in await scene.entries()


@pytest.mark.parametrize("where", ["ingress", "inbox", "next"])
async def test_a_job_that_no_turn_took_within_its_time_ends_without_one(scene: Scene, where: str) -> None:
    job = await scene.say(timeout_ms=1000, mode="follow_up" if where == "next" else "steer")
    if where != "ingress":
        await scene.dispatch()
    await scene.pass_ms(1001)
    await scene.tick()
    found = await scene.job(job)
    assert (found.state, found.cause) == ("cancelled", "deadline")
    await scene.worker()
    await scene.dispatch()
    assert (await scene.state(), (await scene.head())["q"], await deadlines(scene)) == ("idle", "0", [])


@pytest.mark.parametrize("wait_for", ["retry", "callback", "detached"])
async def test_the_deadline_of_a_job_ends_what_it_waits_for(scene: Scene, wait_for: str) -> None:
    owner = await scene.worker()
    asked = await scene.say(timeout_ms=HOUR_MS)
    view = await scene.start(owner)
    made = call(view, 0, "callback", awaited=wait_for == "callback")
    if wait_for == "retry":
        await scene.commit(view, wait=(Wait("w1", "retry", DAY_MS),), ending="park")
    elif wait_for == "callback":
        await scene.park(await scene.ask(view, made), made.id)
    else:
        await scene.reply(await scene.launch(await scene.ask(view, made), made.id))
    await scene.pass_ms(HOUR_MS + 1)
    await scene.tick(parts="d")
    if wait_for != "detached":
        view = await scene.start(await scene.worker())
        await scene.commit(view, ending="finish", closing=True)
    job = await scene.job(asked)
    assert (job.state, job.cause) == ("cancelled", "deadline")
    assert (await scene.state(), (await scene.head()).get("aw", "0")) == ("idle", "0")


async def test_the_deadline_of_a_job_that_ended_in_time_is_gone(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.say(timeout_ms=5000)
    await scene.reply(await scene.start(owner))
    assert await deadlines(scene) == []
    second = await scene.say("two", timeout_ms=5000)
    await ingress.cancel_job(scene.yard, second.job or "", tenant="default")
    assert await deadlines(scene) == []
    await scene.dispatch()


async def test_a_repeat_of_a_message_does_not_prolong_its_time(scene: Scene) -> None:
    message = scene.message("once", timeout_ms=1000)
    assert (await ingress.accept_message(scene.yard, message)).code == "accepted"
    await scene.pass_ms(900)
    assert (await ingress.accept_message(scene.yard, message)).code == "duplicate"
    await scene.pass_ms(101)
    assert (await scene.tick()).due == 1
    await scene.dispatch()


# -- lifted calls and children that wait


async def only(scene: Scene) -> LaneItem:
    """The one store that is due in the lane of child sessions."""
    items = await take_lane(scene.yard.shards[0], "session")
    assert len(items) == 1
    return items[0]


async def test_what_a_lifted_tool_may_take_counts_from_its_start_and_waiting_for_it_is_bounded(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "lift", timeout_ms=60_000)
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False, deadline_ms=60_000, lanes=("arq",))
    await scene.reply(view)
    for _ in range(3):
        await scene.pass_ms(2 * HOUR_MS)
        await scene.tick(parts="d")
    assert (await scene.rows())[made.id].get("o") is None
    lifter = await scene.worker(role="lifted")
    start = await scene.begin_row(view, made.id, owner=lifter)
    assert (start.code, start.deadline_ms) == ("OK", scene.now_ms + 60_000)
    await scene.pass_ms(30_000)
    assert (await scene.begin_row(view, made.id, owner=lifter)).deadline_ms == start.deadline_ms
    await scene.pass_ms(30_001)
    await scene.tick(parts="d")
    assert (await scene.rows())[made.id]["o"] == "timeout"
    await scene.outcome(view, made.id, "cancelled", owner=lifter, task="task-1")
    await scene.reply(await scene.start(await scene.worker()))


async def test_a_lifted_call_that_nobody_begins_times_out_after_a_day(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "lift")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False, deadline_ms=60_000, lanes=("arq",))
    await scene.reply(view)
    await scene.pass_ms(DAY_MS + 1)
    await scene.tick(parts="d")
    assert (await scene.rows())[made.id]["o"] == "timeout"
    await scene.reply(await scene.start(await scene.worker()))


async def test_the_start_of_a_child_that_was_lost_is_sent_again_until_its_call_has_an_outcome(scene: Scene) -> None:
    owner = await scene.worker()
    shard = scene.yard.shards[0]
    view = await scene.open_turn(owner)
    made = call(view, 0, "child")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False)
    item = await only(scene)
    assert await sent(shard, "session", item)
    await scene.pass_ms(30_001)
    await scene.tick(parts="d")
    item = await only(scene)
    assert [(r.type, r.call, r.extra["re"]) for r in item.records if r.call == made.id and "re" in r.extra] == [
        ("call/relayed", made.id, "2")
    ]
    assert await sent(shard, "session", item)
    assert (await scene.outcome(view, made.id, secret_hash=None)).code == "accepted"
    await scene.dispatch()
    await scene.pass_ms(DAY_MS)
    await scene.tick(parts="d")
    assert await take_lane(shard, "session") == []
    view = await scene.reply(view)
    assert shown(view)[-1] == f"{made.id}:result"
    await scene.reply(view)


@pytest.mark.spec("I6")
@pytest.mark.parametrize("first", ["answer", "deadline"])
async def test_of_an_answer_and_a_deadline_in_the_same_millisecond_the_first_counts_and_the_other_is_told(scene: Scene, first: str) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    store = view.store
    await scene.commit(view, park=(Park(made.id, 4000),), ending="park")
    await scene.pass_ms(4000)
    if first == "deadline":
        assert (await scene.tick(parts="d")).due == 1
    assert (await scene.outcome(store, made.id, secret_hash=None)).code == "accepted"
    await scene.tick(parts="d")
    view = await scene.start(owner)
    told = [e.outcome for e in view.entries if e.call == made.id and e.type == "tool/result"]
    late = [e for e in view.entries if e.late]
    assert (told[0], len(late)) == (("timeout", 1) if first == "deadline" else ("result", 0))
    assert (await scene.outcome(store, made.id, secret_hash=None, body={"content": "third"})).code == "conflict"
    await scene.reply(view)


async def test_a_session_waits_for_sixty_four_calls_at_most_over_all_its_histories(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    first = [call(view, i, "callback") for i in range(40)]
    view = await scene.ask(view, *first)
    for made in first:
        view = await scene.launch(view, made.id, secret=False)
    store = view.store
    await scene.reply(view)
    await scene.control("new")
    view = await scene.open_turn(owner, "more")
    view = await scene.ask(view, *(call(view, i, "callback") for i in range(30)))
    assert len(view.rows) == 24
    assert [e.outcome for e in view.entries if e.type == "tool/result"] == ["error"] * 6
    await scene.commit(view, ending="finish", closing=True, failure={"code": "internal", "message": "", "retryable": False})
    await scene.outcome(store, first[0].id, secret_hash=None)
    await scene.dispatch()
    assert (await scene.head())["uw"] == "39"
    await scene.reply(await scene.start(owner))


# -- rows that nobody can ask for any more


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("kind", ["lift", "child"])
async def test_the_row_of_a_call_without_a_token_goes_a_minute_after_its_result_was_shown(scene: Scene, kind: str, awaited: bool) -> None:
    owner, lifter = await scene.worker(), await scene.worker(role="lifted")
    view = await scene.open_turn(owner)
    made = call(view, 0, kind, awaited=awaited)
    view = await scene.ask(view, made)
    if awaited:
        await scene.commit(view, park=(Park(made.id, DAY_MS),), ending="park")
    else:
        view = await scene.launch(view, made.id, secret=False)
    how: dict[str, Any] = {"secret_hash": None}
    if kind == "lift":
        assert (await scene.begin_row(view, made.id, owner=lifter)).code == "OK"
        how = {"owner": lifter, "task": "task-1"}
    assert (await scene.outcome(view, made.id, **how)).code == "accepted"
    await scene.dispatch()
    again = await scene.start(owner) if awaited else await scene.commit(view, claim=True)
    assert shown(again)[-1] == f"{made.id}:result"
    assert (await scene.outcome(view, made.id, **how)).code == "duplicate"
    await scene.reply(again)
    await scene.pass_ms(60_001)
    await scene.tick(parts="d")
    assert await scene.rows() == {}
    assert [m for m in await deadlines(scene) if m.startswith("c!")] == []


async def test_a_row_whose_outcome_is_unknown_stays_for_the_real_one(scene: Scene) -> None:
    owner, lifter = await scene.worker(), await scene.worker(role="lifted")
    view = await scene.open_turn(owner)
    made = call(view, 0, "lift")
    view = await scene.launch(await scene.ask(view, made), made.id, secret=False)
    await scene.begin_row(view, made.id, owner=lifter)
    await scene.tick(lifter, parts="")
    view = await scene.commit(view, claim=True)
    assert shown(view)[-1] == f"{made.id}:unknown"
    await scene.pass_ms(2 * DAY_MS)
    await scene.tick(parts="d")
    assert (await scene.outcome(view, made.id, owner=lifter, task="task-1")).code == "accepted"
    await scene.dispatch()
    view = await scene.commit(view, claim=True)
    assert shown(view)[-1] == f"{made.id}:result"
    await scene.reply(view)
    await scene.pass_ms(60_001)
    await scene.tick(parts="d")
    assert await scene.rows() == {}


async def test_a_decision_after_its_deadline_is_expired_and_one_after_another_is_a_conflict(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "approval", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, 4000),), ending="park")
    await scene.pass_ms(4001)
    await scene.tick()
    assert (await scene.outcome(view, made.id, "allow", secret_hash=None)).code == "expired"
    view = await scene.start(owner)
    assert shown(view)[-1] == f"{made.id}:timeout"
    await scene.reply(view)


async def test_more_deadlines_than_one_tick_meets_are_met_in_one_go(scene: Scene) -> None:
    jobs = [await scene.say(session=f"s{i}", timeout_ms=1000) for i in range(220)]
    await scene.pass_ms(1001)
    shard = scene.yard.shards[0]
    await upkeep.tick_through(shard, lease_ms=10_000, tick_ms=1_000, stopped=lambda: True)
    assert sum([(await scene.job(job)).state == "cancelled" for job in jobs]) == 100
    await upkeep.tick_through(shard, lease_ms=10_000, tick_ms=1_000, stopped=lambda: False)
    assert all([(await scene.job(job)).state == "cancelled" for job in jobs])


BROKEN: dict[str, Broken] = {
    "jobs have no deadline": (
        test_messages_behind_a_job_that_ran_into_its_deadline_start_the_next_turn,
        *("    elseif what == 'j' then job_due(string.match(rest, '^(%w+)!(.+)$'))\n", ""),
    ),
    "an ended jobs deadline stays": (
        test_the_deadline_of_a_job_that_ended_in_time_is_gone,
        "if row[2] then call('ZREM'",
        "if false then call('ZREM'",
    ),
    "a lifts time counts from its park": (
        test_what_a_lifted_tool_may_take_counts_from_its_start_and_waiting_for_it_is_bounded,
        *("if r.k == 'lift' and not more.af then r.tm, r.dl = r.tm or p[2], NOW + math.max(p[2], DAY) end", ""),
    ),
    "a child starts once": (
        test_the_start_of_a_child_that_was_lost_is_sent_again_until_its_call_has_an_outcome,
        *("local LANE = {lift = 'arq', child = 'session'}", "local LANE = {lift = 'arq'}"),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_without_its_rule_what_waits_goes_wrong(clean: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
