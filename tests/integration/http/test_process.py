"""The HTTP platform as a process: how it starts, what it refuses, how it stops, and what a lost server does to it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.integration.http.conftest import door
from tests.processes import Roles, roles
from tests.servers import private_server
from tests.unit.http.server import reading
from turnyard.lifecycle import CONFIG
from turnyard.records.manifest import Manifest
from turnyard.state.agents import publish
from turnyard.state.yard import Yard
from turnyard.testing import wait_until

__all__ = ["roles"]


async def published(redis: str) -> None:
    """Have an agent exist without any worker."""
    yard = await Yard.open(redis)
    await publish(yard, Manifest("hello", "abc123"))
    await yard.aclose()


def test_an_address_that_others_reach_is_refused_without_keys(roles: Roles) -> None:
    role = roles.start("platforms", "http", "--host", "0.0.0.0", "--port", "0", "--redis", "unix:///nowhere")
    assert role.process.wait(20) == CONFIG
    assert "ALLOW_OPEN" in role.log()
    assert "Traceback" not in role.log()


async def test_where_the_network_decides_it_may_be_open_and_says_so_loudly(roles: Roles) -> None:
    with private_server() as redis:
        role = roles.start(
            "platforms", "http", "--host", "0.0.0.0", "--port", "0", "--redis", redis, env={"TURNYARD__PLATFORMS__HTTP__ALLOW_OPEN": "true"}
        )
        await wait_until(lambda: bool(role.events("listening")), description="the platform to listen", timeout_s=30)
        assert role.events("THE API IS OPEN: whoever reaches this address may use it; let the network decide who does")


def test_a_port_that_is_taken_is_said_in_one_line(roles: Roles) -> None:
    with private_server() as redis, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        role = roles.start("platforms", "http", "--port", str(taken.getsockname()[1]), "--redis", redis)
        assert role.process.wait(20) == CONFIG
        assert "--port" in role.log()
        assert "Traceback" not in role.log()


async def test_a_message_is_accepted_without_any_other_process_and_stays(roles: Roles) -> None:
    with private_server() as redis:
        await published(redis)
        first, url = door(roles, redis)
        async with httpx.AsyncClient(base_url=url) as http:
            job = (await http.post("/v1/jobs", json={"agent": "hello", "input": "hi", "session": "s1"})).json()
        first.kill_all()
        _, url = door(roles, redis)
        async with httpx.AsyncClient(base_url=url) as http:
            again = (await http.get(f"/v1/jobs/{job['id']}")).json()
            assert (again["state"], again["input"]) == ("queued", [{"type": "text", "text": "hi"}])
            assert (await http.get("/v1/sessions/s1/explain")).json()["code"] == "no_dispatcher"


async def test_sigterm_ends_streams_and_requests_in_order_and_exits_with_0(roles: Roles) -> None:
    with private_server() as redis:
        await published(redis)
        role, url = door(roles, redis)
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            await http.post("/v1/jobs", json={"agent": "hello", "input": "hi", "session": "s1"})
            async with reading(url, "/v1/sessions/s1/events") as reader:
                await reader.next()
                role.process.send_signal(signal.SIGTERM)
                assert await reader.rest() == []
        assert await asyncio.to_thread(role.process.wait, 20) == 0
        assert "Traceback" not in role.log()


async def test_while_the_server_is_gone_nothing_is_accepted_and_health_says_so(roles: Roles, tmp_path: Path) -> None:
    with private_server() as redis:
        await published(redis)
        role = roles.start("platforms", "http", "--port", "0", "--redis", redis, health=True)
        await wait_until(lambda: role.answers("/readyz") == 200, description="the platform to be ready", timeout_s=30)
        url = role.events("listening")[0]["url"]
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        response = await http.post("/v1/jobs", json={"agent": "hello", "input": "hi"})
        assert (response.status_code, response.json()["code"]) == (503, "redis-unavailable")
        assert int(response.headers["retry-after"]) >= 1
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200
    await wait_until(lambda: role.answers("/readyz") == 503, description="the platform to be unready", timeout_s=30)
    assert role.answers("/healthz") == 200
    assert role.process.poll() is None


@pytest.mark.spec("S8")
async def test_broken_and_endless_requests_leave_the_process_well(roles: Roles) -> None:
    with private_server() as redis:
        await published(redis)
        role, url = door(roles, redis)
        port = int(url.rsplit(":", 1)[1])
        head = b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        for raw in (
            b"\x00\xff\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
            head + b"content-length: 99999999999\r\n\r\n",
            head + b"transfer-encoding: chunked\r\n\r\n" + b"10000\r\n" + b" " * 0x10000 + b"\r\n" * 1,
            head + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
            head + b"content-length: 5\r\n\r\n{}",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(raw)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 10)
            writer.close()
        async with httpx.AsyncClient(base_url=url) as http:

            async def endless():
                while True:
                    yield b" " * 65_536

            with contextlib.suppress(httpx.WriteError, httpx.ReadError):
                # The answer may be lost when the connection is closed under a client that still sends.
                response = await http.post("/v1/jobs", content=endless(), headers={"content-type": "application/json"})
                assert response.status_code == 413
            deep = await http.post("/v1/jobs", content=b"[" * 1000 + b"]" * 1000, headers={"content-type": "application/json"})
            assert (deep.status_code, deep.json()["code"]) == (400, "invalid-request")
            assert (await http.post("/v1/jobs", json={"agent": "hello", "input": "hi"})).status_code == 202
        assert "Traceback" not in role.log()
