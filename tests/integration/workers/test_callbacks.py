"""Calls that a vendor answers: as soon as it likes, whoever is still alive by then."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.records.ids import read_call_token
from turnyard.records.log import RESULT
from turnyard.state import ingress
from turnyard.testing import wait_until


async def answer(talk: Talk, token: str, content: str) -> str:
    """Answer as the vendor that was given this token; return what the door says."""
    where = read_call_token(token)
    assert where is not None
    shard, store, call, hashed = where
    body = {"content": content, "is_error": False}
    said = await ingress.accept_outcome(talk.yard, shard=shard, store=store, call=call, outcome="result", body=body, secret_hash=hashed)
    return said.code


async def results(talk: Talk, session: str) -> list[tuple[str | None, str | None]]:
    """The results of a session's calls: outcome and content."""
    return [(r.outcome, r.body.get("content")) for r in await talk.log(session) if r.type == RESULT]


async def test_a_vendor_answers_a_parked_call_and_the_session_goes_on(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    app.open("gate")
    job = await talk.say("s1", "order gate", complete_when="settled")

    async def waiting() -> bool:
        return (await talk.job(job)).state == "waiting"

    await wait_until(waiting, description="the call to be parked")
    assert await answer(talk, app.token(), "part 1") == "accepted"
    assert (await talk.done(job)).state == "succeeded"
    assert ("result", "part 1") in await results(talk, "s1")
    check_log(await talk.log("s1"))


@pytest.mark.spec("trap-43")
async def test_a_vendor_that_answers_before_the_call_is_parked_is_heard(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    job = await talk.say("s1", "order gate", complete_when="settled")
    await wait_until(lambda: app.token() != "", description="the vendor to have the token")
    assert await answer(talk, app.token(), "part 1") == "accepted"
    app.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert ("result", "part 1") in await results(talk, "s1")
    check_log(await talk.log("s1"))


@pytest.mark.spec("trap-21")
async def test_a_vendor_is_heard_although_the_worker_died_before_the_call_was_parked(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "order gate", complete_when="settled")
    await wait_until(lambda: app.token() != "", description="the vendor to have the token")
    os.kill(app.ran("order")[0], signal.SIGKILL)

    async def waiting() -> bool:
        return (await talk.job(job)).state == "waiting"

    await wait_until(waiting, description="the call to be parked by another worker")
    assert await answer(talk, app.token(), "part 1") == "accepted"
    assert (await talk.done(job)).state == "succeeded"
    assert ("result", "part 1") in await results(talk, "s1")
    assert len(app.ran("order")) == 1
    check_log(await talk.log("s1"))
