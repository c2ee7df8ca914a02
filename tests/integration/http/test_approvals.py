"""The example on approvals, as its user sees it: a whole yard of processes, decided over HTTP, by clients and at the command line."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from tests.integration.http.conftest import door
from tests.processes import ROOT, Roles
from tests.servers import private_server
from turnyard.client import Approval, Client, JobHandle, RedisClient
from turnyard.errors import AlreadyDecided, InvalidInput, NotApprover, NotFound
from turnyard.lifecycle import FORBIDDEN, NOT_FOUND, OK, REFUSED, USAGE
from turnyard.testing import wait_until

EXAMPLE = ROOT / "examples" / "approvals.py"
CONFIG = """
approvals:
  - {tools: ["close*"], approvers: ["boss"], expires_in: 10m}
"""


@dataclass
class Yard:
    """Where everything is."""

    redis: str
    url: str
    roles: Roles


@pytest.fixture(scope="module")
def yard(module_roles: Roles) -> Iterator[Yard]:
    with private_server() as redis:
        _, url = door(module_roles, redis)
        module_roles.dispatcher(redis)
        config = module_roles.directory / "turnyard.yaml"
        config.write_text(CONFIG)
        module_roles.worker(redis, EXAMPLE, "--processes", "1", "--config", str(config))
        yield Yard(redis, url, module_roles)
        module_roles.end()


@pytest.fixture
async def client(yard: Yard) -> AsyncIterator[Client]:
    async with Client(yard.url) as client:

        async def published() -> bool:
            return any(agent["name"] == "desk" for agent in await client.agents())

        await wait_until(published, description="the agent to be published", timeout_s=30)
        yield client


def fresh() -> str:
    return f"s-{secrets.token_hex(4)}"


async def asked(client: Client, text: str = "refund order 7, 120 dollars") -> tuple[JobHandle, Approval]:
    """Ask for what needs approval; the job and what it waits for."""
    session = fresh()
    job = await client.submit("desk", text, session=session, user="joe")

    async def waiting() -> bool:
        return (await client.job(job.id)).data["state"] == "waiting"

    await wait_until(waiting, description="the job to wait", timeout_s=30)
    (approval,) = await client.approvals.list(session=session)
    return job, approval


async def cli(yard: Yard, *words: str, code: int = OK) -> str:
    """Type a command; return what it wrote."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TURNYARD", "REDIS"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnyard.cli", *words, "--url", yard.url),
        env=env | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == code, (words, out, err)
    return out.decode()


@pytest.mark.spec("S17", "rival-20", "rival-21")
async def test_an_approved_call_runs_and_until_then_nobody_says_it_was_refused(client: Client, yard: Yard) -> None:
    job, approval = await asked(client)
    assert (approval.state, approval.tool, approval.args) == ("pending", "refund", {"order": "7", "amount": 120})
    assert (approval.user, approval.reason, approval.remember) == ("joe", "120 is over 100", "session")
    (waiting,) = (await client.job(job.id)).data["waiting_for"]
    assert (waiting["kind"], waiting["wait"], waiting["approval"]["id"]) == ("approval", True, approval.id)
    assert [w for w in await client.workers() if w["running"]] == []
    why = await client.explain(job.session)
    assert (why["code"], approval.id in why["fix"]) == ("approval", True)
    entries = await client.entries(job.session)
    assert "tool/result" not in [entry["type"] for entry in entries]
    decided = await client.approvals.allow(approval.id, user="ann")
    assert decided.decided is not None
    assert (decided.state, decided.decided.by) == ("allowed", "ann")
    done = await job.result(timeout=30)
    assert done["text"] == "Here is what became of it: 120 dollars of order 7 are paid back, as it was approved."
    events = [event async for event in job.events()]
    states = [e.data["data"]["state"] for e in events if e.event == "job"]
    assert states[-1] == "succeeded"
    request = next(e.data["data"] for e in events if e.event == "permission/request")
    resolved = next(e.data["data"] for e in events if e.event == "permission/resolved")
    assert (request["kind"], request["self_approve"], request["remember"]) == ("allow_deny", False, "session")
    assert (request["id"], resolved["id"], resolved["allow"], resolved["by"]) == (approval.id, approval.id, True, "ann")


