"""What a supervisor and its children tell each other many times a second, without a system call.

One line of doubles per child in memory that both map. Each cell has one writer: the child its loop tick, the
supervisor the moment until which the child's lease surely stands (the child itself only when it registers,
before the supervisor beats for it). Doubt is raised by the child and laid by the supervisor. Times are seconds of CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Cells = memoryview[float]

_CELLS = 8  # one cache line per child, so that two writers never share one
_TICK, _VALID_UNTIL, _DOUBT = range(3)


class Board:
    """The shared lines of all children of one supervisor."""

    def __init__(self, fd: int, slots: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, slots * _CELLS * 8)
        self._cells = memoryview(self._map).cast("d")

    @classmethod
    def create(cls, slots: int) -> Board:
        """Return a fresh board; its file has no name, children inherit the descriptor."""
        with tempfile.TemporaryFile() as file:
            file.truncate(slots * _CELLS * 8)
            return cls(os.dup(file.fileno()), slots)

    def line(self, slot: int) -> Line:
        """Return the line of one child."""
        return Line(self._cells[slot * _CELLS : (slot + 1) * _CELLS])

    def close(self) -> None:
        """Let go of the descriptor; lines that are still held stay readable."""
        os.close(self.fd)


class Line:
    """One child's cells. A read or write is one aligned load or store."""

    __slots__ = ("_cells",)

    def __init__(self, cells: Cells) -> None:
        self._cells = cells

    def clear(self) -> None:
        """Forget the child that had this line before."""
        for i in range(_CELLS):
            self._cells[i] = 0.0

    @property
    def tick(self) -> float:
        """When the child's loop last came round; 0 before it first did."""
        return self._cells[_TICK]

    @tick.setter
    def tick(self, at_s: float) -> None:
        self._cells[_TICK] = at_s

    @property
    def valid_until(self) -> float:
        """Until when the child's lease surely stands; after it, no outside call may start."""
        return self._cells[_VALID_UNTIL]

    @valid_until.setter
    def valid_until(self, at_s: float) -> None:
        self._cells[_VALID_UNTIL] = at_s

    @property
    def doubt(self) -> bool:
        """Tell whether the server may count something to the child that the child does not know of."""
        return self._cells[_DOUBT] != 0.0

    @doubt.setter
    def doubt(self, raised: bool) -> None:
        self._cells[_DOUBT] = float(raised)
