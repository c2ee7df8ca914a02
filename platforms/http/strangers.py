"""How many wrong call tokens may one address try?

A token cannot be guessed, but guesses cost a read each, and a vendor with a wrong URL repeats it for ever. Right tokens
cost nothing. An address that has used up its tries is refused before its token is looked at.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from typing import TYPE_CHECKING

from turnyard.errors import RateLimited

if TYPE_CHECKING:
    from fastapi import Request

    from turnyard.ports import Clock

_MOST_ADDRESSES = 10_000
_NETWORK_BITS = 64


class Strangers:
    """Token buckets by address: `burst` wrong tries at once, then `per_minute`."""

    def __init__(self, clock: Clock, *, burst: int, per_minute: float) -> None:
        self._clock = clock
        self._burst = burst
        self._per_s = per_minute / 60
        # Tries that are left, and when that was so; who tried last is at the end.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Let an address try a token.

        Raises:
            RateLimited: too many of its tokens were wrong.
        """
        left = self._now_left(address)
        if left < 1:
            raise RateLimited(retry_after_s=math.ceil((1 - left) / self._per_s))

    def wrong(self, address: str) -> None:
        """Note that an address tried a token that is none."""
        self._left[address] = (max(0.0, self._now_left(address) - 1), self._clock.monotonic())
        self._left.move_to_end(address)
        if len(self._left) > _MOST_ADDRESSES:
            self._left.popitem(last=False)

    def _now_left(self, address: str) -> float:
        if address not in self._left:
            return self._burst
        left, at = self._left[address]
        return min(self._burst, left + (self._clock.monotonic() - at) * self._per_s)


def address_of(request: Request) -> str:
    """Return whom a request counts for: its address, of IPv6 the network, which one customer has as a whole."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False)) if isinstance(address, ipaddress.IPv6Address) else host
