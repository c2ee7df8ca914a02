"""A whole yard of real processes for a module of tests: server, dispatcher, worker, lifted, and two doors."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.integration.sample_app import SampleApp
from tests.processes import Role, Roles
from tests.servers import private_server
from turnyard.client import Client
from turnyard.lifecycle import OK
from turnyard.testing import wait_until


@dataclass
class Stack:
    """Where everything is."""

    redis: str
    url: str
    second_url: str
    app: SampleApp
    directory: Path
    doors: list[Role]
    roles: list[Role]


def door(roles: Roles, redis: str, **env: str) -> tuple[Role, str]:
    """Start an HTTP platform on a free port and return it with its URL."""
    role = roles.start("platforms", "http", "--port", "0", "--redis", redis, env=env)
    deadline = time.monotonic() + 30
    while (found := re.search(r'"event":"listening".*?"url":"([^"]+)"', role.log())) is None:
        assert role.process.poll() is None, role.log()
        assert time.monotonic() < deadline, role.log()
        time.sleep(0.02)
    return role, found[1]


@pytest.fixture(scope="module")
def module_roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    roles = Roles(tmp_path_factory.mktemp("yard"))
    yield roles
    roles.end()


@pytest.fixture(scope="module")
def stack(module_roles: Roles) -> Iterator[Stack]:
    directory = module_roles.directory
    app = SampleApp(directory)
    with private_server() as redis:
        first, url = door(module_roles, redis)
        second, second_url = door(module_roles, redis)
        public = {"TURNYARD__PLATFORMS__HTTP__PUBLIC_URL": url}
        module_roles.dispatcher(redis)
        module_roles.worker(redis, app.path, "--processes", "1", env=public)
        module_roles.worker(redis, app.path, "--processes", "1", role="lifted", env=public)
        yield Stack(redis, url, second_url, app, directory, [first, second], module_roles.started)
        for role in module_roles.started:
            if role.process.poll() not in (None, OK):
                print(role.log()[-3000:])
        module_roles.end()


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    """A client of the first door, once the agent is published."""
    async with Client(stack.url) as client:

        async def published() -> bool:
            return any(agent["name"] == "hello" for agent in await client.agents())

        await wait_until(published, description="the agent to be published", timeout_s=30)
        yield client


@pytest.fixture
async def http(stack: Stack, client: Client) -> AsyncIterator[httpx.AsyncClient]:
    """Plain HTTP to the first door."""
    async with httpx.AsyncClient(base_url=stack.url, timeout=40) as found:
        yield found
