"""A deployment moves to a newer schema when no older process lives, and takes its old scripts with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from tests.protocol.scene import Scene
from turnyard.cli.entry import run
from turnyard.errors import Conflict, Unsupported
from turnyard.records.commit import Say
from turnyard.records.ids import new_job_id
from turnyard.records.messages import UserMessage
from turnyard.state import flows, ingress, turns
from turnyard.state.fleet import Lists, Registration, register, take
from turnyard.state.migration import finish, look_ahead
from turnyard.state.presence import Presence, read_processes, this_process
from turnyard.state.schema import Schemas, read_layout
from turnyard.state.scripts import Library
from turnyard.state.yard import Yard
from turnyard.testing import wait_until

OLD, NEW = Schemas(1, 1), Schemas(1, 2)
OLDER_LUA = "local function now() local t = call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end\n"


@pytest.fixture(autouse=True)
async def without_libraries(redis_client: Redis) -> None:
    """A server that knows no scripts yet."""
    await redis_client.execute_command("FUNCTION", "FLUSH")


async def opened(url: str, schemas: Schemas = NEW, *, role: str = "", library: Library | None = None) -> Yard:
    yard = await Yard.open(url, schemas=schemas, library=library)
    if role:
        await yard.attend(role)
    return yard


async def libraries(yard: Yard) -> set[str]:
    listed: Any = await yard.redis.execute_command("FUNCTION", "LIST")
    return {entry[1].decode().removeprefix("turnyard_") for entry in listed}


async def test_the_range_moves_once_no_older_process_lives_and_the_older_one_is_named_until_then(clean: str) -> None:
    old = await opened(clean, OLD, role="dispatcher")
    new = await opened(clean, role="worker")
    outlook = await look_ahead(new)
    assert [p.role for p in outlook.in_the_way] == ["dispatcher"]
    with pytest.raises(Conflict, match=r"dispatcher \(pid \d+ on .*, schema 1\)"):
        await finish(new)
    assert (await read_layout(new.redis, schemas=NEW)).write == 1
    assert await new.shards[0].redis.hget(new.shards[0].keys.limits, "schema") is None
    await old.aclose()
    after = await finish(new)
    assert (after.layout.write, after.layout.read, after.nothing_to_do) == (2, 2, True)
    assert await new.shards[0].redis.hget(new.shards[0].keys.limits, "schema") == b"2"
    with pytest.raises(Unsupported, match="too old"):
        await opened(clean, OLD)
    await new.aclose()


async def test_a_worker_of_a_version_that_does_not_show_itself_is_in_the_way(clean: str) -> None:
    new = await opened(clean)
    shard = new.shards[0]
    facts = b'{"role":"worker","host":"h","pid":7,"supervisor_pid":1,"pools":["default"],"agents":{"bot":1},"capacity":1,"lease_ms":10000}'
    await shard.run("beat", "join", "ab" * 16, 10_000, facts)
    with pytest.raises(Conflict, match="pid 7 on h, schema 1"):
        await finish(new)
    await new.aclose()


async def test_sessions_in_the_old_schema_are_read_until_they_have_run(clean: str) -> None:
    await (await opened(clean, OLD)).aclose()
    scene, new = await Scene.open(clean, schemas=NEW), await opened(clean)
    await scene.say()
    after = await finish(new)
    assert (after.sessions, after.layout.read, after.layout.write) == ({1: 1}, 1, 2)
    await scene.reply(await scene.start(await scene.worker(schemas=NEW)))
    after = await finish(new)
    assert (after.sessions, after.layout.read, after.nothing_to_do) == ({2: 1}, 2, True)
    await new.aclose()
    await scene.close()


async def test_libraries_that_no_process_calls_go_and_those_that_one_calls_stay(clean: str) -> None:
    gone, used = Library(clock_lua=OLDER_LUA), Library(clock_lua=OLDER_LUA + "local unused = 1\n")
    last = await opened(clean, library=gone)
    await last.shards[0].run("dispatch", 1)
    await last.aclose()
    side = await opened(clean, role="worker", library=used)
    new = await opened(clean, role="worker")
    for yard in (side, new):
        await yard.shards[0].run("dispatch", 1)
    assert await libraries(new) == {gone.version, used.version, new.library}
    outlook = await look_ahead(new)
    assert outlook.stale == (f"turnyard_{gone.version}",)
    await finish(new)
    assert await libraries(new) == {used.version, new.library}
    for yard in (side, new):
        await yard.aclose()


async def test_a_library_that_was_removed_under_its_feet_is_loaded_again_while_its_version_may_work(clean: str) -> None:
    side, new = await opened(clean, library=Library(clock_lua=OLDER_LUA)), await opened(clean)
    await side.shards[0].run("dispatch", 1)
    await finish(new)
    assert await libraries(new) == set()
    assert await side.shards[0].run("dispatch", 1) == [0, 0, 0, 0]
    for yard in (side, new):
        await yard.aclose()


async def test_a_process_that_was_away_during_the_migration_does_nothing_when_it_comes_back(clean: str) -> None:
    old, new = await opened(clean, OLD, library=Library(clock_lua=OLDER_LUA)), await opened(clean)
    await old.shards[0].run("dispatch", 1)
    await finish(new)
    with pytest.raises(Unsupported, match="too old"):
        await old.shards[0].run("dispatch", 1)
    assert await libraries(new) == set()
    for yard in (old, new):
        await yard.aclose()


async def test_two_libraries_work_on_one_session_side_by_side(clean: str) -> None:
    """Each transition may be made by another version of the scripts."""
    old, new = await opened(clean, library=Library(clock_lua=OLDER_LUA)), await opened(clean)
    assert old.library != new.library
    owner = "ab" * 16
    registration = Registration(owner, "worker", "h", 1, 1, ("default",), {"bot": 0}, 4)
    await register(old.shards[0], registration)
    for n in range(4):
        ours, theirs = (old, new) if n % 2 else (new, old)
        message = UserMessage("default", "s", "bot", {"text": f"m{n}"}, new_job_id(0), f"m{n}")
        assert (await ingress.accept_message(ours, message)).code == "accepted"
        await flows.dispatch(theirs.shards[0])
        (assignment,) = await take(ours.shards[0], Lists(registration), free=1, block_ms=1000)
        view = await turns.begin(theirs.shards[0], assignment.session, epoch=assignment.epoch, owner=owner, serial=0)  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType, reportUnknownMemberType, reportUnknownArgumentType]
        assert view is not None
        assert [e.body["text"] for e in view.entries if e.type == "user/message"] == [f"m{i}" for i in range(n + 1)]
        view = await turns.commit(ours.shards[0], view, owner, turns.Commit(append=(Say({"text": "ok"}),), ending="finish"))
        assert view.ended
    for yard in (old, new):
        await yard.aclose()


async def test_a_process_that_ended_is_forgotten_at_once_and_one_that_died_after_its_entrys_time(clean: str) -> None:
    yard = await opened(clean, role="worker")
    died = Presence(yard.redis, yard.clock, this_process("died", OLD, "x"))
    await died.start()
    assert {p.role for p in await read_processes(yard.redis)} == {"worker", "died"}
    await yard.redis.execute_command("ZADD", "ty:{ctl}:processes", "XX", 1, died._entry)  # pyright: ignore[reportPrivateUsage]
    assert [p.role for p in await read_processes(yard.redis)] == ["worker"]
    await died.aclose()
    other = await opened(clean)
    await yard.aclose()
    assert await read_processes(other.redis) == []
    await other.aclose()


async def test_an_entry_is_renewed_for_as_long_as_its_process_runs(clean: str) -> None:
    yard = await opened(clean)

    class Fast:
        """A clock that waits for nothing."""

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0)

    shown = Presence(yard.redis, Fast(), this_process("worker", NEW, "x"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await shown.start()
    await yard.redis.delete("ty:{ctl}:processes")

    async def back() -> bool:
        return len(await read_processes(yard.redis)) == 1

    await wait_until(back, description="the entry to be written again")
    await shown.aclose()
    await yard.aclose()


def test_the_command_checks_and_finishes(clean: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REDIS_URL", clean)
    assert run(["migrate"]) == 2
    assert run(["migrate", "--check"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["migrate", "--finish", "--json"]) == 0
    assert '"nothing_to_do":true' in capsys.readouterr().out
