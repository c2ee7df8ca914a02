"""Deltas: pieces of what a turn is doing right now. They may be lost; the log record that follows may not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Live:
    """One piece. `seq` is the log's last seq when it was written, `k` its number after it.

    `kind` is text, thinking, toolcall, progress or start; `index` the content block. The text of a progress is written by
    `progress_text`.
    """

    seq: int
    k: int
    turn: str
    step: int
    kind: str
    index: int
    text: str


def progress_text(call: str, fraction: float | None, note: str) -> str:
    """Return how far a call is as the text of a piece; `fraction` runs from 0 to 1, None when nobody knows."""
    return f"{call}\n{'' if fraction is None else format(fraction, '.4g')}\n{note}"


def read_progress(text: str) -> tuple[str, float | None, str]:
    """Return (call, fraction, note) of what `progress_text` made."""
    call, _, rest = text.partition("\n")
    share, _, note = rest.partition("\n")
    try:
        return call, float(share) if share else None, note
    except ValueError:
        return call, None, rest
