"""What could not be handled is kept with its reason, bounded, until somebody sends it again or drops it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.protocol.scene import Scene, shown
from turnyard.records.ids import session_key
from turnyard.state import dead, lanes
from turnyard.state.flows import set_limits
from turnyard.wire.yard_edge import YardEdge

SID = session_key("default", "s")
BIG = {"text": "x" * 20_000}


async def spoil(scene: Scene, **fields: str) -> None:
    """Damage the last accepted event as a newer version, or a fault, would."""
    shard = scene.yard.shards[0]
    ((eid, event),) = await shard.redis.xrevrange(shard.keys.ingress, count=1)
    await shard.redis.xdel(shard.keys.ingress, eid)
    await shard.redis.xadd(shard.keys.ingress, event | {"v": "9"} | fields)


async def buried(scene: Scene, text: str = "hello", **more: Any) -> dead.DeadLetter:
    """A message that could not be read back."""
    await scene.say(text, **more)
    await spoil(scene)
    await scene.dispatch()
    return (await dead.list_letters(scene.yard))[0]


async def test_a_letter_says_what_came_when_why_and_what_to_do(scene: Scene) -> None:
    letter = await buried(scene)
    assert (letter.reason, letter.tenant, letter.session, letter.agent, letter.kind) == ("unreadable", "default", "s", "bot", "user")
    assert (letter.at_ms, letter.whole, letter.came["v"]) == (scene.now_ms, True, "9")
    assert letter.job.startswith("job_")
    assert letter.fix == dead.FIXES["unreadable"]
    assert await dead.read_letter(scene.yard, letter.id) == letter


async def test_a_message_that_is_sent_again_is_whole_and_answered(scene: Scene) -> None:
    letter = await buried(scene, "hello", body=BIG, metadata={"a": "b"})
    decision = await dead.retry_letter(scene.yard, letter.id, by="ann")
    assert decision.done
    assert decision.job != letter.job
    assert await dead.list_letters(scene.yard) == []
    view = await scene.start(await scene.worker())
    assert shown(view) == [BIG["text"]]
    await scene.reply(view)
    job = await dead.read_job(scene.yard, decision.job or "", tenant="default")
    assert job is not None
    assert (job.state, job.metadata) == ("succeeded", {"a": "b", "retry_of": letter.job})
    first = await dead.read_job(scene.yard, letter.job, tenant="default")
    assert first is not None
    assert first.state == "failed"


async def test_a_letter_that_is_retried_twice_is_one_message(scene: Scene) -> None:
    letter = await buried(scene)
    shard = scene.yard.shards[0]
    before = await shard.redis.dump("ty:{0}:dead")
    first = await dead.retry_letter(scene.yard, letter.id)
    # whoever retried died before the letter was taken out
    await shard.redis.restore("ty:{0}:dead", 0, before, replace=True)
    second = await dead.retry_letter(scene.yard, letter.id)
    assert (first.code, second.code, second.job) == ("done", "done", first.job)
    assert (await dead.retry_letter(scene.yard, letter.id)).code == "gone"
    assert shown(await scene.start(await scene.worker())) == ["hello"]


async def test_a_message_that_its_session_cannot_take_is_refused_with_the_reason_and_kept(scene: Scene) -> None:
    letter = await buried(scene, mode="reject")
    await scene.say("first")
    decision = await dead.retry_letter(scene.yard, letter.id)
    assert decision.code == "refused"
    assert "session is busy" in decision.why
    assert [x.id for x in await dead.list_letters(scene.yard)] == [letter.id]


async def test_a_message_to_a_session_that_is_gone_opens_it_anew(scene: Scene) -> None:
    await scene.say("hello")
    await scene.yard.redis.delete(scene.yard.shards[0].keys.head(SID))
    await scene.dispatch()
    (letter,) = await dead.list_letters(scene.yard)
    assert (letter.reason, letter.session, letter.tenant) == ("no_session", "s", "default")
    assert (await dead.retry_letter(scene.yard, letter.id)).done
    assert shown(await scene.start(await scene.worker())) == ["hello"]


async def test_a_control_that_could_not_be_read_is_sent_again(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))
    await scene.control("pause")
    await spoil(scene)
    await scene.dispatch()
    (letter,) = await dead.list_letters(scene.yard)
    assert (await dead.retry_letter(scene.yard, letter.id)).done
    await scene.dispatch()
    assert (await scene.head())["pz"] == "1"
    assert await dead.list_letters(scene.yard) == []


async def test_a_notice_comes_back_to_its_session_as_it_was_and_is_kept_while_there_is_none(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))
    shard = scene.yard.shards[0]
    await scene.notice("the door is open")
    head = await shard.redis.dump(shard.keys.head(SID))
    await shard.redis.delete(shard.keys.head(SID))
    await scene.dispatch()
    (letter,) = await dead.list_letters(scene.yard)
    refused = await dead.retry_letter(scene.yard, letter.id)
    assert (letter.reason, refused.code, "session is gone" in refused.why) == ("no_session", "refused", True)
    await shard.redis.restore(shard.keys.head(SID), 0, head)
    assert (await dead.retry_letter(scene.yard, letter.id)).done
    await scene.dispatch()
    await scene.say("hello")
    assert shown(await scene.start(await scene.worker()))[-2:] == ["!the door is open", "hello"]


async def test_an_event_that_still_cannot_be_read_comes_back_as_a_letter(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))
    await scene.notice("hello")
    await spoil(scene)
    await scene.dispatch()
    (letter,) = await dead.list_letters(scene.yard)
    assert (await dead.retry_letter(scene.yard, letter.id)).done
    await scene.dispatch()
    (again,) = await dead.list_letters(scene.yard)
    assert (again.reason, again.came) == (letter.reason, letter.came)


async def test_an_event_that_was_too_large_to_be_kept_is_not_sent_in_part(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))
    await scene.notice("x" * 100_000)
    await spoil(scene)
    await scene.dispatch()
    (letter,) = await dead.list_letters(scene.yard)
    assert not letter.whole
    decision = await dead.retry_letter(scene.yard, letter.id)
    assert (decision.code, "too large" in decision.why) == ("refused", True)
    assert len(await dead.list_letters(scene.yard)) == 1


async def test_a_dropped_letter_is_gone_and_the_log_says_who_dropped_it(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    letter = await buried(scene)
    shard = scene.yard.shards[0]
    assert await shard.redis.ttl(shard.keys.job(letter.job)) == -1
    with caplog.at_level(logging.WARNING, "turnyard.state"):
        assert (await dead.drop_letter(scene.yard, letter.id, by="ann")).done
    (line,) = [r for r in caplog.records if r.message == "dead letter dropped"]
    assert (line.by, line.letter, line.reason, line.job) == ("ann", letter.id, "unreadable", letter.job)  # type: ignore[attr-defined]
    assert await dead.read_letter(scene.yard, letter.id) is None
    assert (await dead.drop_letter(scene.yard, letter.id)).code == "gone"
    assert await shard.redis.ttl(shard.keys.job(letter.job)) > 0
    assert (await scene.head())["dd"] == "0"
    assert await dead.read_stock(scene.yard) == dead.DeadStock(0, 0, dead.CAP_BYTES, None)


async def test_another_tenants_letter_is_neither_listed_nor_decided(scene: Scene) -> None:
    letter = await buried(scene, tenant="other")
    assert await dead.list_letters(scene.yard, tenant="default") == []
    assert await dead.read_letter(scene.yard, letter.id, tenant="default") is None
    assert (await dead.retry_letter(scene.yard, letter.id, tenant="default")).code == "gone"
    assert (await dead.drop_letter(scene.yard, letter.id, tenant="default")).code == "gone"
    assert [x.id for x in await dead.list_letters(scene.yard, tenant="other")] == [letter.id]


@pytest.mark.parametrize("wrong", ["", "0", "0.1", "9.1-0", "0.1-0-0", "x.1-0", "0.99999999999999-0"])
async def test_an_id_that_is_none_finds_no_letter(scene: Scene, wrong: str) -> None:
    assert await dead.read_letter(scene.yard, wrong) is None
    assert (await dead.retry_letter(scene.yard, wrong)).code == "gone"


async def test_letters_are_bounded_in_bytes_and_the_oldest_go_first(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await shard.redis.hset(shard.keys.limits, "dead:cap", 20_000)
    for i in range(30):
        await shard.redis.xadd(shard.keys.ingress, {"n": i, "kind": "nonsense", "x": "y" * 3000})
    await scene.dispatch()
    left = await dead.list_letters(scene.yard)
    assert [letter.came["n"] for letter in left] == ["29", "28", "27", "26", "25", "24"]
    stock = await dead.read_stock(scene.yard)
    assert (stock.letters, stock.nearly_full) == (6, True)
    stored = await shard.redis.memory_usage("ty:{0}:dead", samples=0)
    assert stock.bytes <= 20_000
    assert stored <= 40_000
    for letter in left:
        await dead.drop_letter(scene.yard, letter.id)
    assert (await dead.read_stock(scene.yard)).bytes == 0


async def test_letters_are_listed_page_by_page_over_all_shards(three_shards: Scene) -> None:
    scene = three_shards
    for shard in scene.yard.shards:
        for i in range(3):
            await shard.redis.xadd(shard.keys.ingress, {"n": f"{shard.n}{i}", "kind": "nonsense"})
        await scene.dispatch(shard)
    assert len(await dead.list_letters(scene.yard)) == 9
    assert len(await dead.list_letters(scene.yard, limit=4)) == 4


async def test_a_session_counts_its_letters(scene: Scene) -> None:
    await set_limits(scene.yard.shards[0], max_concurrent_turns=5)
    letter = await buried(scene)
    assert (await scene.head())["dd"] == "1"
    await dead.retry_letter(scene.yard, letter.id)
    assert (await scene.head())["dd"] == "0"


async def test_a_reply_that_was_given_up_is_sent_again_as_a_record_of_its_own(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await scene.reply(await scene.open_turn(await scene.worker(), platform="slack"), lanes=("slack",))
    (item,) = await lanes.take_lane(shard, "slack")
    assert await lanes.give_up(shard, "slack", item, item.records[-1], reason="channel is archived")
    (letter,) = await dead.list_letters(scene.yard)
    assert (letter.reason, letter.lane, letter.came["why"]) == ("delivery_failed", "slack", "channel is archived")
    assert (await dead.retry_letter(scene.yard, letter.id)).done
    (again,) = await lanes.take_lane(shard, "slack")
    assert [(r.type, r.extra.get("x")) for r in again.records if r.type == "delivery/again"] == [("delivery/again", str(item.last_seq))]
    assert await dead.list_letters(scene.yard) == []


async def test_a_letter_that_is_sent_again_does_not_take_the_lane_from_who_sends_there_now(scene: Scene) -> None:
    shard, owner = scene.yard.shards[0], await scene.worker()
    await scene.reply(await scene.open_turn(owner, platform="slack"), lanes=("slack",))
    (item,) = await lanes.take_lane(shard, "slack")
    assert await lanes.give_up(shard, "slack", item, item.records[-1], reason="channel is archived")
    await scene.reply(await scene.open_turn(owner, "again"), lanes=("slack",))
    (busy,) = await lanes.take_lane(shard, "slack")
    (letter,) = await dead.list_letters(scene.yard)
    assert (await dead.retry_letter(scene.yard, letter.id)).done
    assert await lanes.take_lane(shard, "slack") == []
    assert await lanes.sent(shard, "slack", busy)
    (rest,) = await lanes.take_lane(shard, "slack")
    assert [r.type for r in rest.records] == ["delivery/again"]
    assert await lanes.sent(shard, "slack", rest)


async def test_what_somebody_wrote_is_not_shown_in_a_letter(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))
    await scene.notice("the secret word")
    await spoil(scene)
    await scene.say("another secret")
    await spoil(scene)
    await scene.dispatch()
    letters = await dead.list_letters(scene.yard)
    assert len(letters) == 2
    with caplog.at_level(logging.DEBUG):
        for letter in letters:
            await dead.drop_letter(scene.yard, letter.id)
    assert "secret" not in repr(letters) + caplog.text


async def test_a_door_shows_and_retries_the_letters_of_its_tenant(scene: Scene) -> None:
    letter = await buried(scene)
    edge = await YardEdge.start(scene.yard)
    assert await edge.dead_letters(tenant="other", limit=10, before=None) == []
    assert await edge.dead_letters(tenant="default", limit=10, before=None) == [letter]
    assert await edge.dead_letters(tenant="default", limit=10, before=letter.id) == []
    assert (await edge.retry_dead(letter.id, tenant="other")).code == "gone"
    assert (await edge.retry_dead(letter.id, tenant="default")).done
    await edge.aclose()


async def test_the_message_of_a_poisoned_turn_is_asked_again_when_somebody_says_so(scene: Scene) -> None:
    """Its body is in the log by then."""
    accepted = await scene.say("kill me", metadata={"a": "b"})
    view = await scene.start(await scene.worker())
    await scene.commit(view, ending="finish", closing=True, failure={"code": "poisoned", "message": "m", "retryable": False, "ref": None})
    fields = {"reason": "poisoned", "sid": SID, "tn": "default", "id": "s", "job": accepted.job, "tu": view.turn, "ag": "bot", "deaths": 3}
    await scene.yard.redis.xadd("ty:{0}:dead", fields)
    (letter,) = await dead.list_letters(scene.yard)
    assert (letter.job, letter.turn, letter.more) == (accepted.job, view.turn, {"deaths": "3"})
    decision = await dead.retry_letter(scene.yard, letter.id)
    assert decision.done
    view = await scene.start(await scene.worker())
    assert shown(view)[-1] == "kill me"
    assert view.jobs == (decision.job,)
    await scene.reply(view)


async def test_a_lifted_task_that_was_poisoned_is_not_run_behind_its_turns_back(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()))
    await scene.yard.redis.xadd("ty:{0}:dead", {"reason": "lifted_poisoned", "sid": SID, "tn": "default", "id": "s", "c": "call_x"})
    (letter,) = await dead.list_letters(scene.yard)
    decision = await dead.retry_letter(scene.yard, letter.id)
    assert (decision.code, "told that the call failed" in decision.why) == ("refused", True)
    assert (await dead.drop_letter(scene.yard, letter.id)).done
