"""A connection of the factory forgets nothing that asyncio tells it."""

from __future__ import annotations

import asyncio

import pytest
from redis import exceptions as rx

from turnyard.state.connection import connect

pytestmark = pytest.mark.asyncio


async def test_a_cancel_in_any_moment_of_a_command_ends_it(plain_url: str) -> None:
    client = connect(plain_url, blocking=True)
    await client.ping()
    for moment in range(25):
        task = asyncio.create_task(client.execute_command("BLPOP", "nothing", 5))
        for _ in range(moment):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=2)
        assert done, f"a cancel after {moment} steps was forgotten"
    assert await client.ping()
    await client.aclose()


async def test_a_server_that_takes_nothing_is_given_up_after_the_sockets_timeout(plain_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(plain_url)
    connection = await client.connection_pool.get_connection("SET")
    connection.socket_timeout = 0.05
    monkeypatch.setattr(connection._writer, "drain", asyncio.Event().wait)  # the server reads nothing, so it never drains
    with pytest.raises(rx.TimeoutError):
        await connection.send_command("SET", "k", "v")
    assert connection.socket_timeout == 0.05
    assert not connection.is_connected
    await client.connection_pool.release(connection)
    await client.aclose()
