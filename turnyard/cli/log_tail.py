"""What the roles say, shown at the terminal that runs them, each line with its role's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from turnyard.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from turnyard.ports import Clock

EVERY_S = 0.2
HIDDEN = frozenset({"ts", "level", "event", "role", "logger", "exception", "color_message"})


def readable(line: str) -> str:
    """Return a JSON log line as people read it; any other line as it is."""
    try:
        facts: Any = orjson.loads(line)
        at, level, event = facts["ts"][11:23], facts["level"], facts["event"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return line
    extras = "".join(f" {name}={value}" for name, value in facts.items() if name not in HIDDEN)
    trace = f"\n{facts['exception']}" if "exception" in facts else ""
    return f"{at}{'' if level == 'info' else f' {level.upper()}'} {event}{extras}{trace}"


class Tail:
    """The new lines of several log files."""

    def __init__(self, files: Sequence[tuple[str, Path]]) -> None:
        self._files = files
        self._read = {name: file.stat().st_size if file.exists() else 0 for name, file in files}
        self._width = max(len(name) for name, _ in files)

    def lines(self) -> list[str]:
        """Return what was written since the last call, whole lines only."""
        found: list[str] = []
        for name, file in self._files:
            if not file.exists():
                continue
            with file.open("rb") as source:
                source.seek(self._read[name])
                fresh = source.read()
            whole = fresh.rfind(b"\n") + 1
            self._read[name] += whole
            found += [f"{name.ljust(self._width)} | {readable(line)}" for line in fresh[:whole].decode("utf-8", "replace").splitlines()]
        return found

    async def run(self, clock: Clock) -> None:
        """Show new lines until cancelled."""
        while True:
            for line in self.lines():
                say(line)
            await clock.sleep(EVERY_S)
