"""Turns that kill what runs them: the poison is closed after a few deaths, no other turn is, and its session lives on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.records.log import NOTICE
from turnyard.testing import wait_until

# Each process that dies is started anew, which takes its time on a busy machine.
pytestmark = pytest.mark.timeout(180)


async def dead_letters(talk: Talk) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for shard in talk.yard.shards:
        for _, raw in await shard.redis.execute_command("XRANGE", shard.keys.prefix + "dead", "-", "+"):
            found.append({k.decode(): v.decode() for k, v in raw.items()})
    return found


async def is_closed_as_poison(talk: Talk, job: str, session: str, tool: str) -> None:
    """The job failed, a letter and a notice say why, and the next message is answered as always."""
    ended = await talk.done(job, timeout_s=120)
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


DEADLY = '''
import asyncio, os
from pathlib import Path
from turnyard import App
from turnyard.ports import Done

HERE = Path(__file__).parent

class Deadly:
    """A model whose client ends the process, while it waits for the answer, when it is asked for that."""

    async def stream(self, request):
        asked = [m["content"] for m in request.messages if m["role"] == "user"][-1]
        await asyncio.sleep(0.2)
        if "deadly" in asked:
            with (HERE / "asked").open("a") as file:
                file.write("x")
            os.kill(os.getpid(), 9)
        yield Done("fine")

    async def aclose(self):
        pass

app = App()
app.agent("hello", model=Deadly(), instructions="Be brief.")
'''


@pytest.mark.spec("trap-83", "I13")
async def test_a_turn_that_kills_its_process_while_it_waits_for_the_model_is_given_up_and_no_other_is(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    path = tmp_path / "deadly.py"
    path.write_text(DEADLY)
    roles.dispatcher(clean)
    roles.worker(clean, path, "--processes", "1")
    await talk.enrolled(1)
    job = await talk.say("bad", "be deadly")
    beside = [await talk.say(f"s{i}", "hello") for i in range(8)]
    ended = await talk.done(job, timeout_s=120)
    assert (ended.state, (ended.error or {})["code"]) == ("failed", "poisoned")
    assert 3 <= len((tmp_path / "asked").read_text()) <= 5
    for each in beside:
        assert (await talk.done(each)).state == "succeeded"
    assert (await talk.done(await talk.say("bad", "hello"))).state == "succeeded"
    check_log(await talk.log("bad"))


@pytest.mark.spec("trap-84")
async def test_a_turn_that_takes_its_whole_host_down_is_given_up_at_the_fifth_and_no_other_is(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    worker = roles.worker(clean, app.path, "--processes", "1")
    await talk.enrolled(1)
    beside = [await talk.say(f"s{i}", "nap 0.5") for i in range(3)]
    await wait_until(lambda: len(app.ran("nap")) == 3, description="the tools beside it to run")
    job = await talk.say("bad", "killhost")

    async def closed() -> bool:
        nonlocal worker
        if worker.process.poll() is not None:
            worker = roles.worker(clean, app.path, "--processes", "1")
        return (await talk.job(job)).done

    await wait_until(closed, description="the killer to be given up", timeout_s=120)
    await is_closed_as_poison(talk, job, "bad", "killhost")
    assert len(app.ran("killhost")) == 5
    for each in beside:
        assert (await talk.done(each)).state == "succeeded"
