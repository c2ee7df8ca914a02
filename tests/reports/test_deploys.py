"""Processes that are killed, stopped and started anew: what was accepted is answered, by whoever is there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from redis import exceptions as rx

from tests.integration.conversation import Talk, check_log
from tests.integration.http.conftest import door
from tests.integration.sample_app import SampleApp
from tests.processes import Role, Roles
from tests.servers import private_server
from turnyard.errors import StoreUnavailable
from turnyard.records.ids import new_owner_id
from turnyard.records.log import RESULT
from turnyard.state.yard import Yard
from turnyard.testing import wait_until

pytestmark = [pytest.mark.xdist_group("town"), pytest.mark.timeout(180)]


@dataclass
class Town:
    """A server that keeps its data on disk, and one process of each role that may be killed and started again."""

    redis: str
    roles: Roles
    app: SampleApp
    door: Role
    url: str
    dispatcher: Role
    worker: Role

    def start_door(self) -> None:
        """Open the door again, at the same address."""
        port = self.url.rpartition(":")[2]
        self.door = self.roles.start("platforms", "http", "--port", port, "--redis", self.redis)

    def start_dispatcher(self) -> None:
        self.dispatcher = self.roles.dispatcher(self.redis)

    def start_worker(self) -> None:
        self.worker = self.roles.worker(self.redis, self.app.path, "--processes", "1")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    directory: Path = tmp_path_factory.mktemp("town")
    roles, app = Roles(directory), SampleApp(directory)
    with private_server("--appendonly", "yes") as redis:
        opened, url = door(roles, redis)
        yield Town(redis, roles, app, opened, url, roles.dispatcher(redis), roles.worker(redis, app.path, "--processes", "1"))
        roles.end()


@pytest.fixture
async def talk(town: Town) -> AsyncIterator[Talk]:
    yard = await Yard.open(town.redis)
    talk = Talk(yard)
    await talk.enrolled(1)
    yield talk
    await yard.aclose()


async def post(town: Town, session: str, text: str) -> str:
    """Send a message as a client does that must not lose it: again, under its key, until the door has said yes."""
    key, jobs = secrets.token_hex(8), list[str]()

    async def accepted() -> bool:
        with contextlib.suppress(httpx.TransportError):
            body = {"agent": "hello", "input": text, "session": session}
            answer = await http.post("/v1/jobs", json=body, headers={"idempotency-key": key})
            if answer.status_code in (200, 202):
                jobs.append(answer.json()["id"])
        return bool(jobs)

    async with httpx.AsyncClient(base_url=town.url, timeout=10) as http:
        await wait_until(accepted, description="a message to be accepted", timeout_s=60)
    return jobs[0]


async def ended(talk: Talk, job: str) -> str:
    """Wait for a job's end, whether the server is there or not."""

    async def over() -> bool:
        with contextlib.suppress(StoreUnavailable):
            return (await talk.job(job)).done
        return False

    await wait_until(over, description="the job to end", timeout_s=60)
    return (await talk.job(job)).state


@pytest.mark.spec("I3")
@pytest.mark.parametrize("victim", ["door", "dispatcher", "worker", "server", "server that syncs always"])
async def test_what_was_accepted_survives_the_crash_of_any_one_process_right_after(town: Town, talk: Talk, victim: str) -> None:
    if victim.startswith("server"):
        await talk.yard.redis.config_set("appendfsync", "always" if victim.endswith("always") else "everysec")
    for n in range(2):
        job = await post(town, f"{victim}{n}", "add 1 1")
        if victim.startswith("server"):
            with contextlib.suppress(rx.RedisError, OSError):
                await talk.yard.redis.execute_command("DEBUG", "CRASH-AND-RECOVER", "0")
        else:
            getattr(town, victim).kill_all()
            getattr(town, f"start_{victim}")()
        assert await ended(talk, job) == "succeeded"
        # A call that ran when its worker died is not run again; all else is answered in full.
        check_log(await talk.log(f"{victim}{n}"))
        assert (await talk.story(f"{victim}{n}"))[0] == "user: add 1 1"


