"""The app that chaos runs: a model whose answer is a function of the request, and tools that write down what they do.

A message is `MARKER DIRECTIVE`; the directive names the tools that the model calls, one after the other (`+` between
those of one answer). The model writes down each request: whose it is, the markers it holds, and what strict APIs have
against it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.faults.history import DIRECTORY, journal
from turnyard import App, ApprovalRequired, Ask, Park, tool
from turnyard.errors import ModelError
from turnyard.ports import AskedCall, Delta, Done, ModelRequest
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai
from turnyard.tools.context import ToolContext

HERE = Path(os.environ.get(DIRECTORY, "."))
BOOK = journal("turn")
MARKER = re.compile(r"\bm\.([\w-]+/[\w-]+)\.\d+\b")
MESSAGE = re.compile(r"^(m\.[\w/-]+\.\d+) (\S+)$", re.MULTILINE)
PARK_S = 1.5


class Player:
    """A model whose answer is a function of the request."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer the last message: the next of its tools, or words when all are done."""
        users = [str(m.get("content") or "") for m in request.messages if m["role"] == "user"]
        said = [found for text in users for found in MESSAGE.findall(text)]
        markers = [marker for marker, _ in said]
        session = MARKER.findall(markers[0])[0] if markers else ""
        wrong = [*check_openai(request.messages), *check_anthropic(request.messages), *check_gemini(request.messages)]
        BOOK.note("asked", session=session, markers=markers, complaints=wrong, key=request.key)
        directive = said[-1][1] if said else "say"
        if directive == "broken":
            raise ModelError("this model has no answer")
        await asyncio.sleep(1.3 if directive == "ponder" else 0.02)
        for done in _answer(request, directive):
            yield Delta("text", 0, done.text[:5] or " ")
            yield done

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def _answer(request: ModelRequest, directive: str) -> list[Done]:
    since = list(request.messages)
    while any(MESSAGE.search(str(m.get("content") or "")) for m in since if m["role"] == "user"):
        since.pop(0)
    step = sum(bool(m.get("tool_calls")) for m in since)
    steps = [] if directive in ("say", "ponder") else directive.split(",")
    if step >= len(steps):
        return [Done(f"done {directive}: {len(request.messages)}")]
    names = steps[step].split("+")
    calls = tuple(AskedCall(f"c{step}{i}", name, json.dumps({"n": step * 10 + i})) for i, name in enumerate(names))
    return [Done("", calls, finish="tool_calls")]


def _ran(ctx: ToolContext[None], name: str, *, repeatable: bool = False) -> None:
    BOOK.note("ran", key=ctx.idempotency_key, tool=name, repeatable=repeatable, call=ctx.call_id)


@tool
async def add(ctx: ToolContext[None], n: int) -> str:
    """Have an effect that must not happen twice."""
    _ran(ctx, "add")
    return f"added {n}"


@tool
async def linger(ctx: ToolContext[None], n: int) -> str:
    """Have an effect that must not happen twice, and take a while."""
    _ran(ctx, "linger")
    await asyncio.sleep(0.6)
    return f"lingered {n}"


@tool(idempotent=True)
async def again(ctx: ToolContext[None], n: int) -> str:
    """Take longer than a lease; may run again."""
    _ran(ctx, "again", repeatable=True)
    await asyncio.sleep(1.2)
    return f"again {n}"


@tool(idempotent=True)
async def block(ctx: ToolContext[None], n: int) -> str:
    """Block the loop of the whole process."""
    _ran(ctx, "block", repeatable=True)
    time.sleep(0.5)  # noqa: ASYNC251 - that is its purpose
    return f"blocked {n}"


@tool
def wrong(ctx: ToolContext[None], n: int) -> str:
    """Fail."""
    _ran(ctx, "wrong")
    raise RuntimeError("this tool fails")


