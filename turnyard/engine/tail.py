"""Which of a log's groups are shown whole whatever the size of the request.

The newest messages and exchanges are, up to a group's beginning; and, however old, what the user asked last, calls
whose result is still to come, and results that the model has not read yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnyard.engine.groups import Group, Grouping


@dataclass(frozen=True, slots=True)
class Kept:
    """The groups that must not be shortened, folded or left out, by index: all from `start` on, and `pinned` ones."""

    start: int
    pinned: frozenset[int]

    def __contains__(self, index: int) -> bool:
        return index >= self.start or index in self.pinned


def pristine(grouping: Grouping, *, messages: int, exchanges: int) -> Kept:
    """Return what is kept whole: `messages` counts those of the user and the model, `exchanges` calls with their results."""
    pinned = {*grouping.parked.values(), *grouping.unread} | ({grouping.asked} if grouping.asked is not None else set[int]())
    return Kept(tail_start(grouping.groups, messages=messages, exchanges=exchanges), frozenset(pinned))


def tail_start(groups: Sequence[Group], *, messages: int, exchanges: int) -> int:
    """Return the index of the first group of the tail: it ends where the first group does not fit its allowance.

    A group that is entered belongs to the tail as a whole, although that takes more than the allowance.
    """
    for group in reversed(groups):
        spent = exchanges <= 0 if group.exchanges else group.spoken and messages <= 0
        if spent:
            return group.index + 1
        exchanges -= group.exchanges
        messages -= group.spoken
        if exchanges < 0 or messages < 0:
            return group.index
    return 0
