"""A yard on a Redis Cluster of three masters, sixteen shards, real processes: what dies is a worker, or a master."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from platforms.relays import run_relays
from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles, roles
from tests.servers import private_server
from tests.topologies import SHARDS, Cluster, a_cluster, eventually
from turnyard.clock import SystemClock
from turnyard.errors import StoreUnavailable
from turnyard.records.ids import session_key
from turnyard.state.audit import audit
from turnyard.state.jobs import JobWatch
from turnyard.state.yard import Yard
from turnyard.testing import wait_until

__all__ = ["roles"]

# Sixteen shards are sixteen times the ticks: slower ones, so that they are not all that a small machine does.
CALM = {
    "TURNYARD__TIMING__TICK_MS": "400",
    "TURNYARD__TIMING__BEAT_MS": "500",
    "TURNYARD__TIMING__LEASE_MS": "3000",
    "TURNYARD__TIMING__BEGIN_BY_MS": "3000",
}


@pytest.fixture
def app(tmp_path: Path) -> SampleApp:
    """The sample app in a directory of its own."""
    return SampleApp(tmp_path)


@pytest.fixture
def breakable() -> Iterator[Cluster]:
    """A cluster of this test's own."""
    with a_cluster() as cluster:
        yield cluster


@pytest.fixture
async def talk(breakable: Cluster) -> AsyncIterator[Talk]:
    """A tenant of a fresh yard on that cluster."""
    yard = await Yard.open(breakable.url, shards=SHARDS)
    yield Talk(yard)
    await yard.aclose()


@pytest.mark.timeout(180)
@pytest.mark.spec("rival-36")
async def test_sixteen_shards_go_on_when_a_worker_and_then_a_master_is_killed(
    talk: Talk, breakable: Cluster, roles: Roles, app: SampleApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with private_server() as plain:
        monkeypatch.setenv("TURNYARD__REDIS__LIFTED_URL", plain)
        drain = asyncio.Event()
        relays = asyncio.create_task(run_relays(talk.yard, drain, clock=SystemClock(), lifted_url=plain))
        roles.dispatcher(breakable.url, env=CALM)
        roles.worker(breakable.url, app.path, "--concurrency", "40", env=CALM)
        roles.worker(breakable.url, app.path, "--processes", "1", role="lifted", env=CALM)
        await talk.enrolled(2)
        await talk.enrolled(1, role="lifted")
        plain_jobs = [await talk.say(f"a{i}", "add 1 2") for i in range(24)]
        lifted = await talk.say("lifted", "render scene", complete_when="settled")
        async with asyncio.timeout(60):
            watch = await JobWatch.start(talk.yard)
            await asyncio.gather(*(watch.ended(job) for job in plain_jobs))
            await watch.aclose()
        assert len({talk.yard.shard_for(session_key(TENANT, f"a{i}")).n for i in range(24)}) > 10

        held = [await talk.say(f"b{i}", "again gate") for i in range(12)]
        await wait_until(lambda: len(app.ran("again")) == 12, description="all tools to run", timeout_s=30)
        os.kill(app.ran("again")[0], signal.SIGKILL)
        await wait_until(lambda: len(app.ran("again")) > 12, description="another worker to run the killed one's tools", timeout_s=30)

        node = breakable.nodes[1]
        node.kill()
        node.start()
        eventually(breakable.settled, "the cluster to be whole again")
        await wait_until(partial(_answers, talk), description="this client to have found all masters again")
        app.open("gate")
        app.open("scene")
        for job in [*held, lifted]:
            assert (await talk.done(job, timeout_s=60)).state == "succeeded"
        for name in [*(f"b{i}" for i in range(12)), "lifted"]:
            check_log(await talk.log(name))
        drain.set()
        await relays
        await wait_until(talk.quiet, description="all slots to be given back", timeout_s=30)
        assert [f for f in await audit(talk.yard, logs=100) if "dispatched" not in f.invariant] == []

        async def counted_once() -> bool:
            # Shards are read one after the other, so a part that moves meanwhile may be seen twice.
            return all(w.capacity <= 40 for w in await talk.workers() if w.role == "worker")

        await wait_until(counted_once, description="each child's capacity to be divided, not multiplied")


async def _answers(talk: Talk) -> bool:
    try:
        await talk.running()
        await talk.yard.ping()
    except (StoreUnavailable, RedisError, OSError):
        return False
    return True


@pytest.mark.timeout(120)
async def test_a_shard_that_moves_to_another_master_under_load_loses_nothing_and_is_found_there(
    talk: Talk, breakable: Cluster, roles: Roles, app: SampleApp
) -> None:
    node, other = breakable.nodes[0], breakable.nodes[2]
    if "MIGRATESLOTS" not in str(node.ask("CLUSTER", "HELP")):
        pytest.skip("this server moves slots key by key, which takes a shard apart")
    roles.dispatcher(breakable.url, env=CALM)
    roles.worker(breakable.url, app.path, "--processes", "1", env=CALM)
    await talk.enrolled(1)
    jobs = [await talk.say(f"m{i}", "add 1 2") for i in range(60)]
    slots = 16384 // 3 - 1
    node.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", 0, slots // 2, "NODE", other.ask("CLUSTER", "MYID").decode())
    jobs += [await talk.say(f"n{i}", "add 1 2") for i in range(60)]
    eventually(lambda: _moved(talk, breakable), "the slots to move")
    jobs += [await talk.say(f"o{i}", "add 1 2") for i in range(30)]
    for job in jobs:
        assert (await talk.done(job, timeout_s=60)).state == "succeeded"
    for i in range(30):
        check_log(await talk.log(f"m{i}"))


def _moved(talk: Talk, cluster: Cluster) -> bool:
    del talk
    return any(low == 0 and master[1] == cluster.nodes[2].port for low, _, master, *_ in cluster.nodes[2].ask("CLUSTER", "SLOTS"))
