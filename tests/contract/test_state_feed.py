"""What a follower may rely on: everything once, in order, from wherever it resumes, on any process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.protocol.scene import OK, Scene, call
from turnyard.records.commit import Answer, Say
from turnyard.records.ids import session_key
from turnyard.records.live import Live
from turnyard.state.feed import _BUFFER, Feed, FeedId, FeedItem, SlowFollower
from turnyard.state.turns import write_live
from turnyard.testing import wait_until

pytestmark = pytest.mark.asyncio

SID = session_key("default", "s")


@contextlib.asynccontextmanager
async def feeding(scene: Scene) -> AsyncIterator[Feed]:
    feed = await Feed.start(scene.yard)
    try:
        yield feed
    finally:
        await feed.aclose()


class Reading:
    """A follower that keeps what it got."""

    def __init__(self, feed: Feed, after: FeedId | None = None, *, deltas: bool = True, session: str = SID) -> None:
        self.got: list[FeedItem] = []
        self.error: BaseException | None = None
        self._task = asyncio.create_task(self._read(feed, after, deltas=deltas, session=session))

    async def _read(self, feed: Feed, after: FeedId | None, *, deltas: bool, session: str) -> None:
        try:
            async for item in feed.follow(session, after=after, deltas=deltas):
                self.got.append(item)
        except SlowFollower as error:
            self.error = error

    @property
    def ids(self) -> list[FeedId]:
        return [item.id for item in self.got]

    @property
    def types(self) -> list[str]:
        return [item.record.type if not isinstance(item.record, Live) else item.record.text for item in self.got]

    async def reach(self, kind: str, times: int = 1) -> None:
        await wait_until(lambda: self.types.count(kind) >= times or self.error is not None, description=f"{times} of {kind}")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def conversation(scene: Scene, turns: int = 3) -> None:
    owner = await scene.worker()
    for i in range(turns):
        view = await scene.open_turn(owner, f"m{i}")
        made = call(view)
        view = await scene.ask(view, made, start=(made.id,))
        view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
        await scene.reply(view, f"r{i}")


async def test_a_follower_gets_the_past_and_then_what_happens_without_a_gap(scene: Scene) -> None:
    await conversation(scene, 2)
    async with feeding(scene) as feed:
        follower = Reading(feed)
        await follower.reach("turn/end", 2)
        await conversation(scene, 2)
        await follower.reach("turn/end", 4)
        await follower.stop()
    assert [i.seq for i in follower.ids] == [r.seq for r in await scene.log()]


@pytest.mark.spec("turn-62")
async def test_from_any_id_exactly_the_rest_comes(scene: Scene) -> None:
    await conversation(scene, 2)
    await scene.control("new")
    await conversation(scene, 1)
    async with feeding(scene) as feed:
        whole = Reading(feed)
        await whole.reach("turn/end", 3)
        rests = [Reading(feed, after) for after in whole.ids]
        await conversation(scene, 1)
        await whole.reach("turn/end", 4)
        for i, rest in enumerate(rests):
            await wait_until(lambda rest=rest: rest.ids[-1:] == whole.ids[-1:], description="the rest")
            assert rest.ids == whole.ids[i + 1 :], f"after {whole.ids[i]}"
        for reading in (whole, *rests):
            await reading.stop()
    assert whole.ids == sorted(whole.ids)
    assert {i.ordinal for i in whole.ids} == {0, 1}


async def test_every_process_gives_a_record_the_same_id(scene: Scene) -> None:
    await conversation(scene, 1)
    async with feeding(scene) as one, feeding(scene) as other:
        first, second = Reading(one), Reading(other)
        await conversation(scene, 1)
        await first.reach("turn/end", 2)
        await second.reach("turn/end", 2)
        await first.stop()
        await second.stop()
    assert first.got == second.got


@pytest.mark.spec("trap-32")
async def test_ids_go_on_upwards_when_the_server_and_the_feed_start_again(scene: Scene) -> None:
    await conversation(scene, 1)
    async with feeding(scene) as feed:
        before = Reading(feed)
        await before.reach("turn/end")
        await before.stop()
    await scene.yard.redis.execute_command("DEBUG", "RELOAD")
    async with feeding(scene) as feed:
        after = Reading(feed, before.ids[-1])
        await conversation(scene, 1)
        await after.reach("turn/end")
        await after.stop()
    ids = before.ids + after.ids
    assert [i.seq for i in ids] == list(range(1, len(ids) + 1))


@pytest.mark.spec("trap-32")
async def test_a_follower_of_a_log_that_lost_its_end_in_a_failover_is_not_silent(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    before = await scene.snapshot()
    async with feeding(scene) as feed:
        follower = Reading(feed)
        for i in range(5):
            view = await scene.commit(view, append=(Say({"text": f"lost{i}"}),))
        await follower.reach("assistant/message", 5)
        await scene.rewind(before)
        await scene.yard.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        again = await scene.begin_as(owner, 1)
        assert again is not None
        await scene.reply(again, "after")
        await follower.reach("turn/end")
        await wait_until(lambda: follower.error is not None, description="the follower to be told")
        resumed = Reading(feed, follower.ids[-1])
        view = await scene.open_turn(owner)
        await scene.reply(view)
        await resumed.reach("turn/end")
        await follower.stop()
        await resumed.stop()
    assert resumed.types[-1] == "turn/end"


@pytest.mark.spec("trap-32")
async def test_who_resumes_from_beyond_the_end_gets_what_comes_next(scene: Scene) -> None:
    await conversation(scene, 1)
    async with feeding(scene) as feed:
        follower = Reading(feed, FeedId(0, 999), deltas=False)
        await wait_until(lambda: bool(feed._readers[0].cursors), description="the follower to join")
        await conversation(scene, 1)
        await follower.reach("turn/end")
        await follower.stop()
    assert follower.types[0] == "inbox/accepted"


async def test_deltas_come_between_the_records_and_are_not_repeated_to_who_resumes(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    async with feeding(scene) as feed:
        follower, quiet = Reading(feed), Reading(feed, deltas=False)
        await follower.reach("user/message")
        for i, text in enumerate(("Hel", "lo")):
            await write_live(scene.shard(), view, [Live(view.last_seq, i + 1, view.turn, 1, "text", 0, text)])
        await follower.reach("lo")
        await scene.reply(view, "Hello")
        await follower.reach("turn/end")
        await quiet.reach("turn/end")
        late = Reading(feed)
        await late.reach("turn/end")
        for reading in (follower, quiet, late):
            await reading.stop()
    assert follower.types == ["inbox/accepted", "user/message", "Hel", "lo", "assistant/message", "turn/end"]
    assert follower.ids == sorted(follower.ids)
    assert quiet.types == late.types == ["inbox/accepted", "user/message", "assistant/message", "turn/end"]


async def test_following_asks_workers_for_deltas_and_sessions_nobody_follows_have_none(scene: Scene) -> None:
    await scene.open_turn(await scene.worker())
    assert "fu" not in await scene.head()
    async with feeding(scene) as feed:
        follower = Reading(feed)
        await follower.reach("user/message")
        assert int((await scene.head())["fu"]) > 0
        await follower.stop()


async def test_a_hundred_followers_of_a_process_hold_one_waiting_connection_per_shard(three_shards: Scene) -> None:
    scene = three_shards
    owner = await scene.worker()
    for i in range(20):
        await scene.reply(await scene.open_turn(owner, session=f"s{i}"))
    async with feeding(scene) as feed:
        followers = [Reading(feed, session=session_key("default", f"s{i % 20}")) for i in range(100)]
        for follower in followers:
            await follower.reach("turn/end")
        blocked = (await scene.yard.redis.info("clients"))["blocked_clients"]
        assert blocked <= 3
        for follower in followers:
            await follower.stop()


async def test_a_follower_that_does_not_read_is_dropped_and_the_others_go_on(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    async with feeding(scene) as feed:
        slow = feed.follow(SID)
        await anext(slow)
        quick = Reading(feed)
        await quick.reach("user/message")
        for _ in range(_BUFFER // 512 + 2):
            view = await scene.commit(view, append=tuple(Say({"text": "x"}) for _ in range(512)))
        await quick.reach("assistant/message", _BUFFER + 512)
        with pytest.raises(SlowFollower):
            async for _ in slow:
                pass
        assert quick.error is None
        await quick.stop()


async def test_the_feed_leaves_no_key_without_a_lifetime(scene: Scene) -> None:
    await conversation(scene, 1)
    async with feeding(scene) as feed:
        follower = Reading(feed)
        await follower.reach("turn/end")
        assert await scene.yard.redis.keys("ty:*:x:*") != []
        assert await scene.leaks() == []
        await follower.stop()


@pytest.mark.parametrize("raw", ["", "1", "1.2-x", "a.1-0", "1.²-0", "-1.0-0", "1.9999999999999999-0"])
async def test_what_is_no_feed_id_is_none(raw: str) -> None:
    assert FeedId.parse(raw) is None


async def test_a_feed_id_is_read_as_it_is_written() -> None:
    assert FeedId.parse(str(FeedId(2, 30, 4))) == FeedId(2, 30, 4)
    assert FeedId.parse("0.7") == FeedId(0, 7, 0)
