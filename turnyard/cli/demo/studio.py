"""The agent of the demo: a studio that renders a picture and prints cards of it.

Its model answers from a file and needs no key. Model and tools write down every call that is really made; they do it
in the working directory of the process, which is the demo's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from turnyard import App, ToolContext, tool
from turnyard.cli.demo import journal
from turnyard.cli.demo.journal import Made
from turnyard.clock import SystemClock
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.providers.scripted import Scripted

AGENT = "studio"
JOURNAL = Path("calls.jsonl")
PICTURE = Path("picture.done")
SCRIPT = Path(__file__).with_name("studio.yaml")
PRINT_S = 0.7
_LOOK_EVERY_S = 0.05


class Watched:
    """A scripted model that writes down each call and what it was shown."""

    def __init__(self, script: Path) -> None:
        self._script = Scripted(script, clock=SystemClock())

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer as the script says."""
        shown = tuple(str(m.get("content") or "") for m in request.messages)
        answers = [i for i, m in enumerate(request.messages) if m["role"] == "assistant"]
        new = shown[answers[-1] + 1 if answers else 1 :]
        # What it is asked says which call this is; that a repeat has the same key, too, is for the demo to find out.
        call = hashlib.blake2b("\0".join(shown).encode(), digest_size=8).hexdigest()
        journal.write_down(JOURNAL, Made(journal.MODEL, "begin", call, request.key, "asks the model", new))
        return self._script.stream(request)

    async def aclose(self) -> None:
        """Let the script go."""
        await self._script.aclose()


@tool(lift=True, idempotent=True, timeout=timedelta(minutes=5))
async def render(ctx: ToolContext[Any], scene: str) -> str:
    """Render a picture. It takes until somebody makes a file: no worker waits for that."""
    _note(ctx, "render", "begin", scene)
    while not _finished():
        await SystemClock().sleep(_LOOK_EVERY_S)
    _note(ctx, "render", "end", scene)
    return f"{scene}.png"


@tool(idempotent=True)
async def print_card(ctx: ToolContext[Any], number: int, whom: str) -> str:
    """Print one card; printing the same card twice does no harm."""
    about = f"card {number} for the {whom}"
    _note(ctx, "print_card", "begin", about)
    await SystemClock().sleep(PRINT_S)
    _note(ctx, "print_card", "end", about)
    return f"{about} is printed"


def _finished() -> bool:
    return PICTURE.exists()


def _note(ctx: ToolContext[Any], name: str, phase: Any, about: str) -> None:
    journal.write_down(JOURNAL, Made(name, phase, ctx.call_id, ctx.idempotency_key, about))


app = App()
app.agent(AGENT, model=Watched(SCRIPT), instructions="You run a small studio.", tools=[render, print_card])