@pytest.mark.spec("I3")
@pytest.mark.parametrize("setting", [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")], ids=["full", "without its replica"])
async def test_a_store_that_cannot_write_is_answered_with_503_and_holds_nothing(
    town: Town, talk: Talk, setting: tuple[str, str, str]
) -> None:
    name, broken, well = setting
    session = f"refused {name}"
    body = {"agent": "hello", "input": "hi", "session": session}
    async with httpx.AsyncClient(base_url=town.url, timeout=30) as http:
        await wait_until(lambda: _open(http), description="the door to be open", timeout_s=30)
        await talk.yard.redis.config_set(name, broken)
        try:
            refused = await http.post("/v1/jobs", json=body)
        finally:
            await talk.yard.redis.config_set(name, well)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert await talk.state(session) == "none"
    assert await ended(talk, await post(town, session, "hi")) == "succeeded"
    assert await talk.story(session) == ["user: hi", "assistant: hello"]


async def _open(http: httpx.AsyncClient) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return (await http.get("/readyz")).status_code == 200
    return False


@pytest.mark.spec("L37", "rival-35")
async def test_messages_that_arrive_while_door_and_worker_are_restarted_are_all_answered(town: Town, talk: Talk) -> None:
    before = {worker.worker for worker in await talk.workers()}
    ran = len(town.app.ran("again"))
    # The worker that is told to stop holds the session then, in the middle of a call.
    held = await post(town, "deploy", "again deploy_gate")
    await wait_until(lambda: len(town.app.ran("again")) > ran, description="the tool to run", timeout_s=30)
    posting = [asyncio.create_task(post(town, "deploy", f"add {i} 1")) for i in range(5)]
    leaving = town.worker
    for role in (town.door, leaving):
        role.process.send_signal(signal.SIGTERM)
    posting += [asyncio.create_task(post(town, "deploy", f"add {i} 1")) for i in range(5, 10)]
    await asyncio.to_thread(town.door.process.wait, 30)
    town.start_door()
    town.start_worker()
    town.app.open("deploy_gate")
    jobs = [held, *[await each for each in posting]]
    assert [await ended(talk, job) for job in jobs] == ["succeeded"] * 11
    story = await talk.story("deploy")
    assert sorted(line for line in story if line.startswith("user")) == sorted(
        ["user: again deploy_gate", *(f"user: add {i} 1" for i in range(10))]
    )
    check_log(await talk.log("deploy"))
    assert await asyncio.to_thread(leaving.process.wait, 30) == 0
    await talk.enrolled(1)
    # The new one is somebody else, although it has the same host, and serves the same agents.
    assert before.isdisjoint(worker.worker for worker in await talk.workers())
    assert len({new_owner_id() for _ in range(1000)}) == 1000


@pytest.mark.spec("L11", "rival-2", "I16")
async def test_after_everything_was_killed_in_mid_turn_old_turns_go_on_or_fail_and_new_ones_start(town: Town, talk: Talk) -> None:
    again, once = await post(town, "again", "again town_gate"), await post(town, "once", "once town_gate")
    ran = town.app.ran
    await wait_until(lambda: ran("again") != [] and ran("once") != [], description="both tools to run", timeout_s=30)
    waiting = await post(town, "again", "add 5 5")
    for role in (town.door, town.dispatcher, town.worker):
        role.kill_all()
    town.app.open("town_gate")
    town.start_door()
    town.start_dispatcher()
    town.start_worker()
    new = await post(town, "new", "add 1 1")
    assert [await ended(talk, job) for job in (again, once, waiting, new)] == ["succeeded"] * 4
    # What may run again does so for each worker it loses; what may not has run its only time.
    assert len(ran("again")) >= 2
    assert len(ran("once")) == 1
    assert [r.outcome for r in await talk.log("once") if r.type == RESULT] == ["unknown"]
    for session in ("again", "once", "new"):
        check_log(await talk.log(session))
    await wait_until(talk.quiet, description="no ghost to hold anything", timeout_s=30)


@pytest.mark.spec("L07")
async def test_a_worker_whose_lease_is_no_longer_renewed_takes_nothing_and_does_not_look_well(town: Town, talk: Talk) -> None:
    """Its supervisor stands still, its child is well and connected; the dispatcher is gone, so that nobody expels it."""
    town.worker.kill_all()
    await talk.enrolled(0)
    frozen = town.roles.worker(town.redis, town.app.path, "--processes", "1", health=True)
    await talk.enrolled(1)
    await wait_until(lambda: frozen.answers("/readyz") == 200, description="it to be well", timeout_s=30)
    [child] = [worker.pid for worker in await talk.workers()]
    assert await ended(talk, await post(town, "renewed", "add 7 7")) == "succeeded"
    assert town.app.ran("add")[-1] == child
    town.dispatcher.kill_all()
    os.kill(frozen.process.pid, signal.SIGSTOP)
    await wait_until(lambda: _idle(talk), description="the child to stop asking for work", timeout_s=30)
    before = len(town.app.ran("add"))
    job = await post(town, "unrenewed", "add 7 7")
    town.start_dispatcher()
    town.start_worker()
    assert await ended(talk, job) == "succeeded"
    ran = town.app.ran("add")[before:]
    assert len(ran) == 1
    assert ran != [child]
    with socket.create_connection(("127.0.0.1", frozen.events("health")[0]["port"]), timeout=0.5) as probe:
        probe.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        with pytest.raises(TimeoutError):
            probe.recv(1)
    os.kill(frozen.process.pid, signal.SIGCONT)
    await talk.enrolled(2)
    await wait_until(lambda: frozen.answers("/readyz") == 200, description="it to be well again", timeout_s=30)
    frozen.kill_all()
    await talk.enrolled(1)


async def _idle(talk: Talk) -> bool:
    """Tell whether nobody has asked for an assignment lately: one who takes asks at least once a second."""
    readers = [client for client in await talk.yard.redis.client_list() if client["cmd"] == "blmpop"]
    return readers != [] and all("b" not in reader["flags"] and int(reader["idle"]) >= 2 for reader in readers)
