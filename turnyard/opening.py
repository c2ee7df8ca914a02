"""How a role reaches its server, however long that takes.

A server that is away is waited for, with one line in the log at first and another when it is there: a fleet that
restarts with its server must not give up one by one. A server that cannot be used at all is an error at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from turnyard.backoff import Backoff
from turnyard.errors import StoreUnavailable
from turnyard.state.schema import THIS_VERSION, Schemas
from turnyard.state.yard import Yard

if TYPE_CHECKING:
    from turnyard.lifecycle import Progress
    from turnyard.ports import Clock

log = logging.getLogger("turnyard.opening")


async def open_yard(
    url: str,
    *,
    role: str,
    clock: Clock,
    stop: asyncio.Event,
    shards: int | None = None,
    progress: Progress | None = None,
    schemas: Schemas = THIS_VERSION,
) -> Yard | None:
    """Open the yard at `url` for a process of this role, waiting for its server; None when `stop` was set first.

    In `progress` each attempt counts, so that a process that waits counts as alive; nothing of it is left there afterwards.

    Raises:
        Unsupported: the server answered and must not be used.
    """
    backoff = Backoff(most_s=1.0)
    while not stop.is_set():
        if progress is not None:
            progress.tick("open")
        try:
            yard = await Yard.open(url, shards=shards, schemas=schemas)
        except StoreUnavailable as error:
            if not backoff.failing:
                log.warning("waiting for the server", extra={"reason": str(error)})
            await clock.sleep(backoff.next_s())
        else:
            if backoff.failing:
                log.info("the server is there")
            await yard.attend(role)
            if progress is not None:
                progress.forget("open")
            return yard
    return None
