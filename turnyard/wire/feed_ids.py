"""Where a follower stands: `<store ordinal>.<seq>-<k>`, so that positions go on after /new.

`k` is 0 for a record of the log and counts the deltas that came after it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from turnyard.errors import InvalidRequest

_FORM = re.compile(r"(\d{1,9})\.(\d{1,15})-(\d{1,9})", re.ASCII)


class FeedPosition(NamedTuple):
    """A feed id in parts; compares in feed order."""

    ordinal: int
    seq: int
    k: int = 0

    def __str__(self) -> str:
        return f"{self.ordinal}.{self.seq}-{self.k}"


def read_position(text: str, *, pointer: str = "/after") -> FeedPosition:
    """Return the position that a feed id names.

    Raises:
        InvalidRequest: it is not a feed id; take one from the `id` of an event.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidRequest("not a feed id: use the id of an event of this stream, such as 0.17-0", pointer=pointer)
    ordinal, seq, k = match.groups()
    return FeedPosition(int(ordinal), int(seq), int(k))
