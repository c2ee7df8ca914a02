"""Do agents on real workers see the tools of MCP servers come and go, and stay unharmed by what servers do?"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conversation import TENANT, Talk, talk
from tests.integration.mcp.places import Place, http_server
from tests.integration.mcp.yard_app import FAILING, write_app
from tests.processes import Roles, descendants, roles
from tests.servers import clean, redis_client, redis_url
from turnyard.records.approvals import Decision
from turnyard.records.log import NOTICE, RESULT
from turnyard.state import agents, approvals
from turnyard.testing import wait_until

__all__ = ["clean", "redis_client", "redis_url", "roles", "talk"]


SECRET = "sk-hidden-17"


async def told(talk: Talk, session: str, text: str, *, agent: str = "left") -> str:
    """Say something and return what the agent answers."""
    job = await talk.done(await talk.say(session, text, agent=agent))
    assert job.output is not None, job
    return str(job.output["text"])


async def results(talk: Talk, session: str) -> list[Any]:
    """What came of a session's calls."""
    return [r.body.get("content") for r in await talk.log(session) if r.type == RESULT]


def has_no_secret(*texts: str) -> bool:
    """Tell whether none of these shows the secret."""
    return all(SECRET not in text for text in texts)


@pytest.mark.spec("runner-37")
async def test_a_changed_list_is_seen_by_all_workers_and_a_broken_server_takes_nothing_from_the_others(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", SECRET)
    place.has("change", "get_old")
    with http_server(place) as url:
        crm = (url, {"prefix": "crm", "headers": True})
        own = (place.raw("old"), {"prefix": "own", "allow": ["get_*"], "env": place.env})
        roles.dispatcher(clean)
        left = roles.worker(clean, write_app(tmp_path, "left", crm, (FAILING, {"prefix": "bad"}), own), "--processes", "1")
        right = roles.worker(clean, write_app(tmp_path, "right", crm), "--processes", "1")
        await talk.enrolled(2)
        assert await told(talk, "s1", "tools") == "tools: crm_change crm_get_old own_get_old"
        assert await told(talk, "s2", "tools", agent="right") == "tools: crm_change crm_get_old"
        place.has("change", "get_new")
        assert await told(talk, "s1", "call crm_change") == "then: changed"
        for session, agent in (("s1", "left"), ("s2", "right")):

            async def renewed(session: str = session, agent: str = agent) -> bool:
                return "crm_change crm_get_new" in await told(talk, session, "tools", agent=agent)

            await wait_until(renewed, description=f"{agent} to see the new list")
            answer = await told(talk, session, "call crm_get_old too late", agent=agent)
            assert "there is no tool 'crm_get_old' any more" in answer
        assert place.said(tool="get_old") == []
        assert place.said(tool="change")[0]["headers"] == {"authorization": SECRET}
        manifests = await agents.read_agents(talk.yard)
        assert has_no_secret(left.log(), right.log(), repr(manifests), *map(repr, await talk.log("s1")))
        assert sorted(manifests["left"].providers) == ["bad", "crm", "own"]


@pytest.mark.spec("runner-37")
async def test_a_call_that_people_allowed_of_a_tool_that_went_meanwhile_says_so(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path
) -> None:
    place.has("change", "set_note", "set_other")
    roles.dispatcher(clean)
    app = write_app(tmp_path, "left", (place.raw("old"), {"prefix": "crm", "approval": ["set_*"], "env": place.env}))
    roles.worker(clean, app, "--processes", "1")
    jobs = [await talk.say(session, f"call crm_set_{session} hi", agent="left") for session in ("note", "other")]

    async def asked() -> bool:
        return len((await approvals.pending(talk.yard, TENANT)).items) == 2

    await wait_until(asked, description="both calls to wait for people")
    assert place.said(tool="set_note") == []
    place.has("change", "set_other")
    await told(talk, "s3", "call crm_change")
    for one in (await approvals.pending(talk.yard, TENANT)).items:
        assert one.tool.startswith("crm_set_")
        assert (await approvals.decide(talk.yard, TENANT, one.id, Decision("allow", "u2"))).code == "accepted"

    note, other = [(await talk.done(job)).output for job in jobs]
    assert note is not None
    assert "there is no tool 'crm_set_note' any more" in note["text"]
    assert other is not None
    assert other["text"] == "then: set_other: hi"
    assert (len(place.said(tool="set_note")), len(place.said(tool="set_other"))) == (0, 1)


async def test_what_a_server_says_by_itself_is_read_at_the_next_step_by_sessions_that_called_it_and_by_no_other(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path
) -> None:
    place.has("alert", "echo")
    roles.dispatcher(clean)
    options = {"prefix": "crm", "notices": ["notifications/acme/alert"], "env": place.env}
    roles.worker(clean, write_app(tmp_path, "left", (place.raw("old"), options)), "--processes", "1")
    await told(talk, "s2", "tools")
    await told(talk, "s1", "call crm_alert disk 7 is full")

    async def news(session: str) -> list[tuple[Any, ...]]:
        await told(talk, session, "hello")
        return [(r.body["text"], r.body["group"], r.body["key"]) for r in await talk.log(session) if r.type == NOTICE]

    async def heard() -> bool:
        return await news("s1") != []

    await wait_until(heard, description="the news to be read")
    said = 'crm: notifications/acme/alert {"what":"disk 7 is full"}'
    assert await news("s1") == [(said, "mcp:crm", "notifications/acme/alert")]
    assert await news("s2") == []


async def test_a_worker_that_is_killed_takes_the_servers_along_that_it_started(
    talk: Talk, clean: str, roles: Roles, place: Place, tmp_path: Path
) -> None:
    roles.dispatcher(clean)
    worker = roles.worker(clean, write_app(tmp_path, "left", (place.raw("deaf"), {"prefix": "crm", "env": place.env})), "--processes", "1")
    await told(talk, "s1", "call crm_echo hi")
    (pid,) = {line["pid"] for line in place.said(tool="echo")}
    (owner,) = [child for child in worker.children() if pid in descendants(child)]
    os.kill(owner, signal.SIGKILL)
    await wait_until(lambda: not Path(f"/proc/{pid}").exists(), description="the server to end")
    assert await told(talk, "s1", "call crm_echo again") == "then: echo: again"
