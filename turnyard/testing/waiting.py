"""How a test waits for something: by looking, never by guessing how long it takes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

_LOOK_EVERY_S = 0.005


async def wait_until(predicate: Callable[[], bool | Awaitable[bool]], *, description: str, timeout_s: float = 10.0) -> None:
    """Return as soon as `predicate` holds. `description` says what is waited for, in words that complete "waited for".

    Raises:
        TimeoutError: it did not hold within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = predicate()
        if await found if inspect.isawaitable(found) else found:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s for {description}")
        await asyncio.sleep(_LOOK_EVERY_S)
