"""What every process of a run writes down, one JSON line per event, and how that becomes a history for the oracles.

Times are of CLOCK_MONOTONIC, which all processes of a machine share. A line is written whole or, by a process that was
killed in the middle of it, cut: such a last line is passed over.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnyard.state.oracles.events import Asked, Began, Committed, Delivered, History, Ran, Sent

DIRECTORY = "CHAOS_DIR"


@dataclass
class Journal:
    """Where one process writes. It opens its file at the first event, so that a forked child has its own."""

    directory: Path
    name: str
    _pid: int = 0
    _file: Any = field(default=None)

    def note(self, what: str, **fields: Any) -> None:
        """Write one event."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self.directory.mkdir(exist_ok=True)
            self._file = (self.directory / f"{self.name}-{self._pid}.jsonl").open("ab", buffering=0)
        line = {"what": what, "at_s": time.monotonic(), "pid": self._pid, **fields}
        self._file.write(json.dumps(line).encode() + b"\n")


def journal(name: str) -> Journal:
    """Return the journal of this process; `CHAOS_DIR` names the directory of the run."""
    return Journal(Path(os.environ.get(DIRECTORY, ".")) / "history", name)


def events(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield all events of a run, oldest first."""
    found: list[dict[str, Any]] = []
    for path in sorted((directory / "history").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    yield from sorted(found, key=lambda event: event["at_s"])


def read_history(found: list[dict[str, Any]]) -> History:
    """Return what the oracles judge."""

    def of(what: str) -> Iterator[dict[str, Any]]:
        return (event for event in found if event["what"] == what)

    return History(
        sent=tuple(_sent(found)),
        asked=tuple(Asked(e["session"], e["pid"], e["at_s"], tuple(e["markers"]), tuple(e["complaints"])) for e in of("asked")),
        ran=tuple(Ran(e["key"], e["tool"], e["repeatable"]) for e in of("ran")),
        began=tuple(Began(e["session"], e["epoch"], e["owner"], e["of"], e["at_s"]) for e in of("began")),
        committed=tuple(Committed(e["session"], e["epoch"], e["owner"], e["rev"], e["asked_s"], e["repeat"]) for e in of("committed")),
        delivered=tuple(Delivered(e["store"], e["seq"], e["id"]) for e in of("delivered")),
    )


def _sent(found: list[dict[str, Any]]) -> Iterator[Sent]:
    """Join what was sent and what was answered; the first answer that is an answer stands."""
    asked = {e["marker"]: e for e in reversed(found) if e["what"] == "sent"}
    answered = {e["marker"]: e for e in reversed(found) if e["what"] == "answered"}
    for marker, e in asked.items():
        answer = answered.get(marker)
        code, at_s = (answer["code"], answer["at_s"]) if answer else ("unknown", float("inf"))
        job = answer["job"] if answer else e["job"]
        yield Sent(marker, e["session"], e["mode"], code, job, e["at_s"], at_s, delayed=e["delayed"])
