"""Traps that the model has no words for: lifetimes, the clock, the memory limit, the reply itself."""

from __future__ import annotations

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, OK, Scene, call, shown
from turnyard.errors import Diverged
from turnyard.records.commit import Answer, Park, Say
from turnyard.records.ids import job_shard, keyed_job_id, keyed_session, session_key
from turnyard.state import fleet, ingress
from turnyard.state.lanes import sent, take_lane
from turnyard.state.scripts import StoreFull

pytestmark = pytest.mark.asyncio


@pytest.mark.spec("trap-3")
async def test_the_same_idempotency_key_without_a_session_is_the_same_session_shard_and_job(three_shards: Scene) -> None:
    scene = three_shards
    used = set()
    for key in (f"order-{i}" for i in range(8)):
        answers = []
        for _ in range(3):
            session = keyed_session("default", key)
            home = scene.shard(session)
            job = keyed_job_id(home.n, "default", session, key)
            answers.append(await scene.say("hi", session=session, job=job))
        assert [a.code for a in answers] == ["accepted", "duplicate", "duplicate"]
        assert len({(a.job, a.session, a.position) for a in answers}) == 1
        assert job_shard(answers[0].job or "") == scene.shard(answers[0].session or "").n
        used.add(answers[0].job)
    assert len(used) == 8
    assert keyed_session("other", "order-1") != keyed_session("default", "order-1")


@pytest.mark.spec("trap-4")
async def test_a_job_that_was_parked_for_days_is_still_known_when_it_is_posted_again(scene: Scene) -> None:
    owner = await scene.worker()
    message = scene.message("hi")
    accepted = await ingress.accept_message(scene.yard, message)
    view = await scene.start(owner)
    made = call(view, 0, "approval", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, 30 * DAY_MS),), ending="park")
    for _ in range(3):
        await scene.pass_ms(DAY_MS)
        await scene.tick()
        again = await ingress.accept_message(scene.yard, message)
        assert (again.code, again.job, again.entry) == ("duplicate", accepted.job, "running")
    key = scene.yard.shards[0].keys.job(message.job)
    assert await scene.yard.redis.ttl(key) == -1
    await scene.outcome(view, made.id, "allow", secret_hash=None)
    owner = await scene.worker()
    view = await scene.start(owner)
    view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    await scene.reply(view)
    assert await scene.yard.redis.ttl(key) > 6 * 86_400
    assert (await ingress.accept_message(scene.yard, message)).entry == "succeeded"
    assert await scene.entries() == ["hi", "=", f"?{made.id}", f"{made.id}:result", "=bye"]


@pytest.mark.spec("trap-22")
async def test_a_relay_that_dies_between_enqueue_and_sent_finds_the_same_relay_again(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "lift")
    await scene.launch(await scene.ask(view, made), made.id, secret=False, lanes=("arq",))
    (first,) = await take_lane(shard, "arq")
    await scene.pass_ms(30_001)
    (second,) = await take_lane(shard, "arq")
    parked = [[(r.call, r.extra["re"]) for r in item.records if r.type == "call/parked"] for item in (first, second)]
    assert parked == [[(made.id, "1")]] * 2
    assert not await sent(shard, "arq", first)
    assert await sent(shard, "arq", second)
    assert await take_lane(shard, "arq") == []


@pytest.mark.spec("trap-28")
async def test_two_conversations_that_pick_the_same_session_share_its_lock_and_its_log(scene: Scene) -> None:
    owner, other = await scene.worker(), await scene.worker()
    chats = ({"platform": "slack", "delivery": "slack:C1"}, {"platform": "http", "delivery": "http:7"})
    for i, chat in enumerate(chats):
        await scene.say(f"m{i}", session="x", **chat)
    await scene.dispatch()
    assert await scene.running() == 1
    views = [v for v in (await scene.begin(owner, "x"), await scene.begin(other, "x")) if v is not None]
    assert [shown(view) for view in views] == [["m0", "m1"]]
    await scene.say("m2", session="x", **chats[1])
    await scene.dispatch()
    assert await scene.running() == 1
    view = await scene.commit(views[0], claim=True)
    assert shown(view) == ["m0", "m1", "m2"]
    await scene.control("new", session="x")
    await scene.reply(view)
    logs = [key.decode() for key in await scene.yard.redis.keys("*:log")]
    assert all(f"h:{session_key('default', 'x')}." in key for key in logs)


@pytest.mark.spec("trap-28")
async def test_no_session_can_name_the_log_of_another(scene: Scene) -> None:
    owner = await scene.worker()
    mine, theirs = await scene.open_turn(owner, session="mine"), await scene.open_turn(owner, session="theirs")
    made = call(theirs, 0, "callback")
    theirs = await scene.launch(await scene.ask(theirs, made), made.id)
    shard = scene.shard("mine").n
    for store in (mine.store, f"{mine.session}.{theirs.store}", f"{theirs.session}.1", theirs.session, f"{theirs.store}.0"):
        answer = await scene.outcome(store, made.id, session="mine")
        assert answer.code == "gone", (store, shard)
    for view in (mine, theirs):
        await scene.reply(view)


