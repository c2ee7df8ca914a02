"""A turn whose workers are killed while it waits to ask again and between its segments: whoever takes it over counts on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conversation import Talk, check_log
from tests.processes import Role, Roles
from turnyard.testing import wait_until

APP = '''
import asyncio
from pathlib import Path
from turnyard import App, Limits, ModelError
from turnyard.ports import Done

HERE = Path(__file__).parent

def note(file, line):
    with (HERE / file).open("a") as out:
        out.write(line + "\\n")

class Busy:
    """A model that is overloaded until the file `up` is there."""

    async def stream(self, request):
        note("asked", str(len(request.messages)))
        if not (HERE / "up").exists():
            raise ModelError("overloaded", retryable=True)
        yield Done(f"answer to {request.messages[-1]['content']}", usage={"input_tokens": 10, "output_tokens": 2})

    async def aclose(self):
        pass

app = App()
app.agent("hello", model=Busy(), instructions="", limits=Limits(
    continuations=2, tokens=1000, paid_attempts=20, retry_base=1.0, model_calls=5))

@app.hook("turn_stopping")
async def review(ctx, stopping):
    left = stopping.budget
    note("reviewed", f"{stopping.reason} {stopping.steps} {stopping.segments} {left.continuations} {left.tokens} {left.model_calls}")
    while not (HERE / f"gate{stopping.segments}").exists():
        await asyncio.sleep(0.01)
    if stopping.segments == 0:
        stopping.go_on("check it")
'''


@pytest.mark.spec("runner-19", "runner-22")
async def test_workers_killed_in_a_wait_and_between_segments_lose_no_count_and_no_event(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    path = tmp_path / "segments.py"
    path.write_text(APP)
    roles.dispatcher(clean)

    def worker() -> Role:
        return roles.worker(clean, path, "--processes", "1")

    def lines(file: str) -> list[str]:
        return (tmp_path / file).read_text().splitlines() if (tmp_path / file).exists() else []

    async def parked() -> bool:
        return await talk.state("s1") == "parked"

    first = worker()
    job = await talk.say("s1", "do it")
    await wait_until(parked, description="the turn to wait", timeout_s=30)
    assert await talk.running() == 0
    first.kill_all()
    (tmp_path / "up").touch()
    second = worker()
    await wait_until(lambda: len(lines("reviewed")) == 1, description="the hook to be asked", timeout_s=30)
    second.kill_all()
    worker()
    await wait_until(lambda: len(lines("reviewed")) == 2, description="the hook to be asked again", timeout_s=30)
    (tmp_path / "gate0").touch()
    (tmp_path / "gate1").touch()
    ended = await talk.done(job)
    assert ended.state == "succeeded"
    assert lines("reviewed") == ["no_calls 1 0 2 988 4"] * 2 + ["no_calls 2 1 1 976 3"]
    assert await talk.story("s1") == ["user: do it", "assistant: answer to do it", "user: check it", "assistant: answer to check it"]
    told = [r for r in await talk.log("s1") if r.type.startswith("retry/")]
    assert [r.type for r in told] == ["retry/start"] * (len(told) - 1) + ["retry/end"]
    assert [r.body["attempt"] for r in told] == [*range(1, len(told)), len(told) - 1]
    assert told[-1].body["success"]
    check_log(await talk.log("s1"))
