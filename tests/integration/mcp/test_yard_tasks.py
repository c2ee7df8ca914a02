"""Do calls that a server runs as tasks come to their ends on real processes, with no worker busy meanwhile, whoever dies?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from platforms.relays import run_relays
from tests.integration.conversation import TENANT, Talk, talk
from tests.integration.mcp.places import Place, http_server
from tests.integration.mcp.test_tasks import FASTMCP, PEER, TASKS
from tests.integration.mcp.yard_app import write_app
from tests.peers import peer_python
from tests.processes import Role, Roles, free_port, roles
from tests.servers import clean, plain_url, redis_client, redis_url
from turnyard.clock import SystemClock
from turnyard.records.log import RESULT
from turnyard.state import ingress
from turnyard.testing import wait_until

__all__ = ["clean", "plain_url", "redis_client", "redis_url", "roles", "talk"]


@pytest.fixture
async def relays(talk: Talk, plain_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Relays for the length of a test, and a server that carries what they relay."""
    monkeypatch.setenv("TURNYARD__REDIS__LIFTED_URL", plain_url)
    drain = asyncio.Event()
    task = asyncio.create_task(run_relays(talk.yard, drain, clock=SystemClock(), lifted_url=plain_url))
    yield
    drain.set()
    await task


async def outcomes(talk: Talk) -> list[tuple[str | None, Any]]:
    """What came of the calls of the session, in order."""
    return [(r.outcome, r.body.get("content") or r.body.get("note")) for r in await talk.log("s1") if r.type == RESULT]


def start(clean: str, roles: Roles, app: Path) -> tuple[Role, Role]:
    """Start a dispatcher, a worker and a lifted worker; return the two workers."""
    roles.dispatcher(clean)
    return roles.worker(clean, app, "--processes", "1"), roles.worker(clean, app, "--processes", "1", role="lifted")


def comes_to(place: Place, **state: Any) -> None:
    """Let the task be in this state from now on."""
    fresh = place.directory / "render.new"
    fresh.write_text(json.dumps(state))
    fresh.rename(place.directory / "render.json")


RENDERED = {"status": "completed", "result": {"content": [{"type": "text", "text": "rendered"}]}}


@pytest.mark.usefixtures("relays")
async def test_a_task_is_looked_after_without_any_worker_of_turns_and_its_result_comes_once(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path
) -> None:
    with http_server(place, TASKS) as url:
        app = write_app(tmp_path, "left", (url, {"prefix": "crm"}))
        turns, _ = start(clean, roles, app)
        job = await talk.say("s1", "call crm_render scene", agent="left", complete_when="settled")
        await wait_until(lambda: place.said(get="render-1") != [], description="the task to be asked about", timeout_s=30)
        await wait_until(talk.quiet, description="no worker to be busy")
        assert (await talk.job(job)).state == "waiting"
        turns.kill_all()
        seen = len(place.said(get="render-1"))
        await wait_until(lambda: len(place.said(get="render-1")) > seen, description="the task to be asked about again")
        comes_to(place, **RENDERED)
        roles.worker(clean, app, "--processes", "1")
        assert (await talk.done(job)).state == "succeeded"
        assert await outcomes(talk) == [("placeholder", "crm works on render; its result comes later."), ("result", "rendered")]
        assert len(place.said(call="render")) == 1


@pytest.mark.usefixtures("relays")
async def test_a_turn_that_is_to_wait_for_a_task_waits_without_a_worker_and_reads_how_it_failed(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path
) -> None:
    with http_server(place, TASKS) as url:
        start(clean, roles, write_app(tmp_path, "left", (url, {"prefix": "crm", "wait": True})))
        job = await talk.say("s1", "call crm_render scene", agent="left")
        await wait_until(lambda: place.said(get="render-1") != [], description="the task to be asked about", timeout_s=30)
        await wait_until(talk.quiet, description="no worker to be busy")
        assert await talk.state("s1") == "parked"
        comes_to(place, status="failed", error={"code": -1, "message": "out of ink"})
        done = await talk.done(job)
        assert done.output is not None
        assert "out of ink" in done.output["text"]


