"""Out lanes: what a log owes to the outside is sent in order, by one sender at a time, and no signal about it is lost."""

from __future__ import annotations

import pytest

from tests.protocol.scene import OK, Scene, call
from turnyard.records.commit import Answer, Say
from turnyard.state import dead, ingress
from turnyard.state.lanes import LaneItem, give_up, put_off, sent, take_lane

pytestmark = pytest.mark.asyncio


async def take(scene: Scene, lane: str = "slack", **more: int) -> list[LaneItem]:
    return await take_lane(scene.yard.shards[0], lane, **more)


async def give_back(scene: Scene, item: LaneItem, **more: int) -> bool:
    return await sent(scene.yard.shards[0], "slack", item, **more)


async def due(scene: Scene, lane: str = "slack") -> list[tuple[bytes, float]]:
    return await scene.yard.redis.zrange(f"{scene.yard.shards[0].keys.prefix}out:{lane}", 0, -1, withscores=True)


async def test_a_sender_gets_what_lies_behind_the_cursor_and_sends_it_once(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()), "bye", lanes=("slack",))
    (item,) = await take(scene)
    assert (item.cursor, [r.type for r in item.records]) == (0, ["inbox/accepted", "user/message", "assistant/message", "turn/end"])
    assert await take(scene) == []
    assert await give_back(scene, item)
    assert await due(scene) == []


async def test_a_loan_that_was_not_given_back_ends_and_somebody_else_takes_it(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()), lanes=("slack",))
    (first,) = await take(scene)
    await scene.pass_ms(29_999)
    assert await take(scene) == []
    await scene.pass_ms(2)
    (second,) = await take(scene)
    assert second.lease != first.lease
    assert not await give_back(scene, first)
    assert await take(scene) == []
    assert await give_back(scene, second)
    assert await due(scene) == []


