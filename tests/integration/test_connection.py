"""How a client made by the factory behaves: which servers it refuses, what it never repeats, what it never mixes up."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from redis import exceptions as rx

from tests.servers import private_server
from turnyard.errors import ConfigError, StoreUnavailable, Unsupported
from turnyard.state import connection
from turnyard.state.connection import check_server, connect, describe
from turnyard.state.embedded import resolve_server, stop_server
from turnyard.state.target import safe_url


async def test_a_server_that_may_evict_sessions_is_refused_with_the_command_that_mends_it():
    with private_server("--maxmemory-policy", "allkeys-lru") as url:
        client = connect(url)
        with pytest.raises(Unsupported, match="CONFIG SET maxmemory-policy noeviction"):
            await check_server(client)
        await client.aclose()


async def test_a_server_where_config_and_info_are_forbidden_is_accepted_with_a_warning(clean: str, caplog: pytest.LogCaptureFixture):
    admin = connect(clean)
    await admin.execute_command("ACL", "SETUSER", "edge", "on", ">pw", "~*", "+@all", "-config", "-info")
    limited = connect(clean.replace("unix://", "unix://edge:pw@"))
    facts = await check_server(limited)
    assert len(facts.warnings) == 2
    assert "maxmemory-policy" in caplog.text
    await limited.aclose()
    wrong = connect(clean.replace("unix://", "unix://edge:secret-guess@"))
    with pytest.raises(ConfigError, match="refused the user name or password") as caught:
        await check_server(wrong)
    assert "secret-guess" not in str(caught.value)
    await wrong.aclose()
    await admin.execute_command("ACL", "DELUSER", "edge")
    await admin.aclose()


async def test_a_healthy_server_is_accepted_without_a_warning():
    with private_server("--appendonly", "yes") as url:
        client = connect(url)
        facts = await check_server(client)
        assert (facts.policy, facts.warnings) == ("noeviction", ())
        await client.aclose()


async def test_a_server_that_keeps_nothing_on_disk_is_accepted_with_a_warning(clean: str):
    client = connect(clean)
    (warning,) = (await check_server(client)).warnings
    assert "appendonly yes" in warning
    await client.aclose()


async def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path):
    client = connect("redis://user:hunter2@127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1") as caught:
        await check_server(client)
    assert "hunter2" not in str(caught.value)
    await client.aclose()


async def test_a_database_that_the_server_does_not_have_is_a_wrong_url(clean: str):
    client = connect(clean.partition("?")[0] + "?db=9999")
    with pytest.raises(ConfigError, match="REDIS_URL"):
        await check_server(client)
    await client.aclose()


def test_a_url_in_a_message_has_no_credentials():
    assert safe_url("rediss://user:hunter2@host:6379/0?password=x") == "rediss://host:6379/0"
    assert "hunter2" not in safe_url("redis://user:hunter2@[host")
    assert describe(connect("rediss://user:hunter2@host:6379/0")) == "rediss://host:6379/0"


@pytest.mark.parametrize("url", ["http://host", "localhost:6379", "", "redis://host:nan", "redis://[::1", "[", "redis://host:99999"])
def test_what_is_not_a_redis_url_is_refused(url: str):
    with pytest.raises(ConfigError):
        connect(url)


async def test_a_command_is_never_sent_twice_when_its_answer_was_lost(clean: str):
    seen: list[bytes] = []

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            if b"CLIENT" in data:
                writer.write(b"+OK\r\n" * data.count(b"CLIENT"))
                continue
            seen.append(data)
            writer.close()
            return

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        client = connect(f"redis://127.0.0.1:{port}/0")
        with pytest.raises(Exception, match="closed"):
            await client.incr("n")
        await client.aclose()
    assert len(seen) == 1


async def test_a_reader_that_waits_in_the_server_does_not_time_out_and_holds_up_nobody(clean: str):
    readers, commands = connect(clean, blocking=True), connect(clean)
    waiting = [asyncio.create_task(readers.blmpop(2, 1, f"list{n}", direction="LEFT")) for n in range(3)]
    await commands.rpush("list1", "x")
    assert await waiting[1] == [b"list1", [b"x"]]
    assert [await waiting[0], await waiting[2]] == [None, None]
    await readers.aclose()
    await commands.aclose()


@pytest.mark.spec("L21")
async def test_cancelling_commands_in_flight_never_gives_one_caller_the_reply_of_another(clean: str):
    client = connect(clean, max_connections=4)
    rng = random.Random(7)
    answered = 0

    async def ask(n: int) -> None:
        nonlocal answered
        # The server holds the reply back long enough for the cancel to come between the two.
        assert await client.eval("for i = 1, 20000 do end return ARGV[1]", 0, str(n)) == str(n).encode()
        answered += 1

    for round_ in range(30):
        asked = [asyncio.create_task(ask(round_ * 100 + n)) for n in range(12)]
        await asyncio.sleep(rng.uniform(0.0, 0.002))
        for task in rng.sample(asked, 6):
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert not [task for task in asked if not task.cancelled() and task.exception()]
    assert 0 < answered < 360
    await client.aclose()


async def test_more_commands_than_connections_wait_for_their_turn(clean: str):
    client = connect(clean, max_connections=2)
    assert sorted(await asyncio.gather(*(client.incr("n") for _ in range(50)))) == list(range(1, 51))
    await client.aclose()


async def test_a_waiter_that_is_cancelled_as_it_is_woken_leaves_the_connection_to_the_next(clean: str):
    client = connect(clean, max_connections=1)
    pool = client.connection_pool
    held = await pool.get_connection()
    woken, waiting = (asyncio.create_task(pool.get_connection()) for _ in range(2))
    await asyncio.sleep(0)
    await pool.release(held)
    woken.cancel()
    async with asyncio.timeout(1):
        await pool.release(await waiting)
    await client.aclose()


async def test_asking_for_a_connection_too_long_is_an_error_that_says_so(clean: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "POOL_WAIT_S", 0.01)
    client = connect(clean, max_connections=1)
    held = await client.connection_pool.get_connection()
    with pytest.raises(rx.ConnectionError, match="no connection became free"):
        await client.get("a")
    await client.connection_pool.release(held)
    assert await client.get("a") is None
    await client.aclose()


async def test_a_client_finds_its_server_again_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REDIS_URL", raising=False)
    server = await resolve_server(tmp_path / "s")
    if server.kind == "fake":
        pytest.skip("no server program of our own to restart")
    client = connect(server.url)
    await client.set("a", "1")
    await stop_server(tmp_path / "s")
    with pytest.raises(rx.ConnectionError):
        await client.get("a")
    await resolve_server(tmp_path / "s")
    assert await client.get("a") == b"1"
    await client.aclose()
    await stop_server(tmp_path / "s")
