"""What every act of the demo's story works with: the public API, the live transcript, and waits that end.

A wait that ends without what it waited for is a broken promise of its own, told in words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from turnyard.cli.demo import journal
from turnyard.cli.demo.journal import Made
from turnyard.cli.demo.studio import AGENT, JOURNAL

if TYPE_CHECKING:
    from turnyard.cli.demo.stage import Stage
    from turnyard.cli.demo.transcript import Transcript
    from turnyard.client import Client
    from turnyard.client.handle import JobHandle
    from turnyard.ports import Clock

SESSION = "postcards"
WAIT_S = 20.0
FIGURES = ("turns", "model calls", "tool calls", "recovery after kill -9", "hand-over after SIGTERM", "commands per turn", "doctor")
_LOOK_EVERY_S = 0.02

JsonObject = dict[str, Any]
T = TypeVar("T")


class NeverCame(TimeoutError):
    """Something that had to happen did not; the message says what and for how long it was waited for."""


@dataclass(slots=True)
class Scene:
    """The stage and the tools of the play. `events` are those of the session so far; `figures` go into the last table."""

    stage: Stage
    client: Client
    tell: Transcript
    clock: Clock
    folder: Path
    events: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])
    figures: dict[str, str] = field(default_factory=lambda: dict.fromkeys(FIGURES, "-"))

    async def until(self, what: str, happened: Callable[[], T | Awaitable[T | None] | None]) -> T:
        """Wait until `happened` answers with something true, and return that.

        Raises:
            NeverCame: it did not within `WAIT_S` seconds.
        """
        deadline = self.clock.monotonic() + WAIT_S
        while True:
            answer = happened()
            found: Any = await cast("Awaitable[Any]", answer) if isinstance(answer, Awaitable) else answer
            if found:
                return found
            if self.clock.monotonic() > deadline:
                raise NeverCame(f"waited {WAIT_S:g} s in vain for {what}")
            await self.clock.sleep(_LOOK_EVERY_S)

    async def say(self, text: str) -> JobHandle:
        """Have the user write a message; return its job."""
        self.tell.line("user", text)
        return await self.client.submit(AGENT, text, session=SESSION, user="ada")

    async def turn_ends(self, turns: int) -> None:
        """Wait until so many turns of the session have ended, and its state says so, too."""
        await self.until(f"the end of turn {turns}", lambda: sum(name == "turn/end" for name, _ in self.events) >= turns)

    def made(self) -> list[Made]:
        """Return the calls that were really made so far."""
        return journal.read(self.folder / JOURNAL)

    async def holder(self) -> JsonObject:
        """Return the worker that holds the session's turn, as the API tells."""

        async def look() -> JsonObject | None:
            owner = (await self.client.session(SESSION))["holder"]
            return next((w for w in await self.client.workers() if owner and w["worker"] == owner), None)

        return await self.until("a worker to hold the turn", look)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Show the session's events as they come, inside the block."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        async for event in self.client.events(SESSION, deltas=False):
            data: JsonObject = event.data["data"]
            self._show(event.event, data)
            self.events.append((event.event, data))

    def _show(self, kind: str, data: JsonObject) -> None:
        match kind:
            case "message/end" if data.get("text"):
                self.tell.line("agent", data["text"])
            case "tool/call":
                args = ", ".join(f"{name}={value!r}" for name, value in data["args"].items())
                self.tell.line("agent", f"→ {data['name']}({args})")
            case "tool/result" if data["outcome"] != "placeholder":
                self.tell.line("tool", f"← {data['content']}")
            case "call/parked":
                self.tell.line("yard", f"the call is parked ({data['kind']}): it runs on its own, no worker waits for it")
            case "turn/end":
                self.tell.line("yard", "the turn ends")
            case _:
                pass
