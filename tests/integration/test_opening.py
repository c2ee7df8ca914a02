"""How a role reaches its server, and what its health says of that afterwards."""

from __future__ import annotations

import asyncio

from turnyard.lifecycle import STALE_AFTER_S, Progress
from turnyard.opening import open_yard
from turnyard.testing import ManualClock


async def test_a_role_that_reached_its_server_once_is_well_however_long_it_lives(clean: str) -> None:
    """Reaching it is no loop: an attempt that is not forgotten would make a good process look stuck for ever."""
    clock = ManualClock()
    progress = Progress(clock)
    yard = await open_yard(clean, role="test", clock=clock, stop=asyncio.Event(), progress=progress)
    assert yard is not None
    await yard.aclose()
    await clock.advance(10 * STALE_AFTER_S)
    assert progress.stale(STALE_AFTER_S) == {}