@tool(idempotent=True)
async def die(ctx: ToolContext[None], n: int) -> str:
    """End the process, each time."""
    _ran(ctx, "die", repeatable=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@tool(lift=True, idempotent=True)
async def render(ctx: ToolContext[None], n: int) -> str:
    """Lifted, fast; may run again."""
    _ran(ctx, "render", repeatable=True)
    return f"rendered {n}"


@tool(lift=True)
async def burn(ctx: ToolContext[None], n: int) -> str:
    """Lifted; must not run again."""
    _ran(ctx, "burn")
    await asyncio.sleep(0.5)
    return f"burnt {n}"


@tool(lift=True, idempotent=True, wait=True)
async def polish(ctx: ToolContext[None], n: int) -> str:
    """Lifted, slower than a lease; the turn waits; may run again."""
    _ran(ctx, "polish", repeatable=True)
    await asyncio.sleep(1.2)
    return f"polished {n}"


@tool(lift=True)
async def flop(ctx: ToolContext[None], n: int) -> str:
    """Lifted; fails."""
    _ran(ctx, "flop")
    raise RuntimeError("this task fails")


@tool(lift=True, idempotent=True)
async def doom(ctx: ToolContext[None], n: int) -> str:
    """Lifted; ends its worker, each time."""
    _ran(ctx, "doom", repeatable=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@tool(park=PARK_S)
async def order(ctx: ToolContext[None], n: int) -> Park:
    """Order something from a vendor, who answers about when the time is over, or twice, or never."""
    _ran(ctx, "order")
    _leave(ctx, ctx.outcome_url)
    return Park("ordered")


def _leave(ctx: ToolContext[None], url: str) -> None:
    """Leave an order where vendors look for them."""
    path = HERE / "orders" / f"{ctx.call_id}.new"
    path.write_text(json.dumps({"call": ctx.call_id, "url": url, "made_s": time.monotonic(), "park_s": PARK_S}))
    path.rename(path.with_suffix(".json"))


def _people(_ctx: ToolContext[None], **_: Any) -> Ask:
    return Ask("chaos asks", approvers=["ann", "bob"], expires_in=PARK_S)


@tool(approval=_people)
async def pay(ctx: ToolContext[None], n: int) -> str:
    """Have an effect that people allow first, and that must not happen twice."""
    _ran(ctx, "pay")
    BOOK.note("consent", call=ctx.call_id, approved=ctx.approved)
    await asyncio.sleep(0.2)
    return f"paid {n}"


@tool(approval=_people, lift=True)
async def ship(ctx: ToolContext[None], n: int) -> str:
    """Lifted once people allowed it; must not run again."""
    _ran(ctx, "ship")
    await asyncio.sleep(0.3)
    return f"shipped {n}"


@tool
async def doubt(ctx: ToolContext[None], n: int) -> str:
    """Ask people from within, before anything is done."""
    if not ctx.approved:
        raise ApprovalRequired("chaos doubts", approvers=["ann", "bob"], expires_in=PARK_S)
    _ran(ctx, "doubt")
    return f"done without doubt {n}"


@tool(lift_after=0.3)
async def grow(ctx: ToolContext[None], n: int) -> str:
    """Take longer than a turn should be kept for; must not run again."""
    _ran(ctx, "grow")
    await asyncio.sleep(0.9 if n % 3 == 0 else 0.1)
    return f"grown {n}"


@tool(park=PARK_S)
async def hold(ctx: ToolContext[None], n: int) -> Park:
    """Order as `order` does, and have the turn wait for it."""
    _ran(ctx, "hold")
    _leave(ctx, ctx.outcome_url)
    return Park("held", wait=True)


@tool(park=PARK_S)
async def track(ctx: ToolContext[None], n: int) -> Park:
    """Order from a vendor whose answers the tool reads itself: the first of them is not final."""
    _ran(ctx, "track")
    _leave(ctx, ctx.callback_url)
    return Park("tracked")


@track.resolve
async def tracked(ctx: ToolContext[None], body: dict[str, str]) -> str | None:
    """Read what the vendor says; a first word is no result."""
    return None if body.get("result") == "first" else f"tracked {body}"


@tool(park=PARK_S * 2)
async def watch(ctx: ToolContext[None], n: int) -> Park:
    """Start something elsewhere that has to be looked at until it is done."""
    _ran(ctx, "watch")
    return Park("started", poll=0.2, state={"ready_s": time.time() + 0.3 * (n % 4)})


@watch.poll
async def watched(ctx: ToolContext[None], state: dict[str, float]) -> str | None:
    """Look whether it is done."""
    return "seen" if time.time() >= state["ready_s"] else None


TOOLS = [pay, ship, doubt, grow, hold, track, watch, add, linger, again, block, wrong, die, render, burn, polish, flop, doom, order]
app = App()
app.agent("bot", model=Player(), instructions="Play your part.", tools=TOOLS)
app.agent("slowpoke", model=Player(), instructions="Play your part.", tools=TOOLS)
