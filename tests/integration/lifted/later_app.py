"""An app whose calls outlast their turns in every way there is, and leave a trace of who did what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from platforms.relays import run_relays
from tests.integration.conversation import Talk
from turnyard.clock import SystemClock
from turnyard.records.log import RESULT

APP = '''
import asyncio, json, os
from datetime import timedelta
from pathlib import Path
from turnyard import App, Limits, Park, ToolError, tool

HERE = Path(__file__).parent

def note(what):
    with (HERE / "trace").open("a") as file:
        file.write(f"{what} {os.getpid()}\\n")

async def gate(name):
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)

@tool(lift_after=0.2, idempotent=True, timeout=60)
async def long(ctx, name: str) -> str:
    """Take long; may run again."""
    note("long")
    try:
        await ctx.progress(0.25, "a quarter")
        await gate(name)
    except asyncio.CancelledError:
        note("stopped")
        raise
    return f"{name} took long"

@tool(lift_after=0.2, timeout=60)
async def once(name: str) -> str:
    """Take long; must not run again."""
    note("once")
    await gate(name)
    return f"{name} was done once"

@tool(lift_after=0.2, wait=True, timeout=60)
async def patient(name: str) -> str:
    """Take long, and be waited for."""
    note("patient")
    await gate(name)
    return f"{name} was worth it"

@tool(lift_after=0.1, timeout=0.5)
async def slow(name: str) -> str:
    """Take longer than it may."""
    note("slow")
    await gate(name)
    return "in time"

@tool
async def export(ctx, name: str) -> str | Park:
    """Start something elsewhere."""
    note("export")
    (HERE / f"{name}.tries").write_text("0")
    return Park("it is made elsewhere", wait=name.startswith("w"), poll=0.1, state={"job": name})

@export.poll
async def exported(ctx, state):
    """Look whether it is there; count the looks in what is kept."""
    note("look")
    if (HERE / state["job"]).exists():
        return json.dumps({"job": state["job"], "looks": state.get("looks", 0) > 0, "agent": ctx.agent, "user": ctx.user,
            "version": ctx.agent_version, "platform": ctx.platform, "metadata": ctx.metadata, "expires": ctx.expires_at is not None})
    if (HERE / f"{state['job']}.lost").exists():
        raise ToolError("it is lost")
    return Park(poll=0.1, state={**state, "looks": state.get("looks", 0) + 1})

@tool(park=timedelta(hours=1))
async def order(ctx, name: str) -> str | Park:
    """Order something from a vendor, who posts what happens."""
    note("order")
    (HERE / "url").write_text(ctx.callback_url)
    if (HERE / "hold").exists():
        await gate("go")
    return Park("ordered", wait=name.startswith("w"))

@order.resolve
async def ordered(ctx, body: dict) -> str | None:
    """Read what the vendor posts."""
    note("read")
    if body.get("state") == "bad":
        raise RuntimeError("secret detail")
    if body.get("state") == "sold out":
        raise ToolError("sold out")
    return body["part"] if body.get("state") == "sent" else None

@tool(lift=True, timeout=60)
async def build(ctx, name: str) -> str:
    """Run a command that starts another one."""
    note("build")
    ran = await ctx.run("sh", "-c", 'sleep 600 & echo child $! >> "$0/trace"; echo command $$ >> "$0/trace"; wait', HERE)
    return f"built {ran.code}"

@tool(lift=True, timeout=0.5)
async def late(ctx, name: str) -> str:
    """Take longer than it may."""
    note("late")
    ran = await ctx.run("sh", "-c", 'echo command $$ >> "$0/trace"; sleep 600', HERE)
    return "in time"

@tool(lift=True, idempotent=True)
async def render(ctx, name: str) -> str:
    """Lifted: tell how far it is, wait for a gate; may run again."""
    note("render")
    await ctx.progress(0.5, "half way")
    await gate(name)
    return f"rendered {name}"

@tool(lift_after=0.2, timeout=60)
async def compile(ctx, name: str) -> str:
    """Run a command that starts another one, beside the turn."""
    note("compile")
    await ctx.run("sh", "-c", 'sleep 600 & echo child $! >> "$0/trace"; echo command $$ >> "$0/trace"; wait', HERE)
    return "compiled"

@tool
async def hold(name: str) -> str:
    """Keep the turn busy until a gate opens."""
    note("hold")
    await gate(name)
    return f"held {name}"

@tool(park=timedelta(seconds=1))
async def soon(ctx, name: str) -> str | Park:
    """Order something that has to come within a second."""
    note("soon")
    (HERE / f"{name}.url").write_text(ctx.outcome_url)
    return Park("ordered")

@tool(park=timedelta(hours=1))
async def buy(ctx, name: str) -> str | Park:
    """Order something from a vendor."""
    note("buy")
    (HERE / f"{name}.url").write_text(ctx.outcome_url)
    return Park("ordered")

@tool
async def add(name: str) -> str:
    """Be quick."""
    note("add")
    return f"added {name}"

TOOLS = [long, once, patient, slow, export, order, build, late, render, compile, hold, soon, buy, add]
app = App()
app.agent("hello", model="scripted:hello.yaml", tools=TOOLS, limits=Limits(retry_base=0.1, parallel_tools=4))
'''

_TOOLS = ("long", "once", "patient", "slow", "export", "order", "build", "late", "render", "compile", "hold", "soon", "buy", "add")
_PAIRS = (("long", "once"), ("export", "add"), ("buy", "buy"))


def _script() -> str:
    lines = ["replies:"]
    for name in _TOOLS:
        when = f'when: "^{name} (?P<g>\\\\w+)$"'
        lines.append(f'  - {{{when}, calls: [{{name: {name}, args: {{name: "{{g}}"}}}}]}}')
        lines.append(f'  - {{{when}, text: "then: {{result}}"}}')
    for one, two in _PAIRS:
        when = f'when: "^{one} (?P<g>\\\\w+) {two} (?P<k>\\\\w+)$"'
        calls = f'[{{name: {one}, args: {{name: "{{g}}"}}}}, {{name: {two}, args: {{name: "{{k}}"}}}}]'
        lines += [f"  - {{{when}, calls: {calls}}}", f'  - {{{when}, text: "both: {{result}}"}}']
    return "\n".join([*lines, '  - {text: "noted: {result}"}', "loop: true", ""])


class LaterApp:
    """The app in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "later.py"
        self._directory = directory
        self.path.write_text(APP)
        (directory / "hello.yaml").write_text(_script())

    def open(self, gate: str) -> None:
        """Let what waits for this gate go on, now and later."""
        (self._directory / gate).touch()

    def ran(self, what: str) -> list[int]:
        """Return the numbers noted with a word, in order: mostly in which processes something ran."""
        try:
            lines = (self._directory / "trace").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [int(number) for word, number in (line.split() for line in lines) if word == what]

    def url(self, name: str) -> str:
        """Return the URL that a vendor was given for one order, empty before it was."""
        path = self._directory / f"{name}.url"
        return path.read_text() if path.exists() else ""

    def token(self) -> str:
        """Return the token that a parked tool gave to its vendor, empty before it did."""
        url = self._directory / "url"
        return url.read_text().rpartition("/")[2] if url.exists() else ""


@pytest.fixture
async def relays(talk: Talk, plain_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Relays for the length of a test, and a server that carries what they relay."""
    monkeypatch.setenv("TURNYARD__REDIS__LIFTED_URL", plain_url)
    drain = asyncio.Event()
    task = asyncio.create_task(run_relays(talk.yard, drain, clock=SystemClock(), lifted_url=plain_url))
    yield
    drain.set()
    await task


async def results(talk: Talk, session: str) -> list[tuple[str | None, str | None]]:
    """The results of a session's calls: outcome and content, of placeholders the outcome alone."""
    found = [(r.outcome, r.body.get("content")) for r in await talk.log(session) if r.type == RESULT]
    return [(outcome, None if outcome == "placeholder" else content) for outcome, content in found]


async def outcomes(talk: Talk, session: str) -> list[str]:
    """The outcomes of a session's calls, in the order of their results."""
    return [outcome or "" for outcome, _ in await results(talk, session)]
