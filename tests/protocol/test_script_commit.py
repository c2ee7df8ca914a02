"""One transition of a turn: it happens in one script or not at all, and a repeat says what the first one did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.protocol.scene import DAY_MS, OK, SECRET, Scene, call, shown
from turnyard.errors import Diverged, FenceLost
from turnyard.records.commit import Answer, Commit, Note, Park, Say
from turnyard.records.ids import hash_secret, session_key
from turnyard.state import ingress
from turnyard.state.flows import set_limits
from turnyard.state.scripts import StoreFull

pytestmark = pytest.mark.asyncio


async def test_a_step_appends_its_entries_and_answers_with_the_turn_as_it_is_then(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker(), "hi")
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    assert (view.code, view.rev, shown(view), view.mine) == ("OK", 1, ["hi", "=", f"?{made.id}"], {made.id})
    assert [(row.call, row.state) for row in view.rows] == [(made.id, "started")]
    view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    assert (view.rows, view.mine) == ((), frozenset())
    again = await scene.begin_as(scene._owners[view.session, view.epoch], view.epoch)
    assert again is not None
    assert again.entries == view.entries or _same(again.entries, view.entries)
    assert again.last_seq == view.last_seq


async def test_a_reply_ends_the_turn_its_job_and_its_slot(scene: Scene) -> None:
    accepted = await scene.say("hi")
    view = await scene.start(await scene.worker())
    view = await scene.reply(view, "bye")
    assert (view.ended, view.ending) == (True, "finish")
    job = await scene.job(accepted)
    assert (job.state, job.output) == ("succeeded", {"text": "bye", "output": "bye"})
    assert (await scene.state(), await scene.running()) == ("idle", 0)


async def test_messages_answered_together_share_the_answer_and_name_the_first(scene: Scene) -> None:
    sent = [await scene.say(text) for text in ("a", "b")]
    await scene.reply(await scene.start(await scene.worker()), "both")
    first, second = [await scene.job(accepted) for accepted in sent]
    assert (first.output, first.merged_into) == (second.output, None)
    assert second.merged_into == first.id


async def test_a_failure_ends_the_job_as_failed_with_its_reason(scene: Scene) -> None:
    accepted = await scene.say()
    view = await scene.start(await scene.worker())
    failure = {"code": "model_error", "message": "no", "retryable": False, "ref": "r"}
    await scene.commit(view, ending="finish", closing=True, failure=failure)
    job = await scene.job(accepted)
    assert (job.state, job.error, job.output) == ("failed", failure, None)


@pytest.mark.parametrize("who", ["another epoch", "another owner", "an expelled owner", "an owner that is gone"])
@pytest.mark.parametrize("ending", ["none", "finish", "park", "yield"])
async def test_a_commit_is_refused_and_writes_nothing_for(scene: Scene, who: str, ending: str) -> None:
    owner, other = await scene.worker(), await scene.worker()
    view = await scene.open_turn(owner)
    workers = scene.yard.shards[0].keys.prefix + "workers"
    if who == "another epoch":
        view = replace(view, epoch=view.epoch + 1)
    elif who == "another owner":
        owner = other
    elif who == "an expelled owner":
        await scene.yard.redis.zadd(workers, {owner: "-inf"})
    else:
        await scene.yard.redis.zrem(workers, owner)
    before = await scene.snapshot()
    with pytest.raises(FenceLost):
        await scene.commit(view, Commit(append=(Say({"text": "x"}),), ending=ending), owner=owner)  # type: ignore[arg-type]
    assert await scene.snapshot() == before
    if who == "an owner that is gone":
        await scene.yard.redis.zadd(workers, {owner: scene.now_ms + 10_000})


@pytest.mark.parametrize("change", [{"rev": 5}, {"rev": -1}, {"last_seq": 0}, {"last_seq": 99}])
async def test_a_commit_on_another_log_than_the_servers_diverges_and_writes_nothing(scene: Scene, change: dict[str, int]) -> None:
    view = await scene.open_turn(await scene.worker())
    before = await scene.snapshot()
    with pytest.raises(Diverged):
        await scene.reply(replace(view, **change))  # type: ignore[arg-type]
    assert await scene.snapshot() == before


@pytest.mark.spec("I1")
async def test_of_two_workers_that_believe_they_run_a_turn_one_appends_and_numbers_have_no_gap(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first)
    await scene.tick(first)
    taken = await scene.start(second)
    refused = 0
    for i in range(6):
        try:
            view = await scene.commit(view, append=(Say({"text": f"old{i}"}),), owner=first)
        except FenceLost:
            refused += 1
        taken = await scene.commit(taken, append=(Say({"text": f"new{i}"}),))
    await scene.reply(taken)
    assert refused == 6
    log = await scene.log()
    assert [r.seq for r in log] == list(range(1, len(log) + 1))
    epochs = [r.epoch for r in log]
    assert epochs == sorted(epochs)
    assert not any("old" in word for word in await scene.entries())


@pytest.mark.parametrize("ending", ["none", "finish", "park", "yield"])
async def test_a_repeat_answers_already_with_the_ending_that_was_taken_and_writes_nothing(scene: Scene, ending: str) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    if ending == "park":
        view = await scene.ask(view, made)
        change = Commit(park=(Park(made.id, DAY_MS, None),), ending="park")
    else:
        change = Commit(append=(Say({"text": "x"}),), ending=ending)  # type: ignore[arg-type]
    first = await scene.commit(view, change)
    before = await scene.snapshot()
    again = await scene.commit(view, change)
    assert (again.code, again.ending, again.ended) == ("ALREADY", ending, ending != "none")
    assert (again.ending, again.rev, shown(again)[-1:]) == (
        first.ending,
        first.rev,
        shown(first)[-1:] if ending == "none" else shown(view)[-1:],
    )
    assert await scene.snapshot() == before


@pytest.mark.spec("trap-18")
async def test_a_lost_answer_of_a_commit_that_claimed_brings_what_it_claimed(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "one")
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    await scene.say("two")
    await scene.dispatch()
    with scene.lost_reply():
        view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    assert (view.code, shown(view)) == ("ALREADY", ["one", "=", f"?{made.id}", f"{made.id}:result", "two"])
    assert await scene.entries() == shown(view)
    view = await scene.reply(view, "both")
    assert view.ended


async def test_a_repeat_is_known_even_when_somebody_else_has_begun_since(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first)
    change = Commit(ending="yield")
    await scene.commit(view, change)
    taken = await scene.start(second)
    again = await scene.commit(view, change, owner=first)
    assert (again.code, again.ending) == ("ALREADY", "yield")
    await scene.reply(taken)


async def test_claim_takes_what_waits_and_at_most_a_hundred_at_once(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker(), "m0")
    for i in range(1, 151):
        await ingress.accept_message(scene.yard, scene.message(f"m{i}"), inbox_cap=1000)
    await scene.dispatch()
    view = await scene.commit(view, append=(Say({"text": "a"}),), claim=True)
    assert len(shown(view)) == 102
    view = await scene.commit(view, append=(Say({"text": "b"}),), claim=True)
    assert [w for w in shown(view) if w.startswith("m")] == [f"m{i}" for i in range(151)]


async def test_finish_is_refused_while_an_awaited_call_is_parked(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    extra = call(view, 1, "callback", awaited=True)
    view = await scene.commit(view, park=(Park(made.id, DAY_MS, None),))
    before = await scene.snapshot()
    refused = await scene.reply(view)
    assert (refused.code, refused.ended) == ("AWAITS", False)
    assert await scene.snapshot() == before
    assert extra.id not in await scene.rows()


async def test_a_finish_goes_on_with_what_came_meanwhile_under_the_same_epoch_and_slot(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker(), "one")
    late = await scene.say("two")
    await scene.dispatch()
    going = await scene.reply(view, "first")
    assert (going.ended, going.ending, going.epoch) == (False, "none", view.epoch)
    assert going.turn != view.turn
    assert going.jobs == (late.job,)
    assert shown(going) == ["one", "=first", "two"]
    await scene.reply(going)


async def test_a_finish_gives_its_slot_back_before_what_waits_for_a_turn_of_its_own(scene: Scene) -> None:
    await set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    owner = await scene.worker()
    view = await scene.open_turn(owner, "one")
    await scene.say("two", mode="follow_up")
    await scene.say("other", session="other", priority=1)
    await scene.dispatch()
    ended = await scene.reply(view, "first")
    assert (ended.ended, await scene.state(), await scene.running()) == (True, "ready", 0)
    await scene.reply(await scene.start(owner, "other"))
    view = await scene.start(owner)
    assert (view.epoch, shown(view)) == (2, ["one", "=first", "two"])
    await scene.reply(view)


async def test_a_step_is_taken_although_events_came_since_the_last_entry(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "one")
    await scene.say("two")
    await scene.dispatch()
    again = await scene.begin_as(owner, view.epoch)
    assert again is not None
    assert again.last_seq == again.entries[-1].seq < (await scene.log())[-1].seq
    view = await scene.commit(again, append=(Say({"text": "first"}),), claim=True)
    assert shown(view) == ["one", "=first", "two"]
    await scene.reply(view)


async def test_a_yield_keeps_the_turn_and_takes_back_marks_of_calls_that_were_not_run(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first)
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    ended = await scene.commit(view, ending="yield", unstart=(made.id,))
    assert (ended.ended, ended.ending) == (True, "yield")
    again = await scene.start(second)
    assert again.turn == view.turn
    assert [row.state for row in again.rows] == ["open"]


async def test_a_step_on_a_full_server_is_refused_whole_and_an_ending_is_taken(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    async with scene.full_server():
        before = await scene.snapshot()
        with pytest.raises(StoreFull):
            await scene.ask(view, made)
        assert await scene.snapshot() == before
        await scene.commit(view, ending="yield")
    view = await scene.start(owner)
    view = await scene.ask(view, made)
    async with scene.full_server():
        await scene.commit(view, park=(Park(made.id, DAY_MS, None),), ending="park")
        assert (await scene.state(), await scene.running()) == ("parked", 0)
    await scene.outcome(view, made.id, secret_hash=None)
    view = await scene.start(owner)
    async with scene.full_server():
        await scene.reply(view)
    assert await scene.state() == "idle"


async def test_a_settled_result_of_a_batch_stays_in_its_row_until_the_last_one_appends_all(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first)
    a, b = call(view, 0, "parallel"), call(view, 1, "parallel")
    view = await scene.ask(view, a, b, start=(a.id, b.id))
    view = await scene.commit(view, settle=(Answer(b.id, "result", {"content": "b", "is_error": False}),))
    assert [(r.call, r.outcome) for r in view.rows] == [(a.id, None), (b.id, "result")]
    assert view.mine == {a.id}
    await scene.tick(first)
    view = await scene.start(second)
    assert [(r.call, r.outcome) for r in view.rows] == [(a.id, None), (b.id, "result")]
    view = await scene.commit(view, append=(Answer(a.id, "unknown"), Answer(b.id, "result")), claim=True)
    results = [e for e in view.entries if e.type == "tool/result"]
    assert [(e.call, e.outcome, e.body.get("content")) for e in results] == [(a.id, "unknown", None), (b.id, "result", "b")]


async def test_a_result_of_a_call_that_was_settled_meanwhile_keeps_the_first_outcome_and_its_text(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    view = await scene.commit(view, park=(Park(made.id, DAY_MS, hash_secret(SECRET)),))
    await scene.outcome(view, made.id, body={"content": "from outside", "is_error": False})
    await scene.dispatch()
    view = await scene.commit(view, append=(Answer(made.id, "error", {"content": "mine", "is_error": True}),))
    (result,) = [e for e in view.entries if e.type == "tool/result"]
    assert (result.outcome, result.body["content"]) == ("result", "from outside")


async def test_usage_is_added_up_in_the_head_and_a_note_is_an_event_or_an_entry_by_its_type(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker(), "hi")
    note = Note("notification", {"text": "n"})
    view = await scene.commit(view, append=(note, Note("progress", {"text": "p"})), usage={"input_tokens": 3})
    view = await scene.commit(view, append=(), usage={"input_tokens": 4})
    assert shown(view) == ["hi", "!n"]
    assert [r.type for r in await scene.log()] == ["inbox/accepted", "user/message", "notification", "progress"]
    assert (await scene.head())["u:input_tokens"] == "7"


async def test_lanes_named_by_a_commit_are_due_at_once(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    await scene.reply(view, lanes=("slack", "webhook"))
    prefix = scene.yard.shards[0].keys.prefix
    assert [await scene.yard.redis.zscore(f"{prefix}out:{lane}", view.session + ".0") for lane in ("slack", "webhook")] == [
        scene.now_ms
    ] * 2


async def test_the_commit_after_every_script_was_forgotten_is_made_once(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker(), "hi")
    await scene.forget_scripts()
    view = await scene.commit(view, append=(Say({"text": "a"}),))
    assert (view.code, await scene.entries()) == ("OK", ["hi", "=a"])
    await scene.reply(view)


async def test_a_turn_that_held_its_slot_for_the_quantum_is_asked_to_yield_only_while_others_wait(scene: Scene) -> None:
    await set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.pass_ms(30_000)
    view = await scene.commit(view, append=(Say({"text": "1"}),))
    assert not view.yield_
    await scene.say(session="other")
    await scene.dispatch()
    made = call(view)
    view = await scene.ask(view, made, start=(made.id,))
    assert view.yield_
    assert [row.state for row in view.rows] == ["open"]
    await scene.commit(view, ending="yield")
    await scene.dispatch()
    assert (await scene.state("other"), await scene.state()) == ("assigned", "ready")


async def test_sessions_of_other_tenants_with_the_same_id_share_nothing(scene: Scene) -> None:
    owner = await scene.worker()
    mine = await scene.open_turn(owner, "mine")
    theirs = await scene.open_turn(owner, "theirs", tenant="other")
    assert mine.session != theirs.session == session_key("other", "s")
    assert (shown(mine), shown(theirs)) == (["mine"], ["theirs"])


def _same(ours: tuple, theirs: tuple) -> bool:
    return [(e.seq, e.type, e.call, e.outcome, e.body) for e in ours] == [(e.seq, e.type, e.call, e.outcome, e.body) for e in theirs]


async def test_a_call_that_was_settled_before_it_parked_leaves_its_row_only_for_a_while(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    view = await scene.commit(view, settle=(Answer(made.id, "error", OK),))
    view = await scene.commit(view, park=(Park(made.id, 1000, hash_secret(SECRET)),), ending="park")
    assert (await scene.outcome(view, made.id, body=OK)).code == "duplicate"
    await scene.reply(view)
    await scene.pass_ms(8 * DAY_MS)
    await scene.tick()
    assert await scene.rows() == {}


async def test_a_notice_that_is_cleared_while_a_turn_runs_is_gone_with_the_next_commit_whose_records_come_along_once(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.notice("full")
    view = await scene.open_turn(owner)
    await scene.notice("", clear=True)
    await scene.dispatch()
    assert shown(view) == ["!full", "hello"]
    view = await scene.commit(view, append=(Say({"text": "one"}), Note("notification", {"text": "aside"})))
    assert shown(view) == ["hello", "=one", "!aside"]
    view = await scene.commit(view, append=(Say({"text": "two"}),))
    again = await scene.begin_as(owner, view.epoch)
    assert again is not None
    assert _same(view.entries, again.entries)
    await scene.reply(view)
