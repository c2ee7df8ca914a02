"""Turns that kill what runs them: the poison is closed after a few deaths, no other turn is, and its session lives on."""

from __future__ import annotations

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.records.log import NOTICE
from turnyard.testing import wait_until


async def dead_letters(talk: Talk) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for shard in talk.yard.shards:
        for _, raw in await shard.redis.execute_command("XRANGE", shard.keys.prefix + "dead", "-", "+"):
            found.append({k.decode(): v.decode() for k, v in raw.items()})
    return found


async def is_closed_as_poison(talk: Talk, job: str, session: str, tool: str) -> None:
    """The job failed, a letter and a notice say why, and the next message is answered as always."""
    ended = await talk.done(job, timeout_s=90)
    assert (ended.state, (ended.error or {})["code"]) == ("failed", "poisoned")
    letters = [letter for letter in await dead_letters(talk) if letter["id"] == session]
    assert [(letter["reason"], letter["tool"], letter["job"]) for letter in letters] == [("poisoned", tool, job)]
    notices = [record.body["text"] for record in await talk.log(session) if record.type == NOTICE]
    assert len(notices) == 1
    assert tool in notices[0]
    assert (await talk.done(await talk.say(session, "add 1 1"))).state == "succeeded"
    check_log(await talk.log(session))


@pytest.mark.spec("I13", "L43", "rival-50", "trap-15", "trap-82")
async def test_a_tool_that_kills_its_process_is_given_up_and_forty_turns_beside_it_finish(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path, "--processes", "1")
    await talk.enrolled(1)
    waiting = [await talk.say(f"wait{i}", "slowly") for i in range(32)]
    beside = [await talk.say(f"tool{i}", "nap 1") for i in range(8)]
    await wait_until(lambda: len(app.ran("nap")) == 8, description="the tools beside it to run")
    job = await talk.say("bad", "kill")
    await is_closed_as_poison(talk, job, "bad", "kill")
    assert 3 <= len(app.ran("kill")) <= 5
    for each in beside + waiting:
        assert (await talk.done(each)).state == "succeeded"
    await wait_until(talk.quiet, description="all slots to be free")
