"""The session in Redis does what the store port says, also when the process that drives it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.processes import ROOT
from tests.protocol.scene import Scene
from tests.stores import proves_rows
from turnyard.errors import Diverged, FenceLost, InboxFull
from turnyard.ports import SessionStore
from turnyard.records.commit import Commit, Note, TurnView
from turnyard.records.log import NOTICE
from turnyard.state.store import RedisStore, open_store
from turnyard.state.yard import Yard
from turnyard.testing import ManualClock, wait_until
from turnyard.testing.store_scenes import begun, ended, words
from turnyard.testing.stores import SessionStoreConformance

LEASE_MS = 10_000


@proves_rows
class TestRedisStore(SessionStoreConformance):
    @pytest_asyncio.fixture(autouse=True)
    async def _deployment(self, scene: Scene) -> AsyncIterator[None]:
        self.scene = scene
        async with AsyncExitStack() as self.stack:
            yield

    async def open(self) -> SessionStore:
        return await self.stack.enter_async_context(open_store(self.scene.yard, tenant="default", session="s", agent="bot"))

    async def pass_ms(self, ms: int) -> None:
        await self.scene.pass_ms(ms)


# -- who drives a session may die -------------------------------------------------------------------------------------


def opened(scene: Scene, session: str = "s") -> RedisStore:
    """A client whose lease nobody renews."""
    return RedisStore(scene.yard, tenant="default", session=session, agent="bot")


async def taken_over(scene: Scene, store: RedisStore) -> TurnView:
    """The turn of a client that is gone, once its lease has ended."""
    for _ in range(10):
        await store.beat()
        await scene.pass_ms(LEASE_MS // 3)
        if (view := await store.begin()) is not None:
            return view
    pytest.fail("the turn stayed with who is gone")


@pytest.mark.spec("turn-49")
async def test_a_client_whose_lease_has_ended_writes_nothing_more_and_the_next_one_goes_on(scene: Scene) -> None:
    gone, other = opened(scene), opened(scene)
    await gone.publish({"text": "hi"})
    view = await gone.commit(await begun(gone), Commit(append=(Note(NOTICE, {"text": "before"}),)))
    taken = await taken_over(scene, other)
    assert words(taken.entries) == ["hi", "before"]
    late = Commit(append=(Note(NOTICE, {"text": "late"}),), usage={"model_calls": 1}, ending="finish")
    with pytest.raises((FenceLost, Diverged)):
        await gone.commit(view, late)
    assert words(await other.entries()) == ["hi", "before"]
    taken = await ended(other, taken)
    assert words(await gone.entries()) == ["hi", "before", "bye"]


async def test_a_client_that_was_given_up_starts_anew_with_its_next_turn(scene: Scene) -> None:
    store, other = opened(scene), opened(scene)
    await store.publish({"text": "hi"})
    await begun(store)
    await ended(other, await taken_over(scene, other))
    await store.beat()
    await store.publish({"text": "more"})
    assert words((await begun(store)).entries) == ["hi", "bye", "more"]


async def test_the_lease_is_renewed_as_long_as_the_store_is_open(clean: str) -> None:
    clock = ManualClock()
    yard = await Yard.open(clean, clock=clock)
    try:
        async with open_store(yard, tenant="default", session="s", agent="bot") as store:
            await store.publish({"text": "hi"})
            await begun(store)
            shard = yard.shards[0]
            first = (await shard.redis.zrange(shard.keys.prefix + "workers", 0, -1, withscores=True))[0][1]
            await clock.advance(2)
            await wait_until(lambda: clock.sleepers > 0, description="the beat is done")
            again = (await shard.redis.zrange(shard.keys.prefix + "workers", 0, -1, withscores=True))[0][1]
            assert again > first
    finally:
        await yard.aclose()


async def test_a_full_session_refuses_messages(scene: Scene) -> None:
    store = opened(scene)
    for i in range(100):
        await store.publish({"text": str(i)})
    with pytest.raises(InboxFull):
        await store.publish({"text": "one too many"})


SESSIONS = 60
FOLDING = f"""
import asyncio, sys
from turnyard.records.commit import Commit
from turnyard.state.store import RedisStore
from turnyard.state.yard import Yard
from turnyard.testing.store_scenes import long_turn, summary

async def main():
    yard = await Yard.open(sys.argv[1])
    stores = [RedisStore(yard, tenant="default", session=str(i), agent="bot") for i in range({SESSIONS})]
    views = [await long_turn(store) for store in stores]
    print("ready", flush=True)
    for store, view in zip(stores, views):
        await store.commit(view, Commit(append=(summary(view, 4),), low=view.entries[4].seq))

asyncio.run(main())
"""


@pytest.mark.spec("turn-6")
async def test_a_process_that_is_killed_while_it_folds_leaves_each_session_as_it_was_or_folded(clean: str) -> None:
    old, new = ["hi", "1", "2", "3", "4"], ["summed up", "4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", FOLDING, clean, stdout=subprocess.PIPE, env=environment)
    yard = await Yard.open(clean)
    try:
        assert child.stdout is not None
        assert (await child.stdout.readline()).strip() == b"ready"
        first = RedisStore(yard, tenant="default", session="2", agent="bot")
        while words(await first.entries()) == old:
            pass
        child.kill()
        await child.wait()
        stores = [RedisStore(yard, tenant="default", session=str(i), agent="bot") for i in range(SESSIONS)]
        found = [words(await store.entries()) for store in stores]
        assert all(each in (old, new) for each in found), found
        assert found[0] == new
        assert found == sorted(found, key=lambda each: each == old)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        await yard.aclose()
