"""How much of a child's capacity each shard may use: all of it together, whatever the shards ask for.

The parts follow what waits. One that goes down is said at the next beat and never goes below what the child holds there;
one that goes up waits until what it takes was confirmed to be free, so no two shards ever count on the same place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnyard.state import shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnyard.state.fleet import Beat


class Rooms:
    """The parts of one incarnation, as the shards know them."""

    def __init__(self, whole: int, count: int, owner: str) -> None:
        self._whole = whole
        self.parts = shares.first_parts(whole, count, owner)
        self._used = [0] * count
        self._wants = [0] * count
        self._floor = 1 if whole >= count else 0
        self._turn = 0

    def ask(self) -> list[int]:
        """Return what to say to each shard now."""
        target = shares.next_parts(self._whole, self.parts, self._used, self._wants, floor=self._floor, turn=self._turn)
        self._turn += 1
        up = shares.raised(self._whole, self.parts, self._used, target)
        asked = [min(part, to) for part, to in zip(up, target, strict=True)]
        # Until a shard answers it may know either.
        self.parts = [max(part, to) for part, to in zip(self.parts, asked, strict=True)]
        return asked

    def heard(self, beats: Sequence[Beat]) -> None:
        """Take in what the shards answered."""
        self.parts = [part if beat.room is None else beat.room for part, beat in zip(self.parts, beats, strict=True)]
        self._used = [beat.held for beat in beats]
        self._wants = [beat.held + beat.waiting for beat in beats]
