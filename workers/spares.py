"""Who takes a dead child's place at once: a process that has loaded the apps already.

Loading them is most of a child's start. So a worker keeps one process more than it runs children; it has no name, no
lease and no turns until it is needed, and another is started in its stead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from turnyard.backoff import Backoff

from .children import Spare

if TYPE_CHECKING:
    from turnyard.ports import Clock

    from .board import Board
    from .options import Options

log = logging.getLogger("turnyard.workers")

_AFTER_S = 2.0  # not while the first children start: they have the better use of the processor
_LOOK_S = 0.5


class Spares:
    """The spare of one worker. One for lifted tasks has none: a task waits for its own start, too."""

    def __init__(self, options: Options, board: Board, clock: Clock) -> None:
        self._options = options
        self._board = board
        self._clock = clock
        self._spare: Spare | None = None

    def take(self) -> Spare | None:
        """Return the spare, or None when there is none."""
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.alive else None

    async def keep(self) -> None:
        """See to it that there is a spare, for as long as this runs."""
        backoff = Backoff(first_s=_AFTER_S, most_s=60.0)
        while self._options.role == "worker":
            await self._clock.sleep(_LOOK_S if self._spare is not None else backoff.next_s())
            if self._spare is not None and self._spare.alive:
                backoff.reset()
            else:
                await self._start()

    async def _start(self) -> None:
        try:
            self._spare = await Spare.start(self._options, self._board)
        except OSError as error:
            log.warning("no spare child can be started", extra={"reason": str(error)})

    def close(self) -> None:
        """End the spare."""
        if self._spare is not None:
            self._spare.kill()
            self._spare = None
