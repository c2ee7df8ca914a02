"""What an oracle says when something is broken: where, what must hold there, what was seen, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

# What passes by itself once somebody looks: broken only where it stays so.
LATE = frozenset({"an assignment is begun in time or given back", "deadlines are met", "what was accepted is dispatched"})
REPORT = "this is a defect of Turnyard: keep the server's data and report it"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be. `session` is the readable id, or `-` for the shard; `fix` is what to do."""

    session: str
    invariant: str
    detail: str
    fix: str = REPORT
