"""What there is still to say of a notice: the app's own checks, by the group of the notice.

A check is `async def check(ctx, key)`. It is the app's code, not a tool: no model sees or calls it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from turnyard.engine.notices import CHECK_TIMEOUT_S, Check, Preparer
from turnyard.errors import ConfigError
from turnyard.records.commit import TurnView

Revalidate = Callable[[Any, str], Awaitable[Any]]
DEFAULT_TIMEOUT = timedelta(seconds=CHECK_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Revalidation:
    """A check as it was declared."""

    function: Revalidate
    timeout_s: float


def declare(group: str, function: Revalidate, timeout: timedelta | float) -> Revalidation:
    """Return a check of this group.

    Raises:
        ConfigError: it is no `async def`, or its timeout is not above zero.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"the check of {group!r} must be an async def: one that blocks could not be given up")
    if seconds <= 0:
        raise ConfigError(f"the check of {group!r} has a timeout of {seconds:g} s; it must be above zero")
    return Revalidation(function, seconds)


def preparer(checks: Mapping[str, Revalidation], context: Callable[[TurnView], Any]) -> Preparer:
    """Return what finds the notices that are over; `context` makes what a check is called with."""

    def check(of: Revalidation) -> Check:
        async def ask(view: TurnView, key: str) -> Any:
            return await of.function(context(view), key)

        return Check(ask, of.timeout_s)

    return Preparer({group: check(of) for group, of in checks.items()})
