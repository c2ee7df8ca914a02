"""Which calls were really made, by which process, and when.

A call is written down by the process that makes it, at the moment it makes it. The log of a session holds each call
once by design; only this file shows a call that a crash had repeated. Times are CLOCK_MONOTONIC, which all processes of
a machine share.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import orjson

from turnyard.clock import SystemClock

MODEL = "model"


@dataclass(frozen=True, slots=True)
class Made:
    """One call at its begin or end. `name` is a tool's, or "model"; `call` says which call it is, however often it is made.

    `key` is what the callee knows a repeat by. `about` says which call it is to people; `shown` is what a model call
    saw beyond the model's own last answer.
    """

    name: str
    phase: Literal["begin", "end"]
    call: str
    key: str
    about: str = ""
    shown: tuple[str, ...] = ()
    pid: int = 0
    at_s: float = 0.0


def write_down(file: Path, made: Made) -> None:
    """Add a line; lines of several processes do not mix."""
    line = orjson.dumps(asdict(made) | {"pid": os.getpid(), "at_s": SystemClock().monotonic()}) + b"\n"
    with file.open("ab", buffering=0) as journal:
        journal.write(line)


def read(file: Path) -> list[Made]:
    """Return all whole lines, in the order in which they were written; none when nobody wrote yet."""
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")[:-1]
    return [Made(**(facts | {"shown": tuple(facts["shown"])})) for facts in map(orjson.loads, lines)]


def begun(made: Iterable[Made]) -> list[Made]:
    """Return the begins: each is one call that was really made."""
    return [m for m in made if m.phase == "begin"]


def repeats(made: Iterable[Made]) -> list[Made]:
    """Return the begins of calls that had begun before, in order."""
    seen: set[tuple[str, str]] = set()
    found: list[Made] = []
    for one in begun(made):
        if (one.name, one.call) in seen:
            found.append(one)
        seen.add((one.name, one.call))
    return found


def keys_stay(made: Iterable[Made]) -> bool:
    """Tell whether each call carried one key, however often it was made."""
    keys: dict[tuple[str, str], str] = {}
    return all(keys.setdefault((one.name, one.call), one.key) == one.key for one in made)


def takeover(made: Sequence[Made], *, old: int, after_s: float) -> Made | None:
    """Return the first call that another process than `old` began after a moment, None while there is none."""
    return next((m for m in begun(made) if m.pid != old and m.at_s > after_s), None)


def last_sign(made: Sequence[Made], *, old: int, before_s: float) -> float | None:
    """Return when `old` last began or ended a call before a moment, None when it never did."""
    return max((m.at_s for m in made if m.pid == old and m.at_s < before_s), default=None)