@pytest.mark.usefixtures("relays")
async def test_a_lifted_worker_that_is_killed_while_it_asks_takes_nothing_along(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path
) -> None:
    (place.directory / "slow").touch()
    with http_server(place, TASKS) as url:
        app = write_app(tmp_path, "left", (url, {"prefix": "crm"}))
        _, lifted = start(clean, roles, app)
        job = await talk.say("s1", "call crm_render scene", agent="left", complete_when="settled")
        await wait_until(lambda: place.said(asked="render-1") != [], description="the task to be asked about", timeout_s=30)
        lifted.kill_all()
        comes_to(place, **RENDERED)
        (place.directory / "slow").unlink()
        roles.worker(clean, app, "--processes", "1", role="lifted")
        assert (await talk.done(job)).state == "succeeded"
        assert [content for outcome, content in await outcomes(talk) if outcome == "result"] == ["rendered"]
        assert len(place.said(call="render")) == 1


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("relays")
async def test_a_task_of_fastmcp_comes_back_as_news(talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path) -> None:
    with http_server(place, FASTMCP, python=peer_python(*PEER)) as url:
        start(clean, roles, write_app(tmp_path, "left", (url, {"prefix": "peer"})))
        job = await talk.say("s1", "call peer_render scene", agent="left", complete_when="settled")

        async def parked() -> bool:
            return (await talk.job(job)).state == "waiting"

        await wait_until(parked, description="the call to be parked", timeout_s=30)
        (place.directory / "go").touch()
        assert (await talk.done(job)).state == "succeeded"
        assert ("result", "rendered scene") in await outcomes(talk)


@pytest.mark.usefixtures("relays")
async def test_a_call_that_is_cancelled_while_nobody_asks_has_its_task_stopped(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path
) -> None:
    with http_server(place, TASKS, env={"POLL_MS": "300000"}) as url:
        start(clean, roles, write_app(tmp_path, "left", (url, {"prefix": "crm", "wait": True})))
        job = await talk.say("s1", "call crm_render scene", agent="left")

        async def parked() -> bool:
            return await talk.state("s1") == "parked"

        await wait_until(parked, description="the call to be parked", timeout_s=30)
        assert place.said(get="render-1") == [], "nobody asks for five minutes"
        assert (await ingress.cancel_job(talk.yard, job, tenant=TENANT)).code == "accepted"
        assert (await talk.done(job)).state == "cancelled"
        await wait_until(lambda: place.said(cancel="render-1") != [], description="the task to be stopped")
        assert [outcome for outcome, _ in await outcomes(talk)] == ["cancelled"]


@pytest.mark.usefixtures("relays")
async def test_a_server_that_is_away_when_a_lifted_worker_starts_is_asked_once_it_is_back(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path
) -> None:
    port = free_port()
    with http_server(place, TASKS, port=port) as url:
        app = write_app(tmp_path, "left", (url, {"prefix": "crm"}))
        roles.dispatcher(clean)
        roles.worker(clean, app, "--processes", "1")
        job = await talk.say("s1", "call crm_render scene", agent="left", complete_when="settled")

        async def parked() -> bool:
            return (await talk.job(job)).state == "waiting"

        await wait_until(parked, description="the call to be parked", timeout_s=30)
    lifted = roles.worker(clean, app, "--processes", "1", role="lifted")
    await wait_until(lambda: lifted.events("lifted call begun") != [], description="the task to be asked about, in vain", timeout_s=30)
    comes_to(place, **RENDERED)
    with http_server(place, TASKS, port=port):
        assert (await talk.done(job)).state == "succeeded"
    assert [content for outcome, content in await outcomes(talk) if outcome == "result"] == ["rendered"]
