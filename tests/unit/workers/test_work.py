"""What a child opens for its app is open once, however often the server fails it on the way."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from turnyard.clock import SystemClock
from turnyard.errors import StoreUnavailable
from workers.board import Board
from workers.options import Options
from workers.work import TurnWork

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class FlakyApps:
    """Apps whose first publication fails, after their lifespans were entered."""

    current = None

    def __init__(self) -> None:
        self.open_now = 0
        self.tries = 0

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        self.open_now += 1
        try:
            yield
        finally:
            self.open_now -= 1

    async def open(self, stack: AsyncExitStack, *_: object) -> dict[str, Any]:
        await stack.enter_async_context(self.lifespan())
        self.tries += 1
        if self.tries == 1:
            raise StoreUnavailable("gone for a moment")
        return {}


async def test_a_lifespan_that_was_entered_in_vain_is_left_before_the_next_try() -> None:
    apps = FlakyApps()
    work = TurnWork(Options(redis="", apps=()), cast("Any", apps), Board.create(1).line(0).seats, SystemClock())
    with pytest.raises(StoreUnavailable):
        await work.open(cast("Any", None), cast("Any", None))
    assert apps.open_now == 0
    await work.open(cast("Any", None), cast("Any", None))
    assert apps.open_now == 1
    await work.aclose()
    assert apps.open_now == 0
