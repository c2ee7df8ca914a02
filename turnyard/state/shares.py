"""How a whole (a limit, a worker's capacity) is divided over shards, and how a division changes without ever being exceeded.

Both are plain arithmetic. Parts never add up to more than the whole: a part is raised only out of what is left when every
shard counts with the larger of its part and what it uses, so a part that was lowered is given away once it is really free.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence


def divide(whole: int, wants: Sequence[int], *, floor: int = 0, turn: int = 0) -> list[int]:
    """Return one part per shard: `floor` for each, then evenly up to what each wants, then the rest evenly.

    `turn` says who is first where it does not come out even; counting it up lets everybody be first in turn.
    """
    count = len(wants)
    order = [(turn + i) % count for i in range(count)]
    parts = [min(floor, whole // count)] * count
    left = whole - sum(parts)
    while left > 0 and (short := [i for i in order if parts[i] < wants[i]]):
        each = max(1, left // len(short))
        for i in short:
            more = min(each, wants[i] - parts[i], left)
            parts[i] += more
            left -= more
    for place, i in enumerate(order):
        parts[i] += left // count + (place < left % count)
    return parts


def next_parts(whole: int, now: Sequence[int], used: Sequence[int], wants: Sequence[int], *, floor: int = 0, turn: int = 0) -> list[int]:
    """Return the parts that should be, given those that are: the same ones while they serve everybody.

    `used` is what each shard uses, `wants` what it would use if it had room. What a shard uses beyond its part, because the
    whole was more before, is taken from the room of the others until it has ended; while all use more than the whole,
    nobody begins anything.
    """
    if sum(used) > whole:
        return [0] * len(now)
    needs = [max(busy, want) for busy, want in zip(used, wants, strict=True)]
    if sum(now) == whole and all(part >= max(floor, need) for part, need in zip(now, needs, strict=True)):
        return list(now)
    parts = divide(whole, needs, floor=floor, turn=turn)
    over = sum(max(part, busy) for part, busy in zip(parts, used, strict=True)) - whole
    while over > 0 and (roomy := [i for i, part in enumerate(parts) if part > used[i]]):
        each = max(1, over // len(roomy))
        for i in roomy:
            less = min(each, parts[i] - used[i], over)
            parts[i] -= less
            over -= less
    return parts


def lowered(now: Sequence[int], target: Sequence[int]) -> list[int]:
    """Return the parts once all that go down are down."""
    return [min(part, to) for part, to in zip(now, target, strict=True)]


def raised(whole: int, now: Sequence[int], used: Sequence[int], target: Sequence[int]) -> list[int]:
    """Return the parts with those that go up raised as far as what is really free allows."""
    free = whole - sum(max(part, busy) for part, busy in zip(now, used, strict=True))
    out = list(now)
    for i, (part, to) in enumerate(zip(now, target, strict=True)):
        # A shard that uses more than its part has this much counted already.
        gain = max(part, used[i])
        more = max(0, min(to, gain + max(0, free)) - part)
        out[i] = part + more
        free -= max(0, out[i] - gain)
    return out


def first_parts(whole: int, count: int, owner: str) -> list[int]:
    """Return how a worker's capacity is divided before anybody asked for it: evenly, what is left over elsewhere for each owner."""
    return divide(whole, [0] * count, turn=zlib.crc32(owner.encode()))
