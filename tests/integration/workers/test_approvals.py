"""Calls that wait for people, on real workers: whoever dies meanwhile, one decision counts, and what was shown is what runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from platforms.relays import run_relays
from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.workers.approval_app import ApprovalApp
from tests.processes import Role, Roles
from turnyard.clock import SystemClock
from turnyard.engine.approving import REQUESTED, args_hash
from turnyard.records.approvals import Approval, Decision
from turnyard.records.log import CALL, DECIDED, RESULT, USER, LogRecord
from turnyard.state import approvals
from turnyard.testing import wait_until


@pytest.fixture
def app(tmp_path: Path) -> ApprovalApp:
    return ApprovalApp(tmp_path)


def worker(roles: Roles, url: str, app: ApprovalApp, *args: str, **more: Any) -> Role:
    return roles.worker(url, app.path, "--config", str(app.config), *args, **more)


async def ask(talk: Talk, session: str, *calls: tuple[str, dict[str, Any]], agent: str = "desk") -> str:
    """Tell the model which calls to make; return the job."""
    return await talk.say(session, json.dumps(calls), agent=agent)


async def asked(talk: Talk, count: int) -> list[Approval]:
    """What waits for people, once it is that many, oldest first."""
    found: list[Approval] = []

    async def there() -> bool:
        found[:] = (await approvals.pending(talk.yard, TENANT)).items
        return len(found) == count

    await wait_until(there, description=f"{count} approvals to wait", timeout_s=30)
    return found


async def decide(talk: Talk, approval: Approval, decision: Any = "allow", *, by: str = "boss", **more: Any) -> str:
    return (await approvals.decide(talk.yard, TENANT, approval.id, Decision(decision, by, **more))).code


def results(records: list[LogRecord]) -> list[tuple[str | None, Any]]:
    return [(r.outcome, r.body.get("content")) for r in records if r.type == RESULT]


@asynccontextmanager
async def lifting(talk: Talk, url: str, roles: Roles, app: ApprovalApp) -> AsyncGenerator[None]:
    """Relays in this process, and a worker of lifted calls."""
    drain = asyncio.Event()
    relays = asyncio.create_task(run_relays(talk.yard, drain, clock=SystemClock(), lifted_url=url))
    worker(roles, url, app, "--processes", "1", role="lifted")
    yield
    drain.set()
    await relays


@pytest.mark.spec("runner-11", "S17")
async def test_a_call_whose_worker_died_is_approved_by_one_who_may_and_runs_once_elsewhere(
    talk: Talk, clean: str, roles: Roles, app: ApprovalApp
) -> None:
    roles.dispatcher(clean)
    first = worker(roles, clean, app, "--processes", "1")
    job = await ask(talk, "s1", ("refund", {"order": "o1", "amount": 250}))
    [approval] = await asked(talk, 1)
    await wait_until(talk.quiet, description="the turn to hold no slot")
    first.kill_all()
    assert (approval.tool, approval.args, approval.reason) == ("refund", {"order": "o1", "amount": 250}, "a large sum")
    assert await decide(talk, approval, by="u2") == "not_approver"
    assert [await decide(talk, approval), await decide(talk, approval), await decide(talk, approval, "deny")] == [
        "accepted",
        "duplicate",
        "conflict",
    ]
    worker(roles, clean, app, "--processes", "1")
    assert (await talk.done(job)).state == "succeeded"
    assert app.ran() == ['"refund", "o1", 250.0, true']
    records = await talk.log("s1")
    check_log(records)
    assert [r.type for r in records if r.type in (REQUESTED, DECIDED)] == [REQUESTED, DECIDED]
    [asks] = [r.body for r in records if r.type == REQUESTED]
    [made] = [r.body for r in records if r.type == CALL]
    assert args_hash(asks["args"]) == args_hash(made["args"]) == args_hash(approval.args)
    [result] = [r.body for r in records if r.type == RESULT]
    assert (result["audit"]["approved_by"], result["audit"]["edited"]) == ("boss", False)


@pytest.mark.spec("runner-12", "L32")
async def test_a_question_that_nobody_answers_ends_in_time_without_any_worker(
    talk: Talk, clean: str, roles: Roles, app: ApprovalApp
) -> None:
    roles.dispatcher(clean)
    first = worker(roles, clean, app, "--processes", "1")
    job = await ask(talk, "s1", ("vip", {"name": "Ann"}), agent="hasty")
    [approval] = await asked(talk, 1)
    first.kill_all()
    assert await asked(talk, 0) == []
    assert await decide(talk, approval) == "expired"
    worker(roles, clean, app, "--processes", "1")
    ended = await talk.done(job)
    assert (ended.state, app.ran()) == ("succeeded", [])
    records = await talk.log("s1")
    assert [outcome for outcome, _ in results(records)] == ["timeout"]
    assert (ended.output or {})["text"].startswith("Not executed: nobody decided")
    again = await talk.say("s1", "hello", agent="hasty")
    assert ((await talk.done(again)).output or {})["text"] == "heard hello"
    check_log(await talk.log("s1"))


@pytest.mark.spec("runner-34", "rival-22", "runner-15")
async def test_denials_edits_grants_and_several_at_once_in_reverse(talk: Talk, clean: str, roles: Roles, app: ApprovalApp) -> None:
    roles.dispatcher(clean)
    worker(roles, clean, app, "--processes", "1")
    async with lifting(talk, clean, roles, app):
        # a denial of a rule is answered at once; nobody is asked, and what is beside it runs
        job = await ask(talk, "rules", ("refund", {"order": "o13", "amount": 500}), ("refund", {"order": "o2", "amount": 5}))
        assert ((await talk.done(job)).output or {})["text"] == "o13 is frozen | refunded 5 of o2"
        # people deny, edit so that it may not run, and edit so that it may
        made = [("refund", {"order": f"o{i}", "amount": 200 + i}) for i in range(3)]
        job = await ask(talk, "several", *made)
        first, second, third = sorted(await asked(talk, 3), key=lambda one: one.args["order"])
        assert await decide(talk, third, input={"order": "o2", "amount": 150}) == "accepted"
        assert await decide(talk, second, input={"order": "o13", "amount": 150}) == "accepted"
        assert await decide(talk, first, "deny", reason="no receipt") == "accepted"
        text = str(((await talk.done(job)).output or {})["text"])
        denied, frozen, edited = text.split(" | ")
        assert denied.endswith("The reason given: no receipt")
        assert frozen.endswith("o13 is frozen")
        assert edited == '[approved with other arguments: {"order":"o2","amount":150}]\nrefunded 150 of o2'
        # a lifted call runs with what was approved, and a grant lasts for the session
        job = await ask(talk, "lifts", ("buy", {"part": "a"}))
        [approval] = await asked(talk, 1)
        assert await decide(talk, approval, scope="session", input={"part": "b"}) == "accepted"
        await talk.done(job)
        await talk.done(await ask(talk, "lifts", ("buy", {"part": "c"})))
        # so does another agent
        job = await ask(talk, "parent", ("kid", {"input": "x"}))
        [approval] = await asked(talk, 1)
        assert await decide(talk, approval, input={"input": "y"}) == "accepted"
        assert ((await talk.done(job)).output or {})["text"] == "heard y"
        # the operator's rule and a body that asks; a newer message of the asker takes their place
        await ask(talk, "newer", ("wipe", {}), ("vip", {"name": "Ann"}))
        [approval] = await asked(talk, 1)
        assert (approval.tool, approval.approvers) == ("wipe", ("boss", "ops-*"))
        job = await talk.say("newer", "leave it", agent="desk")
        assert ((await talk.done(job)).output or {})["text"] == "heard leave it"
    assert app.ran() == [
        '"refund", "o2", 5.0, false',
        '"refund", "o2", 150.0, true',
        '"buy", "b", true',
        '"buy", "c", false',
    ]
    for session in ("rules", "several", "lifts", "parent", "newer"):
        check_log(await talk.log(session))
    told = [(r.type, r.outcome) for r in await talk.log("newer") if r.type in (RESULT, USER)]
    assert told == [(USER, None), (RESULT, "superseded"), (RESULT, "superseded"), (USER, None)]
