"""When a model's stream was entered, told by the worker that entered it.

Processes of one host share CLOCK_MONOTONIC, so a line in a file that all of them append to is enough: which message,
what happened, when, and which process. Without BENCH_STAMPS nothing is written.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from turnyard.ports import Delta, Done, ModelRequest, Provider

VARIABLE = "BENCH_STAMPS"
MARK = re.compile(r"#(\d+)#")


@dataclass(frozen=True, slots=True)
class Stamp:
    """One line. `what` is start or end; `at_ns` is of CLOCK_MONOTONIC."""

    message: int
    what: str
    at_ns: int
    pid: int


def marked(message: int) -> str:
    """Return a text that carries the number of a message."""
    return f"hello #{message}# there"


class Stamps:
    """The appending end."""

    def __init__(self) -> None:
        path = os.environ.get(VARIABLE)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if path else None

    @property
    def on(self) -> bool:
        """Tell whether anybody reads them."""
        return self._file is not None

    def write(self, text: str, what: str, at_ns: int) -> None:
        """Stamp the message that `text` carries the number of; the last one counts."""
        found = MARK.findall(text)
        if self._file is not None and found:
            os.write(self._file, f"{found[-1]} {what} {at_ns} {os.getpid()}\n".encode())


class Stamped:
    """A provider that stamps when its stream is entered and when it is through."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._stamps: Stamps | None = None

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Stamp, and answer as the provider does."""
        at_ns = time.monotonic_ns()
        text = next((str(m.get("content")) for m in reversed(request.messages) if m["role"] == "user"), "")
        self._stamps = self._stamps or Stamps()  # opened by the process that runs turns, not by one that only looks at the app
        self._stamps.write(text, "start", at_ns)
        return _through(self._provider.stream(request), self._stamps, text)

    async def aclose(self) -> None:
        """Let go of what the provider holds."""
        await self._provider.aclose()


async def _through(stream: AsyncIterator[Delta | Done], stamps: Stamps, text: str) -> AsyncIterator[Delta | Done]:
    async for piece in stream:
        if isinstance(piece, Done):
            stamps.write(text, "end", time.monotonic_ns())
        yield piece


def read_stamps(path: Path) -> Iterator[Stamp]:
    """Yield what was stamped so far; a line that is being written is left out."""
    text = path.read_text() if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        message, what, at_ns, pid = line.split()
        yield Stamp(int(message), what, int(at_ns), int(pid))
