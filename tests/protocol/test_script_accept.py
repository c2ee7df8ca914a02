"""The one door in: everything that is accepted is durable, once, and refused only where that is right."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.scene import DAY_MS, OK, SECRET, Scene, call
from turnyard.records.commit import Park
from turnyard.records.ids import hash_secret, session_key
from turnyard.state import ingress
from turnyard.state.scripts import StoreFull

pytestmark = pytest.mark.asyncio


async def test_a_message_makes_a_job_and_one_ingress_entry(scene: Scene) -> None:
    accepted = await scene.say("hi", metadata={"a": "b"}, priority=3)
    assert (accepted.code, accepted.position, accepted.entry) == ("accepted", 1, "queued")
    job = await scene.job(accepted)
    assert (job.state, job.input, job.metadata, job.priority, job.session) == ("queued", {"text": "hi"}, {"a": "b"}, 3, "s")
    assert await scene.ingress() == 1
    assert await scene.state() == "idle"


async def test_the_position_counts_what_is_accepted_and_not_claimed(scene: Scene) -> None:
    owner = await scene.worker()
    assert [(await scene.say()).position for _ in range(3)] == [1, 2, 3]
    await scene.start(owner)
    assert (await scene.say()).position == 1


async def test_the_same_job_again_answers_duplicate_with_the_first_position_and_its_state_now(scene: Scene) -> None:
    message = scene.message("hi")
    first = await ingress.accept_message(scene.yard, message)
    await scene.say("other")
    again = await ingress.accept_message(scene.yard, message)
    assert (again.code, again.position, again.entry) == ("duplicate", first.position, "queued")
    await scene.reply(await scene.start(await scene.worker()))
    assert (await ingress.accept_message(scene.yard, message)).entry == "succeeded"
    assert await scene.entries() == ["hi", "other", "=bye"]


@pytest.mark.spec("I2")
async def test_many_senders_of_one_message_make_one_entry_and_one_job(scene: Scene) -> None:
    message = scene.message("hi")
    codes = [a.code for a in await asyncio.gather(*(ingress.accept_message(scene.yard, message) for _ in range(20)))]
    assert sorted(codes) == ["accepted"] + ["duplicate"] * 19
    view = await scene.start(await scene.worker())
    await asyncio.gather(*(ingress.accept_message(scene.yard, message) for _ in range(5)))
    await scene.dispatch()
    await scene.reply(view)
    assert await scene.entries() == ["hi", "=bye"]


async def test_the_same_job_with_another_body_is_a_mismatch(scene: Scene) -> None:
    first = await scene.say("hi")
    again = await scene.say("other", job=first.job)
    assert again.code == "mismatch"
    assert await scene.ingress() == 1


async def test_a_lost_answer_is_asked_for_again_and_says_duplicate(scene: Scene) -> None:
    await scene.say("warm up")
    with scene.lost_reply():
        accepted = await scene.say("hi")
    assert accepted.code == "duplicate"
    assert await scene.ingress() == 2


async def test_a_session_that_holds_its_cap_of_messages_refuses_the_next_until_some_are_claimed(scene: Scene) -> None:
    sent = [await ingress.accept_message(scene.yard, scene.message(f"m{i}"), inbox_cap=2) for i in range(3)]
    assert [a.code for a in sent] == ["accepted", "accepted", "inbox_full"]
    assert await scene.ingress() == 2
    await scene.start(await scene.worker())
    assert (await ingress.accept_message(scene.yard, scene.message("m4"), inbox_cap=2)).code == "accepted"


async def test_mode_reject_is_refused_while_anything_waits_or_runs(scene: Scene) -> None:
    assert (await scene.say("a", mode="reject")).code == "accepted"
    assert (await scene.say("b", mode="reject")).code == "busy"
    view = await scene.start(await scene.worker())
    assert (await scene.say("c", mode="reject")).code == "busy"
    await scene.reply(view)
    assert (await scene.say("d", mode="reject")).code == "accepted"


async def test_nothing_of_a_refused_message_is_stored(scene: Scene) -> None:
    await scene.say("a")
    before = await scene.snapshot()
    refused = scene.message("b", mode="reject")
    assert (await ingress.accept_message(scene.yard, refused)).code == "busy"
    assert await scene.snapshot() == before


async def test_a_full_server_refuses_messages_and_notices_and_takes_outcomes_and_controls(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback", awaited=True)
    view = await scene.park(await scene.ask(view, made), made.id)
    before = await scene.snapshot()
    async with scene.full_server():
        with pytest.raises(StoreFull):
            await scene.say("more")
        with pytest.raises(StoreFull):
            await scene.notice("more")
        assert await scene.snapshot() == before
        assert (await scene.outcome(session_key("default", "s") + ".0", made.id)).code == "accepted"
        assert (await scene.control("pause")).code == "accepted"
        await scene.dispatch()
        assert (await scene.control("resume")).code == "accepted"
        await scene.dispatch()
    assert await scene.state() == "assigned"


async def test_a_control_is_known_by_its_event_and_acts_once(scene: Scene) -> None:
    await scene.say()
    assert (await scene.control("new", event="e1")).code == "accepted"
    assert (await scene.control("new", event="e1")).code == "duplicate"
    await scene.dispatch()
    assert (await scene.head())["so"] == "1"


async def test_a_control_of_an_unknown_session_is_gone(scene: Scene) -> None:
    assert (await scene.control("pause", session="nobody")).code == "gone"
    assert await scene.ingress() == 0


async def test_a_cancel_without_an_open_turn_is_late_and_stays_late_when_repeated(scene: Scene) -> None:
    await scene.say()
    assert (await scene.control("cancel", event="c1")).code == "late"
    view = await scene.start(await scene.worker())
    assert (await scene.control("cancel", event="c1")).code == "late"
    assert (await scene.control("cancel", turn="turn_other")).code == "late"
    assert (await scene.control("cancel", turn=view.turn)).code == "accepted"


async def test_a_job_is_cancelled_once_and_by_its_tenant_alone(scene: Scene) -> None:
    accepted = await scene.say()
    assert accepted.job is not None
    assert (await ingress.cancel_job(scene.yard, accepted.job, tenant="other")).code == "gone"
    assert (await ingress.cancel_job(scene.yard, "job_00" + "a" * 16, tenant="default")).code == "gone"
    assert (await ingress.cancel_job(scene.yard, "nonsense", tenant="default")).code == "gone"
    assert (await ingress.cancel_job(scene.yard, accepted.job, tenant="default")).code == "accepted"
    await scene.dispatch()
    again = await ingress.cancel_job(scene.yard, accepted.job, tenant="default")
    assert (again.code, again.entry) == ("duplicate", "cancelled")
    assert (await scene.job(accepted)).cause == "user"


async def test_a_notice_is_known_by_its_event(scene: Scene) -> None:
    assert [(await scene.notice("n", event="e")).code for _ in range(2)] == ["accepted", "duplicate"]
    assert await scene.ingress() == 1


async def test_a_repeat_is_still_known_after_a_day_and_a_half(scene: Scene) -> None:
    await scene.notice("n", event="e")
    await scene.pass_ms(36 * 3_600_000)
    assert (await scene.notice("n", event="e")).code == "duplicate"
    # the held clock moves no TTL: the server keeps what it knows for two days of its own
    known = await scene.yard.redis.keys(scene.yard.shards[0].keys.prefix + "d:*")
    assert known
    assert all([await scene.yard.redis.ttl(key) > 36 * 3600 for key in known])


@pytest.mark.spec("I6")
async def test_of_many_outcomes_of_one_call_the_first_stands_and_is_injected_once(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback")
    view = await scene.launch(await scene.ask(view, made), made.id)
    store = view.store
    bodies = [{"content": str(i % 3), "is_error": False} for i in range(12)]
    answers = await asyncio.gather(*(scene.outcome(store, made.id, body=body) for body in bodies))
    codes = [a.code for a in answers]
    assert codes.count("accepted") == 1
    assert (codes.count("duplicate"), codes.count("conflict")) == (3, 8)
    await scene.control("cancel")
    await scene.dispatch()
    await scene.commit(view, ending="finish", closing=True)
    await scene.reply(await scene.start(owner))
    await scene.pass_ms(2 * DAY_MS)
    await scene.tick()
    assert await scene.state() == "idle"
    assert [word for word in await scene.entries() if word.startswith(made.id)] == [f"{made.id}:placeholder", f"{made.id}:result"]


async def test_an_outcome_with_a_wrong_secret_or_for_no_row_is_gone(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    await scene.park(await scene.ask(view, made), made.id)
    wrong = hash_secret(b"x" * 32)
    assert (await scene.outcome(view, made.id, secret_hash=wrong)).code == "gone"
    assert (await scene.outcome(view, "call_none")).code == "gone"
    assert (await scene.outcome(view.store[:-1] + "7", made.id)).code == "gone"
    assert (await scene.outcome("garbage", made.id)).code == "gone"
    assert (
        await ingress.accept_outcome(scene.yard, shard=9, store=view.store, call=made.id, outcome="result", body=OK, secret_hash="x")
    ).code == "gone"
    assert (await scene.facts())["head"]["aw"] == 1


@pytest.mark.parametrize("name", ["_", "{call}:r", "{call}:l", ""])
async def test_what_is_stored_beside_a_call_is_not_a_call(scene: Scene, name: str) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    await scene.park(await scene.ask(view, made), made.id)
    assert (await scene.outcome(view, made.id, body={"h": hash_secret(SECRET), "j": [], "s": "parked", "aw": 1})).code == "accepted"
    before = await scene.snapshot()
    assert (await scene.outcome(view, name.format(call=made.id), body={"content": "forged"})).code == "gone"
    assert (await scene.begin_row(view, name.format(call=made.id), owner=await scene.worker(role="lifted"))).code == "GONE"
    after = await scene.snapshot()
    assert after[scene.shard().keys.calls(view.store).encode()] == before[scene.shard().keys.calls(view.store).encode()]


async def test_an_outcome_repeated_after_a_lost_answer_is_a_duplicate(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    await scene.park(await scene.ask(view, made), made.id)
    with scene.lost_reply():
        assert (await scene.outcome(view, made.id)).code == "duplicate"
    assert (await scene.outcome(view, made.id, body={"content": "else", "is_error": False})).code == "conflict"


async def test_a_decision_is_taken_once_and_its_opposite_conflicts(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "approval", awaited=True)
    view = await scene.ask(view, made)
    await scene.commit(view, park=(Park(made.id, 1000),), ending="park")
    assert (await scene.outcome(view, made.id, "allow", secret_hash=None)).code == "accepted"
    assert (await scene.outcome(view, made.id, "allow", secret_hash=None)).code == "duplicate"
    assert (await scene.outcome(view, made.id, "deny", secret_hash=None)).code == "conflict"


async def test_only_the_first_result_after_a_timeout_is_taken_as_late(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0, "callback")
    view = await scene.launch(await scene.ask(view, made), made.id, deadline_ms=500)
    store = view.store
    await scene.reply(await scene.commit(view, claim=True))
    await scene.pass_ms(501)
    assert (await scene.tick()).due == 1
    await scene.reply(await scene.start(owner))
    assert [(await scene.outcome(store, made.id)).code for _ in range(2)] == ["accepted", "duplicate"]
    assert (await scene.outcome(store, made.id, body={"content": "2", "is_error": False})).code == "conflict"
    await scene.reply(await scene.start(owner))
    log = [r for r in await scene.log() if r.type == "tool/result"]
    assert [(r.outcome, r.late, r.aside) for r in log] == [("placeholder", False, False), ("timeout", False, True), ("result", True, True)]


async def test_a_new_message_lands_on_its_sessions_shard_and_no_other(three_shards: Scene) -> None:
    scene = three_shards
    used = set()
    for i in range(12):
        accepted = await scene.say(session=f"s{i}")
        home = scene.shard(f"s{i}")
        assert accepted.job is not None
        assert int(accepted.job[4:6], 16) == home.n
        assert await home.redis.exists(home.keys.head(session_key("default", f"s{i}")), home.keys.job(accepted.job)) == 2
        used.add(home.n)
    assert used == {0, 1, 2}


async def test_every_key_of_a_shard_carries_its_tag(three_shards: Scene) -> None:
    scene = three_shards
    owner = await scene.worker()
    for i in range(6):
        view = await scene.open_turn(owner, session=f"s{i}")
        made = call(view, 0, "lift")
        view = await scene.launch(await scene.ask(view, made), made.id, secret=False, lanes=("arq",))
        await scene.notice("n", session=f"s{i}")
        await scene.reply(view)
    tags = {shard.keys.tag: shard.n for shard in scene.yard.shards}
    for key in [k.decode() for k in await scene.yard.redis.keys("ty:*") if not k.startswith(b"ty:{ctl}")]:
        tag = key[key.index("{") + 1 : key.index("}")]
        for i in range(6):
            if session_key("default", f"s{i}") in key:
                assert tags[tag] == scene.shard(f"s{i}").n


async def test_the_secret_itself_is_nowhere_on_the_server(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    await scene.park(await scene.ask(view, made), made.id)
    await scene.outcome(view, made.id)
    assert not any(SECRET in value for value, _ in (await scene.snapshot()).values())
