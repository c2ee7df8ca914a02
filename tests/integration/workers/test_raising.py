"""A strategy that raises on a worker: its step is done again after a while, not for ever, and no other turn feels it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.conversation import Talk, check_log
from tests.processes import Roles

APP = """
import asyncio
import time
from pathlib import Path
from turnyard import App, Limits
from turnyard.engine.react import React
from turnyard.ports import Done

HERE = Path(__file__).parent

class Fine:
    async def stream(self, request):
        yield Done("fine")

    async def aclose(self):
        pass

class Careless(React):
    name = "careless"

    def step(self, view, state, answer):
        if any(e.body.get("text") == "break" and e.turn == view.turn for e in view.entries):
            with (HERE / "steps").open("a") as out:
                out.write(f"{time.monotonic()}\\n")
            raise RuntimeError("secret detail")
        if any(e.body.get("text") == "exit" and e.turn == view.turn for e in view.entries):
            raise SystemExit("secret detail")
        return super().step(view, state, answer)

async def instructions(ctx):
    if ctx.session in ("exit", "cancel"):
        with (HERE / ctx.session).open("a") as out:
            out.write(".")
        raise SystemExit if ctx.session == "exit" else asyncio.CancelledError
    return ""

app = App()
app.agent("told", model=Fine(), instructions=instructions)
app.agent("hello", model=Fine(), strategy=Careless(), limits=Limits(retry_base=0.1))
"""


@pytest.mark.spec("turn-52")
async def test_a_step_that_always_raises_is_done_four_times_no_earlier_than_its_delays_and_the_session_goes_on(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    path = tmp_path / "careless.py"
    path.write_text(APP)
    roles.dispatcher(clean)
    worker = roles.worker(clean, path, "--processes", "1")
    ended = await talk.done(await talk.say("s1", "break"))
    assert ended.error is not None
    assert (ended.state, ended.error["code"]) == ("failed", "retry_exhausted")
    times = [float(line) for line in (tmp_path / "steps").read_text().splitlines()]
    assert len(times) == 4
    assert [after - before >= least - 0.01 for (before, after), least in zip(pairwise(times), (0.1, 0.2, 0.4), strict=True)] == [True] * 3
    assert ended.error["ref"] in worker.log()
    assert "secret" not in ended.error["message"]
    assert (await talk.done(await talk.say("s1", "go on"))).state == "succeeded"
    check_log(await talk.log("s1"))


async def test_code_of_the_app_that_would_end_its_process_or_task_fails_its_turn_once_and_for_all(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    path = tmp_path / "careless.py"
    path.write_text(APP)
    roles.dispatcher(clean)
    worker = roles.worker(clean, path, "--processes", "1")
    leaving = await talk.done(await talk.say("s1", "exit"))
    assert (leaving.state, (leaving.error or {})["code"]) == ("failed", "retry_exhausted")
    for how in ("exit", "cancel"):
        ended = await talk.done(await talk.say(how, "hi", agent="told"))
        assert (ended.state, (ended.error or {})["code"]) == ("failed", "internal")
        assert (tmp_path / how).read_text() == "."
    assert "secret" not in str(leaving.error)
    assert worker.events("turn dropped by a defect") == []
