"""How a server that tools call refuses an attempt that was left behind.

A tool that is run again after a crash calls with the same idempotency key and a higher fence. Of one key, whoever comes
with a lower fence than was seen before is an attempt that somebody else has taken over: a worker that was given up and
still goes on. Equal fences are one attempt, which may call several times.

    gate = MemoryGate()  # or RedisGate(redis) for a server of several processes

    @app.post("/refunds")
    async def refund(request):
        claim = read_claim(request.headers)
        if not await gate.enter(claim):
            return Response(status_code=409)
        ...
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from turnyard.errors import InvalidRequest

if TYPE_CHECKING:
    from redis.asyncio import Redis

KEY_HEADER = "Idempotency-Key"
FENCE_HEADER = "Turnyard-Fence"
MAX_KEY_CHARS = 255

# What runs outside a turn comes after what was run in it.
_LIFTED = 1 << 32
_MOST = (1 << 53) - 1  # the largest whole number that every JSON reader has
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request says of the attempt it belongs to."""

    key: str
    fence: int


class _Call(Protocol):
    @property
    def idempotency_key(self) -> str: ...
    @property
    def fence(self) -> int: ...


def turn_fence(epoch: int) -> int:
    """Return the fence of a call that is run within a turn, by the turn's epoch, which grows with each worker that takes it."""
    return epoch


def lifted_fence(attempt: int) -> int:
    """Return the fence of a call that is run outside its turn, by how often that was begun."""
    return _LIFTED + attempt


def claim_headers(call: _Call) -> dict[str, str]:
    """Return the headers by which a tool tells which attempt of its call a request belongs to; `call` is its context."""
    return {KEY_HEADER: call.idempotency_key, FENCE_HEADER: str(call.fence)}


def read_claim(headers: Mapping[str, str]) -> Claim:
    """Return what the headers of a request say.

    Raises:
        InvalidRequest: one is missing, or makes no sense; answer 400.
    """
    found = {name.lower(): value.strip() for name, value in headers.items()}
    key, fence = found.get(KEY_HEADER.lower(), ""), found.get(FENCE_HEADER.lower(), "")
    if not 0 < len(key) <= MAX_KEY_CHARS:
        raise InvalidRequest(f"the header {KEY_HEADER} must hold 1 to {MAX_KEY_CHARS} characters")
    if not (fence.isascii() and fence.isdigit() and len(fence) <= len(str(_MOST)) and int(fence) <= _MOST):
        raise InvalidRequest(f"the header {FENCE_HEADER} must be a whole number from 0 to {_MOST}")
    return Claim(key, int(fence))


class MemoryGate:
    """A gate of one process. It knows the `most` keys that came last; one that was forgotten enters again."""

    def __init__(self, *, most: int = 10_000) -> None:
        self._most = most
        self._seen: OrderedDict[str, int] = OrderedDict()

    async def enter(self, claim: Claim) -> bool:
        """Tell whether a request may have its effect; False: another attempt has taken over, answer 409 and do nothing."""
        before = self._seen.get(claim.key, -1)
        self._seen[claim.key] = max(before, claim.fence)
        self._seen.move_to_end(claim.key)
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return claim.fence >= before


class RedisGate:
    """A gate of several processes. A key is known for `ttl_s` seconds after it was last used: longer than any call may take."""

    def __init__(self, redis: Redis, *, prefix: str = "fence:", ttl_s: int = _DAY_S) -> None:
        self._redis = redis
        self._prefix = prefix
        self._ttl_s = ttl_s

    async def enter(self, claim: Claim) -> bool:
        """Tell whether a request may have its effect; False: another attempt has taken over, answer 409 and do nothing.

        Raises:
            redis.RedisError: the server did not answer; answer 503, so that the tool tries again.
        """
        name = f"{self._prefix}{claim.key}"
        pipe: Any = self._redis.pipeline(transaction=True)
        pipe.zadd(name, {"fence": claim.fence}, gt=True)
        pipe.zscore(name, "fence")
        pipe.expire(name, self._ttl_s)
        _, highest, _ = await pipe.execute()
        return claim.fence >= int(highest)
