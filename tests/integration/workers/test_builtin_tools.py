"""The tools that come along, on workers: a server tells a repeated attempt from a stale one, and waiting takes no worker."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.integration.conversation import TENANT, Talk, check_log
from tests.processes import Roles
from tests.unit.tools.http_server import Asked, response, running
from turnyard.fence import Claim, MemoryGate, read_claim
from turnyard.records.approvals import Decision
from turnyard.records.log import RESULT
from turnyard.state import approvals
from turnyard.testing import wait_until

APP = """
from pathlib import Path
from turnyard import App
from turnyard.outbound import Rules
from turnyard.testing import ScriptedModel, call
from turnyard.tools.builtin import ask_user, http_request, send_message, sleep

PORT = int((Path(__file__).parent / "port").read_text())
local = Rules(http=True, networks=("127.0.0.0/8",), ports=frozenset({PORT}))
pay = http_request(["127.0.0.1"], methods=["POST"], rules=local, idempotent=True, headers={"X-Worker": str(__import__("os").getpid())})
app = App()
app.agent("pays", model=ScriptedModel([[call("http_request", method="POST", url=f"http://127.0.0.1:{PORT}/pay", body={"n": 1})], "paid"]), tools=[pay])
talking = [[call("send_message", text="one moment")], [call("sleep", seconds=0.2)], [call("ask_user", prompt="Which?", options=["red", "blue"], default="2")], "blue it is"]
app.agent("hello", model=ScriptedModel(talking), tools=[send_message, sleep, ask_user])
"""


def written(tmp_path: Path, port: int) -> Path:
    """The app, told where the server is."""
    (tmp_path / "port").write_text(str(port))
    path = tmp_path / "builtin_app.py"
    path.write_text(APP)
    return path


async def test_a_tool_that_is_run_again_after_a_crash_brings_the_same_key_and_a_higher_fence_and_its_server_refuses_the_older(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    gate, claims, effects = MemoryGate(), list[Claim](), list[Claim]()
    first_came, second_done = asyncio.Event(), asyncio.Event()

    async def pay(asked: Asked) -> bytes:
        claim = read_claim(asked.headers)
        claims.append(claim)
        if len(claims) == 1:
            os.kill(int(asked.headers["x-worker"]), signal.SIGKILL)
            first_came.set()
            await second_done.wait()  # on its way all the time
        entered = await gate.enter(claim)
        if entered:
            effects.append(claim)
        second_done.set()
        return response(201 if entered else 409, b"paid")

    async with running(pay) as server:
        roles.dispatcher(clean)
        roles.worker(clean, written(tmp_path, server.port))
        job = await talk.done(await talk.say("s1", "pay", agent="pays"))
        await wait_until(lambda: len(server.asked) == 2, description="both attempts to come")
    assert job.state == "succeeded"
    first, second = claims
    assert first.key == second.key
    assert first.fence < second.fence
    assert effects == [second]
    assert [record.body["content"] for record in await talk.log("s1") if record.type == RESULT] == ["HTTP 201\n\npaid"]
    check_log(await talk.log("s1"))


async def test_a_model_says_something_sleeps_and_asks_and_no_worker_waits_with_it(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, written(tmp_path, 1), "--processes", "1")
    job = await talk.say("s1", "hi")

    async def asked() -> bool:
        return bool((await approvals.pending(talk.yard, TENANT)).items)

    await wait_until(asked, description="the question to be asked", timeout_s=30)
    (question,) = (await approvals.pending(talk.yard, TENANT)).items
    assert (question.kind, question.tool, question.reason, question.options) == ("question", "ask_user", "Which?", ("red", "blue"))
    assert await talk.running() == 0
    records = await talk.log("s1")
    assert [record.body["text"] for record in records if record.type == "message/sent"] == ["one moment"]
    assert [record.body["content"] for record in records if record.type == RESULT] == ["sent", "0:00:00.200000 are over"]
    assert (await approvals.decide(talk.yard, TENANT, question.id, Decision("answer", "ann", answer=" "))).code == "accepted"
    assert (await talk.done(job)).state == "succeeded"
    assert (await talk.story("s1"))[-2:] == ["result: blue", "assistant: blue it is"]
    check_log(await talk.log("s1"))