@pytest.mark.spec("trap-63")
async def test_a_commit_during_a_send_leaves_the_loan_and_the_rest_is_sent_afterwards(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    view = await scene.commit(view, append=(Say({"text": "one"}),), lanes=("slack",))
    (item,) = await take(scene)
    before = await due(scene)
    await scene.reply(view, "two", lanes=("slack",))
    assert await due(scene) == before
    assert await take(scene) == []
    assert await give_back(scene, item)
    (rest,) = await take(scene)
    assert rest.cursor == item.last_seq
    assert [r.body.get("text") for r in rest.records if r.type == "assistant/message"] == ["two"]


@pytest.mark.spec("trap-63", "trap-31")
async def test_a_cursor_never_moves_back(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    view = await scene.commit(view, append=(Say({"text": "one"}), Say({"text": "two"})), lanes=("slack",))
    (item,) = await take(scene)
    assert await give_back(scene, item, upto=3)
    (item,) = await take(scene)
    assert (item.cursor, [r.body["text"] for r in item.records]) == (3, ["two"])
    assert await give_back(scene, item, upto=1)
    (item,) = await take(scene)
    assert item.cursor == 3


@pytest.mark.spec("trap-31")
async def test_a_part_that_was_refused_holds_the_ones_behind_it_until_it_is_due(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    await scene.commit(view, append=(Say({"text": "one"}), Say({"text": "two"})), lanes=("slack",))
    (item,) = await take(scene)
    assert await give_back(scene, item, upto=2, delay_ms=1500)
    assert await take(scene) == []
    await scene.pass_ms(1501)
    (again,) = await take(scene)
    assert [r.body["text"] for r in again.records] == ["one", "two"]


async def test_a_repeat_of_sent_changes_nothing(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    await scene.commit(view, append=(Say({"text": "one"}),), lanes=("slack",))
    (item,) = await take(scene)
    with scene.lost_reply():
        assert not await give_back(scene, item)
    assert await due(scene) == []
    assert (await scene.head())["sent:slack:0"] == str(item.last_seq)


async def test_a_repeat_of_take_after_a_lost_answer_costs_the_loan_alone(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()), lanes=("slack",))
    with scene.lost_reply():
        assert await take(scene) == []
    await scene.pass_ms(30_001)
    assert len(await take(scene)) == 1


async def test_lanes_and_histories_have_cursors_of_their_own(scene: Scene) -> None:
    owner = await scene.worker()
    await scene.reply(await scene.open_turn(owner, "a"), lanes=("slack", "webhook"))
    (item,) = await take(scene)
    await give_back(scene, item)
    await scene.control("new")
    await scene.reply(await scene.open_turn(owner, "b"), lanes=("slack",))
    (webhook,) = await take(scene, "webhook")
    assert webhook.cursor == 0
    (slack,) = await take(scene)
    assert (slack.store[-2:], slack.cursor) == (".1", 0)
    assert [r.body.get("text") for r in slack.records if r.is_entry] == ["b", "bye"]


async def test_one_take_lends_a_bounded_number_of_stores_and_of_records(scene: Scene) -> None:
    owner = await scene.worker()
    for i in range(25):
        await scene.reply(await scene.open_turn(owner, session=f"s{i}"), lanes=("slack",))
    assert len(await take(scene)) == 20
    assert len(await take(scene)) == 5
    view = await scene.open_turn(owner, session="long")
    await scene.commit(view, append=tuple(Say({"text": str(i)}) for i in range(150)), lanes=("webhook",))
    (item,) = await take(scene, "webhook")
    assert len(item.records) == 100
    assert await sent(scene.yard.shards[0], "webhook", item)
    (item,) = await take(scene, "webhook")
    assert (item.cursor, len(item.records)) == (100, 52)


async def test_lanes_move_on_a_full_server_and_after_the_scripts_were_forgotten(scene: Scene) -> None:
    await scene.reply(await scene.open_turn(await scene.worker()), lanes=("slack",))
    await scene.forget_scripts()
    (item,) = await take(scene)
    async with scene.full_server():
        assert await give_back(scene, item)
    assert await due(scene) == []


@pytest.mark.spec("trap-67")
async def test_a_lifted_call_behind_a_plain_one_is_on_the_lane_when_it_is_parked(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    first, plain, last = call(view, 0, "lift"), call(view, 1), call(view, 2, "lift")
    view = await scene.ask(view, first, plain, last)
    view = await scene.launch(view, first.id, secret=False, lanes=("arq",), start=(plain.id,))
    (item,) = await take(scene, "arq")
    assert [r.call for r in item.records if r.type == "call/parked"] == [first.id]
    assert await sent(scene.yard.shards[0], "arq", item)
    view = await scene.commit(view, append=(Answer(plain.id, "result", OK),))
    await scene.launch(view, last.id, secret=False, lanes=("arq",))
    (item,) = await take(scene, "arq")
    assert [r.call for r in item.records if r.type == "call/parked"] == [last.id]


HOUR_MS = 3_600_000


async def owed(scene: Scene, *texts: str) -> LaneItem:
    """A turn that said these, and the loan to send them."""
    view = await scene.open_turn(await scene.worker())
    await scene.reply(await scene.commit(view, append=tuple(Say({"text": t}) for t in texts)), "bye", lanes=("slack",))
    (item,) = await take(scene)
    return item


async def test_what_cannot_be_sent_yet_waits_longer_the_older_it_is_and_holds_what_is_behind_it(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    item = await owed(scene, "one", "two")
    waits: list[int] = []
    for _ in range(16):
        refused = next(r for r in item.records if r.body.get("text") == "one")
        assert await put_off(shard, "slack", item, refused)
        ((_, at_ms),) = await due(scene)
        waits.append(int(at_ms) - scene.now_ms)
        assert await take(scene) == []
        await scene.pass_ms(waits[-1])
        (item,) = await take(scene)
        assert item.cursor == refused.seq - 1
    assert waits[:4] == [1000, 1000, 2000, 4000]
    assert waits[-1] == HOUR_MS
    assert await put_off(shard, "slack", item, item.records[0], at_least_ms=2 * HOUR_MS)
    ((_, at_ms),) = await due(scene)
    assert at_ms - scene.now_ms == 2 * HOUR_MS


@pytest.mark.parametrize("why", ["too old", "refused"])
async def test_a_record_that_is_given_up_is_a_dead_letter_its_session_is_told_and_the_rest_goes_on(scene: Scene, why: str) -> None:
    shard = scene.yard.shards[0]
    item = await owed(scene, "one", "two")
    if why == "too old":
        await scene.pass_ms(24 * HOUR_MS + 30_001)
        (item,) = await take(scene)
    refused = next(r for r in item.records if r.body.get("text") == "one")
    if why == "too old":
        assert await put_off(shard, "slack", item, refused)
    else:
        assert await give_up(shard, "slack", item, refused, reason="410 channel is gone")
    (letter,) = await dead.list_letters(scene.yard)
    assert (letter.reason, letter.lane, letter.store, letter.came["seq"]) == ("delivery_failed", "slack", item.store, str(refused.seq))
    assert letter.came["why"] == ("not delivered within 24 hours" if why == "too old" else "410 channel is gone")
    (rest,) = await take(scene)
    assert [r.body["text"] for r in rest.records if r.type == "assistant/message"] == ["two", "bye"]
    assert await give_back(scene, rest)
    # A second failure before the session ran is told in place of the first.
    await scene.notice("other")
    view = await scene.open_turn(await scene.worker(), "next")
    assert sum(e.type == "notification" and "slack" in e.body["text"] for e in view.entries) == 1
    assert await scene.running() == 1
    await scene.reply(view)


@pytest.mark.spec("trap-31")
async def test_a_message_of_several_parts_is_gone_on_with_where_it_stopped_and_never_gone_back(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    item = await owed(scene, "a long one", "two")
    long = next(r for r in item.records if r.body.get("text") == "a long one")
    assert item.parts == 0
    assert await put_off(shard, "slack", item, long, parts=2)
    await scene.pass_ms(1000)
    (item,) = await take(scene)
    assert (item.cursor, item.parts) == (long.seq - 1, 2)
    assert await give_back(scene, item, upto=item.cursor, parts=1)
    (item,) = await take(scene)
    assert (item.cursor, item.parts) == (long.seq - 1, 2)
    assert await give_back(scene, item, upto=long.seq)
    (item,) = await take(scene)
    assert (item.cursor, item.parts) == (long.seq, 0)
    assert await give_back(scene, item)


@pytest.mark.parametrize("end", ["answered", "cancelled in its queue", "out of time", "merged"])
async def test_however_a_job_ends_its_lanes_are_told(scene: Scene, end: str) -> None:
    owner = await scene.worker()
    asked = await scene.say(lanes=("webhook",), timeout_ms=1000)
    job = asked.job or ""
    if end == "cancelled in its queue":
        await ingress.cancel_job(scene.yard, job, tenant="default")
    elif end == "out of time":
        await scene.pass_ms(1001)
        await scene.tick(parts="d")
    else:
        if end == "merged":
            await scene.say("more")
        await scene.reply(await scene.start(owner))
    (item,) = await take(scene, "webhook")
    told = [(r.jobs, r.outcome) for r in item.records if r.type == "job"]
    assert told == [((job,), "succeeded" if end in ("answered", "merged") else "cancelled")]
    assert await sent(scene.yard.shards[0], "webhook", item)
    await scene.dispatch()


async def test_who_lost_the_loan_gives_nothing_up(scene: Scene) -> None:
    item = await owed(scene, "one")
    await scene.pass_ms(30_001)
    (second,) = await take(scene)
    assert not await give_up(scene.yard.shards[0], "slack", item, item.records[0], reason="x")
    assert await dead.list_letters(scene.yard) == []
    assert await give_back(scene, second)


async def test_a_dead_letter_of_a_lane_is_sent_again_as_a_record_of_its_own(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    item = await owed(scene, "one")
    refused = next(r for r in item.records if r.body.get("text") == "one")
    assert await give_up(shard, "slack", item, refused, reason="x")
    (rest,) = await take(scene)
    assert await give_back(scene, rest)
    (letter,) = await dead.list_letters(scene.yard)
    assert (await dead.retry_letter(scene.yard, letter.id)).done
    (again,) = await take(scene)
    assert [(r.type, r.extra["x"]) for r in again.records if r.type.startswith("delivery/")] == [("delivery/again", str(refused.seq))]
    assert await give_back(scene, again)
