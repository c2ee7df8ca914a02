"""Long results and files on real processes: what one wrote, every other one reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from platforms.relays import run_relays
from tests.integration.conversation import Talk
from tests.processes import Roles
from turnyard.clock import SystemClock
from turnyard.records.log import RESULT
from turnyard.text import OUTPUT_BYTES

APP = '''
import os
from turnyard import App, ToolContext, tool
from turnyard.testing.models import FunctionModel, call

WHOLE = "0123456789" * 100_000 + "é the end"

@tool
async def dump() -> str:
    """Return a megabyte."""
    return WHOLE

@tool(lift=True)
async def bulk() -> str:
    """Return a megabyte from a lifted worker."""
    return WHOLE

@tool
async def keep(ctx: ToolContext, text: str) -> str:
    """Keep a text."""
    return f"{(await ctx.files.put(text, name='../notes.txt')).id} by {os.getpid()}"

@tool(lift=True, wait=True)
async def fetch(ctx: ToolContext, file: str) -> str:
    """Fetch a text, in a lifted worker."""
    return f"{(await ctx.files.get(file)).decode()} by {os.getpid()}"

def answer(request):
    last = request.messages[-1]
    if last["role"] != "user":
        return str(last["content"])[-200:]
    word, *rest = str(last["content"]).split()
    if word == "read":
        return call("read_entry", id=int(rest[0]), offset=int(rest[1]), length=100)
    names = {"dump": {}, "bulk": {}, "keep": ("text",), "fetch": ("file",)}
    return call(word, **dict(zip(names[word], rest))) if word in names else "noted"

app = App()
app.agent("hello", model=FunctionModel(answer), tools=[dump, bulk, keep, fetch])
'''


@pytest.mark.spec("runner-35")
@pytest.mark.parametrize("store", ["redis", "file"])
async def test_a_long_result_of_one_worker_is_read_in_parts_on_another(
    talk: Talk, clean: str, plain_url: str, roles: Roles, tmp_path: Path, store: str
) -> None:
    (tmp_path / "app.py").write_text(APP)
    url = "redis" if store == "redis" else f"file://{tmp_path / 'files'}"
    env = {"TURNYARD__FILES__URL": url, "TURNYARD__REDIS__LIFTED_URL": plain_url}
    drain = asyncio.Event()
    relays = asyncio.create_task(run_relays(talk.yard, drain, clock=SystemClock(), lifted_url=plain_url))
    roles.dispatcher(clean)
    roles.worker(clean, tmp_path / "app.py", "--processes", "1", env=env, role="lifted")
    first = roles.worker(clean, tmp_path / "app.py", "--processes", "1", env=env)
    for words in ("dump", "bulk", "keep naïve"):
        assert (await talk.done(await talk.say("s1", words, complete_when="settled"))).state == "succeeded"
    first.kill_all()
    roles.worker(clean, tmp_path / "app.py", "--processes", "1", env=env)
    long = [r for r in await talk.log("s1") if r.type == RESULT and r.body.get("ref")]
    assert len(long) == 2
    for result in long:
        assert len(result.body["content"].encode()) <= OUTPUT_BYTES
        assert result.body["size"] == 1_000_010
        job = await talk.done(await talk.say("s1", f"read {result.seq} 999990"))
        assert job.output is not None
        assert job.output["text"] == f"[event_id={result.seq} bytes 999990 to 1000010 of 1000010]\n0123456789é the end"
    kept, writer = next(r.body["content"] for r in await talk.log("s1") if " by " in str(r.body.get("content"))).split(" by ")
    job = await talk.done(await talk.say("s1", f"fetch {kept}", complete_when="settled"))
    said = str((job.output or {})["text"])
    assert said.startswith("naïve by ")
    assert said.rpartition(" ")[2] != writer
    drain.set()
    await relays
