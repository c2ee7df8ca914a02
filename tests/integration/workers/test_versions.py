"""Two versions of an agent at work: a turn never goes back to the older one, and goes on with the newer one if that can."""

from __future__ import annotations

from pathlib import Path

from tests.integration.conversation import TENANT, Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.records.log import CALL
from turnyard.state.explain import explain
from turnyard.testing import wait_until

REFUSES = """
from turnyard import AgentVersionGone

def only_mine(state, from_version):
    raise AgentVersionGone(f"version {from_version} kept its plan elsewhere: send the message again")
"""
RENAMES = """
from dataclasses import replace

def read(state, from_version):
    assert (from_version, state.turn != "") == ("one", True)
    entries = [replace(e, body={**e.body, "text": "again second"}) if e.type == "user/message" else e for e in state.entries]
    return replace(state, entries=tuple(entries))
"""


async def older_turn_moves_to(talk: Talk, url: str, roles: Roles, first: SampleApp, second: SampleApp) -> str:
    """A turn that version one began, whose worker is gone, with a worker of version two at hand."""
    roles.dispatcher(url)
    old = roles.worker(url, first.path)
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: len(first.ran("again")) == 1, description="the first version to run the tool")
    roles.worker(url, second.path)
    await talk.enrolled(4)
    old.kill_all()
    return job


async def test_a_newer_version_goes_on_with_a_turn(talk: Talk, clean: str, roles: Roles, tmp_path: Path) -> None:
    first, second = SampleApp(tmp_path / "one", options='version="one", '), SampleApp(tmp_path / "two", options='version="two", ')
    job = await older_turn_moves_to(talk, clean, roles, first, second)
    second.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert len(second.ran("again")) == 1
    check_log(await talk.log("s1"))


async def test_a_newer_version_reads_what_an_older_one_wrote_in_its_own_way(talk: Talk, clean: str, roles: Roles, tmp_path: Path) -> None:
    first = SampleApp(tmp_path / "one", options='version="one", ')
    second = SampleApp(tmp_path / "two", more=RENAMES, options='version="two", decode_state=read, ')
    job = await older_turn_moves_to(talk, clean, roles, first, second)
    second.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert await talk.story("s1") == [
        "user: again gate",
        "assistant: ",
        "call: again",
        "result: gate is open",
        "assistant: then: gate is open",
    ]


async def test_a_turn_that_the_newer_version_cannot_go_on_with_fails_and_says_so(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    first = SampleApp(tmp_path / "one", options='version="one", ')
    second = SampleApp(tmp_path / "two", more=REFUSES, options='version="two", decode_state=only_mine, ')
    job = await talk.done(await older_turn_moves_to(talk, clean, roles, first, second))
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["code"] == "agent_version_gone"
    assert job.error["message"] == "version one kept its plan elsewhere: send the message again"
    assert second.ran("again") == []
    check_log(await talk.log("s1"))
    after = await talk.done(await talk.say("s1", "add 1 2"))
    assert (after.state, after.output and after.output["text"]) == ("succeeded", "it is 3")


async def test_a_turn_never_goes_back_to_an_older_version_and_explain_says_what_it_waits_for(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    first, second = SampleApp(tmp_path / "one", options='version="one", '), SampleApp(tmp_path / "two", options='version="two", ')
    roles.dispatcher(clean)
    old = roles.worker(clean, first.path)
    await talk.enrolled(2)  # the first to be published is the older one
    old.kill_all()
    await talk.enrolled(0)
    new = roles.worker(clean, second.path)
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: len(second.ran("again")) == 1, description="the newer version to run the tool", timeout_s=30)
    roles.worker(clean, first.path)
    await talk.enrolled(4)
    new.kill_all()

    async def waits() -> bool:
        found = await explain(talk.yard, tenant=TENANT, session="s1")
        return found is not None and found.code == "only_older_version"

    await wait_until(waits, description="the turn to wait for its version")
    assert (await talk.done(await talk.say("s2", "hi"))).state == "succeeded"
    assert first.ran("again") == []
    second.open("gate")
    roles.worker(clean, second.path)
    assert (await talk.done(job)).state == "succeeded"
    assert [r.type for r in await talk.log("s1")].count(CALL) == 1