@pytest.mark.spec("trap-36")
async def test_on_a_full_server_a_turn_that_cannot_commit_its_step_gives_its_slot_back_and_goes_on_later(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    async with scene.full_server():
        with pytest.raises(StoreFull):
            await scene.commit(view, append=(Say({"text": "a"}),), claim=True)
        await scene.commit(view, ending="yield")
        assert (await scene.running(), await scene.state()) == (0, "ready")
        assert not (await fleet.beat(scene.yard.shards[0], owner, held=0)).lost
    view = await scene.start(owner)
    await scene.reply(view)
    assert await scene.entries() == ["hello", "=bye"]


@pytest.mark.spec("trap-41")
async def test_a_clock_that_jumps_ahead_takes_no_turn_from_a_worker_that_goes_on_beating(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.tick()
    await scene.pass_ms(30_000)
    for _ in range(12):
        await scene.tick()
        assert not (await fleet.beat(shard, owner, held=1)).lost
        await scene.pass_ms(1000)
    await scene.reply(view)


@pytest.mark.spec("trap-41")
async def test_a_clock_that_falls_back_shortens_no_lease(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    await scene.pass_ms(-30_000)
    assert not (await fleet.beat(shard, owner, held=1)).lost
    await scene.tick()
    await scene.reply(view)


@pytest.mark.spec("trap-66")
async def test_fifty_approvals_in_one_turn_are_not_counted_as_fifty_failed_attempts(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    for i in range(50):
        made = call(view, 0, "approval", awaited=True)
        view = await scene.ask(view, made)
        await scene.commit(view, park=(Park(made.id, DAY_MS),), ending="park")
        await scene.outcome(view, made.id, "allow", secret_hash=None)
        view = await scene.start(owner)
        assert int(view.head["attempt"]) == 1, f"approval {i}"
        view = await scene.commit(view, start=(made.id,))
        view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    await scene.reply(view)


@pytest.mark.spec("trap-85")
async def test_what_a_commit_appended_is_in_its_answer_although_an_event_before_it_was_lost(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker(), "one")
    lost = await scene.snapshot()
    await scene.say("two")
    await scene.dispatch()
    known = await scene.begin_as(scene._owners[view.session, view.epoch], view.epoch)
    assert known is not None
    await scene.rewind(lost)
    view = await scene.commit(known, append=(Say({"text": "answer"}),))
    assert shown(view) == ["one", "=answer"]
    assert await scene.entries() == ["one", "=answer"]
    again = await scene.commit(view, append=(Say({"text": "more"}),))
    assert again.last_seq == again.entries[-1].seq


@pytest.mark.spec("trap-17")
async def test_after_a_failover_the_worker_whose_commits_are_gone_begins_again_and_the_log_has_no_gap(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "one")
    before = await scene.snapshot()
    for i in range(3):
        view = await scene.commit(view, append=(Say({"text": f"lost{i}"}),))
    await scene.rewind(before)
    with pytest.raises(Diverged):
        await scene.commit(view, append=(Say({"text": "behind the gap"}),))
    again = await scene.begin_as(owner, 1)
    assert again is not None
    assert shown(again) == ["one"]
    await scene.reply(again)
    log = await scene.log()
    assert [r.seq for r in log] == list(range(1, len(log) + 1))


async def test_an_answer_that_nobody_took_for_longer_than_its_rows_life_is_still_given(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    loose, awaited = call(view, 0, "callback"), call(view, 1, "callback", awaited=True)
    view = await scene.ask(view, loose, awaited)
    view = await scene.launch(view, loose.id, deadline_ms=1000)
    await scene.commit(view, park=(Park(awaited.id, 1000),), ending="park")
    await scene.control("pause")
    await scene.dispatch()
    for name in (loose.id, awaited.id):
        assert (await scene.outcome(view, name, secret_hash=None)).code == "accepted"
    await scene.dispatch()
    for _ in range(3):
        await scene.pass_ms(8 * DAY_MS)
        await scene.tick()
    await scene.control("resume")
    await scene.dispatch()
    view = await scene.start(await scene.worker())
    results = [e for e in view.entries if e.type == "tool/result"]
    assert [(e.call, e.outcome, e.body.get("content")) for e in results if e.outcome != "placeholder"] == [
        (awaited.id, "result", "done"),
        (loose.id, "result", "done"),
    ]
    await scene.reply(view)
    await scene.pass_ms(8 * DAY_MS)
    await scene.tick()
    assert await scene.rows() == {}


AMNESTY = "if limit('tick') and NOW - tonumber(limit('tick')) > 3 * tick_ms then amnesty = NOW + lease_ms end"
# Which rule saves each of these, and how the Lua looks without it.
BROKEN: dict[str, Broken] = {
    "trap-4": (
        test_a_job_that_was_parked_for_days_is_still_known_when_it_is_posted_again,
        *("  call('ZADD', P .. 'idx:' .. h.tn, NOW, h.sid)", "  call('EXPIRE', job_key(job), 86400)"),
    ),
    "trap-17": (
        test_after_a_failover_the_worker_whose_commits_are_gone_begins_again_and_the_log_has_no_gap,
        *("if h.rv ~= k - 1 or h[le] ~= base then return {'DIVERGED'} end", ""),
    ),
    "trap-22": (
        test_a_relay_that_dies_between_enqueue_and_sent_finds_the_same_relay_again,
        *("if not due or tonumber(due) ~= tonumber(lease) then return 0 end", ""),
    ),
    "trap-28": (
        test_no_session_can_name_the_log_of_another,
        *("'h:' .. h.sid .. '.' .. ord .. ':calls'", "'h:' .. ord .. ':calls'"),
    ),
    "trap-41": (test_a_clock_that_jumps_ahead_takes_no_turn_from_a_worker_that_goes_on_beating, AMNESTY, ""),
    "trap-66": (
        test_fifty_approvals_in_one_turn_are_not_counted_as_fifty_failed_attempts,
        *("    set(h, 'at', 0)\n", ""),
    ),
}


@pytest.mark.parametrize("row", BROKEN)
async def test_without_its_rule_the_trap_snaps(clean: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[row])
