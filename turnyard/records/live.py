"""Deltas: pieces of what a turn is doing right now. They may be lost; the log record that follows may not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Live:
    """One piece. `seq` is the log's last seq when it was written, `k` its number after it.

    `kind` is text, thinking, toolcall, progress or start; `index` the content block.
    """

    seq: int
    k: int
    turn: str
    step: int
    kind: str
    index: int
    text: str
