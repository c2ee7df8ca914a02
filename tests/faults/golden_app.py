"""The app of the golden run: a model that reads its part from the conversation, and tools that leave a trace.

What was asked and what ran goes to the file of its session in GOLDEN_DIR, one line each, so that a test can count
executions over all processes, dead ones too.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import orjson

from turnyard import App, Park, tool
from turnyard.ports import AskedCall, Delta, Done, ModelRequest
from turnyard.tools.context import ToolContext

HERE = Path(os.environ.get("GOLDEN_DIR", "."))
_MARKER = re.compile(r"^(?:golden|order) (\w+)$")


def note(marker: str, what: str) -> None:
    """Write one line; short appends of several processes do not mix."""
    with (HERE / marker).open("a") as file:
        file.write(f"{what}\n")


class Player:
    """A model whose answer is a function of the request."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer: one tool after the other, then a word to end with."""
        texts = [str(m.get("content") or "") for m in request.messages if m["role"] == "user"]
        marker = next(found[1] for text in texts if (found := _MARKER.match(text)))
        note(marker, "model")
        for fault in unfit(request):
            note(marker, f"unfit {fault}")
        yield _answer(request, texts[-1], marker)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def _answer(request: ModelRequest, last: str, marker: str) -> Done:
    since = list(request.messages)
    while any(m["role"] == "user" for m in since):
        since.pop(0)
    script = {"golden": ("once", "render"), "order": ("polish", "order")}.get(last.split(" ")[0], ())
    asked = sum(m["role"] == "assistant" for m in since)
    if asked < len(script):
        return Done(
            "", (AskedCall(f"c{len(request.messages)}", script[asked], orjson.dumps({"marker": marker}).decode()),), finish="tool_calls"
        )
    return Done(f"after {len(request.messages)} messages: {last[:40]}")


def unfit(request: ModelRequest) -> list[str]:
    """Return what no request may hold: a call without its one result behind it, or a result without its call."""
    wrong: list[str] = []
    open_calls: Counter[str] = Counter()
    for message in request.messages:
        if message["role"] == "tool":
            open_calls[message["tool_call_id"]] -= 1
            continue
        wrong += [call for call, left in open_calls.items() if left]
        open_calls = Counter(call["id"] for call in message.get("tool_calls") or ())
    return wrong + [call for call, left in open_calls.items() if left]


@tool
async def once(marker: str) -> str:
    """Run once at most, whatever happens."""
    note(marker, "once")
    return "done once"


@tool(lift=True, idempotent=True)
async def render(marker: str) -> str:
    """Run as a task; may run again."""
    note(marker, "render")
    return "rendered"


@tool(lift=True, idempotent=True, wait=True)
async def polish(marker: str) -> str:
    """Run as a task while the turn waits; may run again."""
    note(marker, "polish")
    return "polished"


@tool(park=5)
async def order(ctx: ToolContext[None], marker: str) -> Park:
    """Order from a vendor, who answers later."""
    note(marker, "order")
    (HERE / f"{marker}.url").write_text(ctx.outcome_url or "")
    return Park("ordered")


app = App()
app.agent("golden", model=Player(), instructions="Play your part.", tools=[once, render, polish, order])
