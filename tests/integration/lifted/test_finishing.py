"""Calls whose tools look for their results, or read what vendors post: on lifted workers, however often it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.lifted.later_app import LaterApp, outcomes, results
from tests.processes import Role, Roles
from turnyard.records.ids import read_call_token
from turnyard.state import ingress
from turnyard.testing import wait_until

pytestmark = pytest.mark.usefixtures("relays")


@pytest.fixture
def lifted(clean: str, roles: Roles, later: LaterApp) -> Role:
    """A dispatcher, a worker and a lifted worker; the lifted worker."""
    roles.dispatcher(clean)
    roles.worker(clean, later.path, "--processes", "1")
    return roles.worker(clean, later.path, "--processes", "1", role="lifted")


async def post(talk: Talk, token: str, body: Any) -> str:
    """Post something to a callback URL, as a vendor does; return what the door says."""
    where = read_call_token(token)
    assert where is not None
    shard, store, call, hashed = where
    content = {"content": body if isinstance(body, str) else json.dumps(body), "is_error": False}
    said = await ingress.accept_outcome(talk.yard, shard=shard, store=store, call=call, outcome="raw", body=content, secret_hash=hashed)
    return said.code


async def token_of(later: LaterApp) -> str:
    await wait_until(lambda: later.token() != "", description="the vendor to have the token")
    return later.token()


# -- looking ----------------------------------------------------------------------------------------------------------


async def test_a_call_is_looked_after_until_its_result_is_there_and_no_slot_is_held(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    job = await talk.say("s1", "export thing", complete_when="settled")
    await wait_until(lambda: len(later.ran("look")) >= 2, description="the tool to look twice")
    assert await talk.running() == 0
    assert (await talk.job(job)).state == "waiting"
    later.open("thing")
    assert (await talk.done(job)).state == "succeeded"
    placeholder, (outcome, content) = await results(talk, "s1")
    assert (placeholder[0], outcome) == ("placeholder", "result")
    seen = json.loads(content or "")
    assert (seen["job"], seen["looks"], seen["agent"], seen["platform"], seen["expires"]) == ("thing", True, "hello", "http", True)
    assert seen["version"]
    assert len(later.ran("export")) == 1
    await wait_until(talk.quiet, description="nothing to be held")
    check_log(await talk.log("s1"))


async def test_a_turn_may_wait_for_what_is_looked_for_beside_other_calls(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    job = await talk.say("s1", "export wthing add two", complete_when="settled")
    await wait_until(lambda: later.ran("look") != [], description="the tool to look")
    assert await talk.state("s1") == "parked"
    later.open("wthing")
    assert (await talk.done(job)).state == "succeeded"
    assert sorted(await outcomes(talk, "s1")) == ["result", "result"]
    assert (len(later.ran("export")), len(later.ran("add"))) == (1, 1)
    check_log(await talk.log("s1"))


async def test_what_a_poller_calls_an_error_is_the_result(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    later.open("thing.lost")
    job = await talk.say("s1", "export thing", complete_when="settled")
    assert (await talk.done(job)).state == "succeeded"
    assert (await results(talk, "s1"))[-1] == ("error", "it is lost")


async def test_a_look_whose_worker_dies_is_made_again(talk: Talk, lifted: Role, later: LaterApp, clean: str, roles: Roles) -> None:
    job = await talk.say("s1", "export thing", complete_when="settled")
    await wait_until(lambda: later.ran("look") != [], description="the tool to look")
    lifted.kill_all()
    later.open("thing")
    roles.worker(clean, later.path, "--processes", "1", role="lifted")
    assert (await talk.done(job)).state == "succeeded"
    assert await outcomes(talk, "s1") == ["placeholder", "result"]
    assert len(later.ran("export")) == 1


async def test_a_cancelled_job_is_not_looked_after_any_more(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    job = await talk.say("s1", "export thing", complete_when="settled")
    await wait_until(lambda: later.ran("look") != [], description="the tool to look")
    await ingress.cancel_job(talk.yard, job, tenant=TENANT)
    assert (await talk.done(job)).state == "cancelled"
    await wait_until(talk.quiet, description="nothing to be held")


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_a_tool_reads_what_its_vendor_posts_until_that_is_the_result(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    job = await talk.say("s1", "order part", complete_when="settled")
    token = await token_of(later)
    assert await post(talk, token, {"state": "paid"}) == "accepted"
    assert await post(talk, token, {"state": "paid"}) in ("duplicate", "accepted")
    await wait_until(lambda: later.ran("read") != [], description="the first answer to be read")
    assert await post(talk, token, {"state": "sent", "part": "part 7"}) == "accepted"
    assert (await talk.done(job)).state == "succeeded"
    assert await results(talk, "s1") == [("placeholder", None), ("result", "part 7")]
    assert await post(talk, token, {"state": "sent", "part": "part 7"}) == "duplicate"
    assert await post(talk, token, {"state": "sent", "part": "part 8"}) == "conflict"
    check_log(await talk.log("s1"))


async def test_answers_that_come_before_the_call_is_parked_are_read_in_their_order(talk: Talk, lifted: Role, later: LaterApp) -> None:
    del lifted
    later.open("hold")
    job = await talk.say("s1", "order wpart", complete_when="settled")
    token = await token_of(later)
    assert await post(talk, token, {"state": "paid"}) == "accepted"
    assert await post(talk, token, {"state": "sent", "part": "part 7"}) == "accepted"
    later.open("go")
    assert (await talk.done(job)).state == "succeeded"
    assert await results(talk, "s1") == [("result", "part 7")]
    assert len(later.ran("read")) == 2


async def test_an_answer_that_cannot_be_read_is_passed_over_and_the_next_one_counts(talk: Talk, lifted: Role, later: LaterApp) -> None:
    job = await talk.say("s1", "order part", complete_when="settled")
    token = await token_of(later)
    assert await post(talk, token, {"state": "bad"}) == "accepted"
    await wait_until(lambda: len(later.ran("read")) == 3, description="the answer to be read three times", timeout_s=20)
    assert await post(talk, token, {"state": "sold out"}) == "accepted"
    assert (await talk.done(job)).state == "succeeded"
    assert (await results(talk, "s1"))[-1] == ("error", "sold out")
    assert "secret detail" not in json.dumps([r.body for r in await talk.log("s1")])
    assert "secret detail" in lifted.log()
