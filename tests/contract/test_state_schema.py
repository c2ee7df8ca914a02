"""Which versions may work on a deployment, by the schemas it holds and those they know."""

from __future__ import annotations

from typing import Any

import pytest

from turnyard.errors import Unsupported
from turnyard.state.keys import LAYOUT
from turnyard.state.schema import THIS_VERSION, Schemas, read_layout
from turnyard.state.scripts import Library
from turnyard.state.yard import Yard

OLD, NEW, NEXT = Schemas(1, 1), Schemas(1, 2), Schemas(2, 3)


async def test_a_new_deployment_is_written_in_the_newest_schema_of_who_makes_it(redis_client: Any) -> None:
    layout = await read_layout(redis_client, schemas=NEW)
    assert (layout.shards, layout.read, layout.write) == (1, 2, 2)


async def test_old_and_new_versions_open_one_deployment_until_it_is_migrated(clean: str, redis_client: Any) -> None:
    for schemas in (OLD, NEW):
        yard = await Yard.open(clean, schemas=schemas)
        assert yard.schemas == schemas
        await yard.aclose()
    await redis_client.hset(LAYOUT, mapping={"schema": "2", "read": "1"})
    with pytest.raises(Unsupported, match="written in schema 2 and this version knows 1: it is too old"):
        await Yard.open(clean, schemas=OLD)
    await (await Yard.open(clean, schemas=NEW)).aclose()


async def test_a_version_that_cannot_read_what_is_left_of_an_old_schema_is_refused(clean: str, redis_client: Any) -> None:
    await redis_client.hset(LAYOUT, mapping={"shards": "1", "schema": "2", "read": "1"})
    with pytest.raises(Unsupported, match="holds data of schema 1 and this version knows 2 to 3"):
        await Yard.open(clean, schemas=NEXT)
    await redis_client.hset(LAYOUT, "read", "2")
    await (await Yard.open(clean, schemas=NEXT)).aclose()


async def test_a_process_that_outlived_a_migration_is_refused_instead_of_teaching_the_server_its_scripts(
    clean: str, redis_client: Any
) -> None:
    yard = await Yard.open(clean, schemas=OLD)
    await yard.shards[0].run("dispatch", 1)
    await redis_client.hset(LAYOUT, mapping={"schema": "2", "read": "1"})
    await redis_client.function_flush()
    with pytest.raises(Unsupported, match="too old"):
        await yard.shards[0].run("dispatch", 1)
    assert await redis_client.function_list() == []
    await yard.aclose()


async def test_a_server_that_forgot_its_scripts_and_its_data_is_taught_again(clean: str, redis_client: Any) -> None:
    yard = await Yard.open(clean)
    await redis_client.flushall()
    await redis_client.function_flush()
    assert await yard.shards[0].run("dispatch", 1) == [0, 0, 0, 0]
    await yard.aclose()


def test_this_version_knows_the_schema_it_writes() -> None:
    assert THIS_VERSION.oldest <= THIS_VERSION.newest
    assert str(NEW) == "1 to 2"


async def test_the_scripts_leave_room_for_more_names(redis_client: Any) -> None:
    """Lua refuses a library with more than 200 names at once: whoever comes near it moves helpers into the script that uses them."""
    head, _, body = Library().source.partition("\n")
    more = "\n".join(f"local spare_{i} = {i}" for i in range(5))
    await redis_client.function_load(f"{head.replace('name=turnyard_', 'name=roomy_')}\n{more}\n{body.replace('ty_', 'roomy_ty_')}")
    await redis_client.function_delete(head.partition("name=turnyard_")[2].join(["roomy_", ""]))
