"""Which of a log's groups are shown whole whatever the size of the request.

The newest messages and exchanges are, up to a group's beginning; and, however old, what the user asked last, calls
whose result is still to come, and results that the model has not read yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnyard.engine.groups import Group
from turnyard.records.log import RESULT


def pristine(groups: Sequence[Group], *, messages: int, exchanges: int, last_answer: int) -> frozenset[int]:
    """Return the indices of the groups that must not be shortened, folded or left out.

    `messages` counts those of the user and the model, `exchanges` calls with their results; `last_answer` is the seq of
    the model's last answer.
    """
    start = tail_start(groups, messages=messages, exchanges=exchanges)
    kept = set(range(start, len(groups)))
    asked = next((group.index for group in reversed(groups) if group.asks), None)
    if asked is not None:
        kept.add(asked)
    kept.update(group.index for group in groups[:start] if group.parked or _unread(group, last_answer))
    return frozenset(kept)


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


def _unread(group: Group, last_answer: int) -> bool:
    return any(entry.seq > last_answer for entry in group.entries if entry.type == RESULT)
