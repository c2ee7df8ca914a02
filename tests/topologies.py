"""Deployments of more than one server, formed on loopback from the same binary: a cluster, a pair with its Sentinel.

Each is started when a test first asks for it and shared by the tests of one pytest process, which may flush it. A test
that breaks servers (kills, cuts off, promotes) makes its own with the context managers.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from tests.processes import free_port
from tests.servers import leash, refuse_without_binary

WAIT_S = 15.0
SHARDS = 16
SLOTS = 16384
SERVICE = "yard"


@dataclass
class Node:
    """One server on a port of its own, which it keeps when it is started again."""

    directory: Path
    port: int
    options: list[str]
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Its URL as a plain server."""
        return f"redis://{self.address}/0"

    def start(self) -> None:
        """Start it with what it has on disk, and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            command = [*leash(), *self.options]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory)
        eventually(lambda: self.ask("PING"), f"server {self.address} to answer: {(self.directory / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """End it as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, *command: Any) -> Any:
        """Send it one command."""
        with redis.Redis.from_url(self.url, socket_timeout=5, socket_connect_timeout=2) as client:
            return cast("Any", client).execute_command(*command)


@dataclass
class Cluster:
    """Masters that share the slots evenly."""

    nodes: list[Node]

    @property
    def url(self) -> str:
        """Its URL: every node is a seed, so any of them may be down."""
        return f"redis+cluster://{','.join(node.address for node in self.nodes)}/0"

    def flush(self) -> None:
        """Empty every node: data, scripts and counts."""
        for node in self.nodes:
            for command in (("FLUSHALL",), ("FUNCTION", "FLUSH"), ("CONFIG", "RESETSTAT")):
                node.ask(*command)

    def settled(self) -> bool:
        """Tell whether every node says that all slots are served."""
        return all("cluster_state:ok" in _text(node.ask("CLUSTER", "INFO")) for node in self.nodes)


@dataclass
class Pair:
    """A primary and its replica, with a Sentinel if there is one."""

    primary: Node
    replica: Node
    sentinel: Node | None = None

    @property
    def url(self) -> str:
        """The URL under which the Sentinel knows the primary."""
        assert self.sentinel is not None
        return f"redis+sentinel://{self.sentinel.address}/0?service={SERVICE}"

    def in_step(self) -> bool:
        """Tell whether the replica has all that the primary wrote."""
        theirs = self.primary.ask("INFO", "replication")
        ours = self.replica.ask("INFO", "replication")
        return ours.get("master_link_status") == "up" and ours.get("slave_repl_offset") == theirs.get("master_repl_offset")

    def named(self) -> int:
        """Return the port of the server that the Sentinel names."""
        assert self.sentinel is not None
        return int(self.sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])


def eventually(check: Callable[[], Any], what: str) -> None:
    """Wait until `check` is true; what it raises is an answer that is not yet."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with contextlib.suppress(redis.RedisError, OSError):
            if check():
                return
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def nodes() -> Generator[Callable[..., Node]]:
    """Give what starts servers; all of them end with the block."""
    made: list[Node] = []

    def start(*extra: str, kind: tuple[str, ...] = ()) -> Node:
        directory = Path(tempfile.mkdtemp(prefix="ty-"))
        port = free_port()
        binary = str(refuse_without_binary())
        options = [binary, *kind, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
        if not kind:
            options += ["--save", "", "--maxmemory-policy", "noeviction", "--enable-debug-command", "yes"]
        node = Node(directory, port, [*options, *extra])
        made.append(node)
        node.start()
        return node

    try:
        yield start
    finally:
        for node in made:
            node.kill()
            shutil.rmtree(node.directory, ignore_errors=True)


@contextlib.contextmanager
def a_cluster(masters: int = 3, *extra: str) -> Generator[Cluster]:
    """Form a cluster of that many masters."""
    with nodes() as start:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--appendonly", "yes", "--appendfsync", "everysec")
        made = [start(*options, "--cluster-port", str(free_port()), *extra) for _ in range(masters)]
        for i, node in enumerate(made):
            node.ask("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // masters, SLOTS * (i + 1) // masters - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in made[1:]:
            bus = made[0].options[made[0].options.index("--cluster-port") + 1]
            node.ask("CLUSTER", "MEET", "127.0.0.1", made[0].port, bus)
        cluster = Cluster(made)
        eventually(cluster.settled, "the cluster to form")
        yield cluster


@contextlib.contextmanager
def a_pair(*, sentinel: bool = False, down_after_ms: int = 500) -> Generator[Pair]:
    """Start a primary and a replica of it, and a Sentinel that watches them."""
    with nodes() as start:
        primary = start("--appendonly", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        replica = start("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0", "--appendonly", "yes")
        pair = Pair(primary, replica)
        eventually(pair.in_step, "the replica to follow")
        if sentinel:
            conf = Path(tempfile.mkdtemp(prefix="ty-", dir=primary.directory)) / "sentinel.conf"
            conf.write_text(
                f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 1\n"
                f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}\n"
                f"sentinel failover-timeout {SERVICE} 3000\n"
            )
            pair.sentinel = start(kind=(str(conf), "--sentinel"))
            eventually(
                lambda: _text(pair.sentinel and pair.sentinel.ask("SENTINEL", "REPLICAS", SERVICE)), "the Sentinel to find the replica"
            )
        yield pair


def _text(raw: Any) -> str:
    if isinstance(raw, dict):
        return "\n".join(f"{_text(k)}:{_text(v)}" for k, v in cast("dict[Any, Any]", raw).items())
    if isinstance(raw, list):
        return "\n".join(map(_text, cast("list[Any]", raw)))
    return raw.decode() if isinstance(raw, bytes) else str(raw or "")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster of three masters, which may hold what other tests left."""
    with a_cluster() as made:
        yield made


@pytest.fixture
def clean_cluster(cluster: Cluster) -> str:
    """The URL of the cluster, flushed before the test."""
    cluster.flush()
    return cluster.url
