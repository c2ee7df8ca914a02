"""Sessions in a newer schema run only where it is known, and nobody is handed what it has to give back."""

from __future__ import annotations

import pytest

from tests.protocol.scene import Scene
from turnyard.errors import Unsupported
from turnyard.records.ids import session_key
from turnyard.state import fleet
from turnyard.state.schema import Schemas

OLD, NEW = Schemas(1, 1), Schemas(1, 2)
SID = session_key("default", "s")


async def write(scene: Scene, schema: int) -> None:
    """Let new data be written in `schema`, as a migration does."""
    for shard in scene.yard.shards:
        await shard.redis.hset(shard.keys.limits, "schema", schema)


async def hear(scene: Scene, owner: str) -> tuple[str, ...]:
    """Let a worker beat and take from the lists that it is told."""
    lists = (await fleet.beat(scene.yard.shards[0], owner, held=-1)).lists
    scene.hears(owner, lists)
    return lists


async def test_a_session_of_a_newer_schema_is_given_only_to_a_worker_that_knows_it(scene: Scene) -> None:
    old, new = await scene.worker(schemas=OLD), await scene.worker(schemas=NEW)
    assert (await hear(scene, old), await hear(scene, new)) == ((), ("default:bot@0~2",))
    await write(scene, 2)
    await scene.say()
    await scene.dispatch()
    assert (await scene.head())["sc"] == "2"
    assert await scene.begin(old) is None
    view = await scene.begin(new)
    assert view is not None
    await scene.reply(view)


async def test_with_no_worker_that_knows_its_schema_a_session_waits_until_one_comes(scene: Scene) -> None:
    old = await scene.worker(schemas=OLD)
    await write(scene, 2)
    await scene.say()
    for _ in range(3):
        await scene.dispatch()
        await scene.tick()
        assert await scene.begin(old) is None
    head = await scene.head()
    assert (head["st"], head.get("at", "0"), await scene.running()) == ("ready", "0", 0)
    new = await scene.worker(schemas=NEW)
    await hear(scene, new)
    view = await scene.start(new)
    await scene.reply(view)


async def test_an_old_turn_goes_on_in_its_schema_and_the_next_one_is_written_in_the_new(scene: Scene) -> None:
    old = await scene.worker(schemas=OLD)
    view = await scene.open_turn(old)
    await write(scene, 2)
    view = await scene.commit(view, ending="yield")
    await scene.dispatch()
    view = await scene.begin(old)
    assert view is not None
    assert (await scene.head()).get("sc", "1") == "1"
    await scene.reply(view)
    new = await scene.worker(schemas=NEW)
    await hear(scene, new)
    await scene.reply(await scene.open_turn(new, "again"))
    assert (await scene.head())["sc"] == "2"


async def test_when_every_worker_knows_the_schema_its_sessions_lie_with_the_others(scene: Scene) -> None:
    old, new = await scene.worker(schemas=OLD), await scene.worker(schemas=NEW)
    await write(scene, 2)
    await fleet.leave(scene.yard.shards[0], old)
    assert await hear(scene, new) == ()
    await scene.reply(await scene.open_turn(new))


async def test_a_new_session_is_written_in_the_schema_of_the_deployment(scene: Scene) -> None:
    await write(scene, 2)
    await scene.say()
    assert (await scene.head())["sc"] == "2"


async def test_a_worker_that_does_not_know_what_is_written_may_not_join(scene: Scene) -> None:
    await write(scene, 2)
    with pytest.raises(Unsupported, match="start a newer version"):
        await scene.worker(schemas=OLD)
    assert await fleet.list_workers(scene.yard) == []


async def test_serial_and_schema_together_name_the_list(scene: Scene) -> None:
    """A turn of a newer agent in a newer schema is for those who have both."""
    await scene.worker(schemas=NEW, serial=1)
    await scene.worker(schemas=OLD, serial=2)
    both = await scene.worker(schemas=NEW, serial=2)
    assert set(await hear(scene, both)) == {"default:bot@2", "default:bot@1~2", "default:bot@2~2"}
    await write(scene, 2)
    view = await scene.open_turn(both)
    view = await scene.commit(view, ending="yield")
    await scene.dispatch()
    assert await scene.yard.redis.llen("ty:{0}:turns:default:bot@2~2") == 1
    view = await scene.begin(both)
    assert view is not None
    await scene.reply(view)


async def test_a_worker_ticked_out_by_an_older_version_leaves_nothing_behind(scene: Scene) -> None:
    new = await scene.worker(schemas=NEW)
    shard = scene.yard.shards[0]
    await shard.redis.hset("ty:{0}:reads:default:bot", "gone", 2)
    await fleet.leave(shard, new)
    await scene.worker(schemas=NEW)
    assert await shard.redis.hexists("ty:{0}:reads:default:bot", "gone") is False