async def test_the_operator_s_rules_ask_whatever_the_tool_says(client: Client) -> None:
    job, approval = await asked(client, "close order 7")
    assert (approval.tool, approval.approvers, approval.self_approve, approval.remember) == ("close_order", ["boss"], False, None)
    with pytest.raises(NotApprover):
        await client.approvals.allow(approval.id, user="ann")
    await client.approvals.allow(approval.id, user="boss")
    assert "order 7 is closed" in (await job.result(timeout=30))["text"]


async def test_what_is_under_the_limit_asks_nobody(client: Client) -> None:
    answer = await client.run("desk", "refund order 7, 80 dollars", session=fresh())
    assert answer["text"] == "Here is what became of it: 80 dollars of order 7 are paid back."


@pytest.mark.spec("S17")
async def test_a_person_may_change_the_arguments_and_the_model_is_told(client: Client) -> None:
    job, approval = await asked(client)
    with pytest.raises(InvalidInput, match="/input/amount"):
        await client.approvals.allow(approval.id, user="ann", input={"order": "7", "amount": "eighty"})
    await client.approvals.allow(approval.id, user="ann", input={"order": "7", "amount": 80})
    assert "80 dollars of order 7 are paid back" in (await job.result(timeout=30))["text"]
    with pytest.raises(AlreadyDecided, match="ann"):
        await client.approvals.deny(approval.id, user="fin-bob")


async def test_a_denied_call_does_not_run_and_the_model_reads_why(client: Client, yard: Yard) -> None:
    job, approval = await asked(client)
    async with RedisClient(yard.redis) as direct:
        denied = await direct.approvals.deny(approval.id, user="fin-bob", reason="the order is under review")
    assert denied.state == "denied"
    text = (await job.result(timeout=30))["text"]
    assert "the order is under review" in text
    assert "paid back" not in text


async def test_what_is_allowed_for_the_session_is_not_asked_again_there_and_elsewhere_it_is(client: Client) -> None:
    job, approval = await asked(client)
    await client.approvals.allow(approval.id, user="ann", scope="session")
    await job.result(timeout=30)
    again = await client.run("desk", "refund order 8, 300 dollars", session=job.session)
    assert "300 dollars of order 8 are paid back" in again["text"]
    other, _ = await asked(client)
    await other.cancel()


@pytest.mark.spec("S17", "runner-14")
async def test_the_command_line_lists_and_decides_with_exit_codes_of_its_own(client: Client, yard: Yard) -> None:
    job, approval = await asked(client)
    _, other = await asked(client)
    rows = [json.loads(line) for line in (await cli(yard, "approvals", "list", "--json")).splitlines()]
    assert {row["id"] for row in rows} >= {approval.id, other.id}
    table = await cli(yard, "approvals", "list", "--session", job.session)
    assert approval.id in table
    assert "order='7', amount=120" in table
    allowed, denied, late, unknown, broken = await asyncio.gather(
        cli(yard, "approvals", "allow", approval.id, "--user", "ann", "--json"),
        cli(yard, "approvals", "deny", other.session, "--user", "ann", "--reason", "no"),
        cli(yard, "approvals", "show", approval.id),
        cli(yard, "approvals", "allow", "apr_nothing", "--user", "ann", code=NOT_FOUND),
        cli(yard, "approvals", "allow", approval.id, "--input", "[1]", code=USAGE),
    )
    assert json.loads(allowed)["decided"]["by"] == "ann"
    assert f"{other.id}  denied" in denied
    assert (unknown, broken) == ("", "")
    assert approval.id in late
    await cli(yard, "approvals", "deny", approval.id, "--user", "fin-bob", code=REFUSED)
    assert (await job.result(timeout=30))["text"].endswith("as it was approved.")


@pytest.mark.spec("S17", "runner-14")
async def test_who_asked_and_who_is_no_approver_may_not_decide(client: Client, yard: Yard) -> None:
    job, approval = await asked(client)
    assert (approval.approvers, approval.self_approve) == (["ann", "fin-*"], False)
    for user in ("joe", "eve", "fin"):
        with pytest.raises(NotApprover, match="ann, fin-"):
            await client.approvals.allow(approval.id, user=user)
    await cli(yard, "approvals", "allow", approval.id, "--user", "joe", code=FORBIDDEN)
    with pytest.raises(NotFound):
        await client.approvals.allow("apr_nothing", user="ann")
    assert (await client.approvals.get(approval.id)).state == "pending"
    await job.cancel()
