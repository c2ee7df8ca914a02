"""Which of a log's groups are kept whatever the size of the request.

The newest messages and exchanges are shown whole, up to a group's beginning; and, however old, what the user asked last,
and results that the model has not read yet. A call whose result is still to come is never summarised away, but what is
large next to it may be shown as a stub: many such calls must not fill a request for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnyard.engine.groups import Group, Grouping


@dataclass(frozen=True, slots=True)
class Kept:
    """The groups that must not be folded, by index: all from `start` on, `pinned` ones, and those that wait for results.

    The `waiting` ones among them may be shortened, and are left out of a request that does not fit otherwise.
    """

    start: int
    pinned: frozenset[int]
    waiting: frozenset[int] = frozenset()

    def whole(self, index: int) -> bool:
        """Tell whether the group must not be shortened either."""
        return index >= self.start or index in self.pinned

    def __contains__(self, index: int) -> bool:
        return self.whole(index) or index in self.waiting


def pristine(grouping: Grouping, *, messages: int, exchanges: int) -> Kept:
    """Return what is kept: `messages` counts those of the user and the model, `exchanges` calls with their results."""
    start = tail_start(grouping.groups, messages=messages, exchanges=exchanges)
    pinned = grouping.unread | ({grouping.asked} if grouping.asked is not None else set[int]())
    return Kept(start, frozenset(pinned), frozenset(index for index in grouping.parked.values() if index < start) - pinned)


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
