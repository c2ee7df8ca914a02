"""What a supervisor and its children tell each other many times a second, without a system call.

Per child some doubles and a row of seats in memory that both map. Each cell has one writer: the child its loop tick, the
supervisor the moment until which the child's lease surely stands (the child itself only when it registers,
before the supervisor beats for it). Doubt is raised by the child and laid by the supervisor. Times are seconds of CLOCK_MONOTONIC, which all processes of a host share.
A seat names a turn in hand and what it is doing; it is still there to be read when the child was killed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from enum import IntEnum
from typing import TYPE_CHECKING

from turnyard.state.upkeep import Suspects

if TYPE_CHECKING:
    Cells = memoryview[float]
    Bytes = memoryview[int]

_CELLS = 8  # one cache line per child, so that two writers never share one
_SEAT_BYTES = 32  # a phase, then a session's key part
_NAME_BYTES = 26
_TICK, _VALID_UNTIL, _DOUBT = range(3)


class Phase(IntEnum):
    """What a turn is doing. Suspected of its child's death is what renders or is in a tool: both run the app's code."""

    FREE = 0
    STORING = 1
    WAITING = 2
    RENDERING = 3
    IN_TOOL = 4


class Board:
    """The shared lines of all children of one supervisor; `seats` is how many turns a child may have in hand."""

    def __init__(self, fd: int, slots: int, *, seats: int = 0) -> None:
        self.fd = fd
        self._line_bytes = _CELLS * 8 + seats * _SEAT_BYTES
        self._map = mmap.mmap(fd, slots * self._line_bytes)
        self._bytes = memoryview(self._map)

    @classmethod
    def create(cls, slots: int, *, seats: int = 0) -> Board:
        """Return a fresh board; its file has no name, children inherit the descriptor."""
        with tempfile.TemporaryFile() as file:
            file.truncate(slots * (_CELLS * 8 + seats * _SEAT_BYTES))
            return cls(os.dup(file.fileno()), slots, seats=seats)

    def line(self, slot: int) -> Line:
        """Return the line of one child."""
        line = self._bytes[slot * self._line_bytes : (slot + 1) * self._line_bytes]
        return Line(line[: _CELLS * 8].cast("d"), Seats(line[_CELLS * 8 :]))

    def close(self) -> None:
        """Let go of the descriptor; lines that are still held stay readable."""
        os.close(self.fd)


class Line:
    """One child's cells. A read or write is one aligned load or store."""

    __slots__ = ("_cells", "seats")

    def __init__(self, cells: Cells, seats: Seats) -> None:
        self._cells = cells
        self.seats = seats

    def clear(self) -> None:
        """Forget the child that had this line before."""
        for i in range(_CELLS):
            self._cells[i] = 0.0
        self.seats.clear()

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


class Seats:
    """The turns that one child has in hand. The child alone gives and takes seats; its supervisor reads them."""

    __slots__ = ("_bytes", "_free")

    def __init__(self, cells: Bytes) -> None:
        self._bytes = cells
        self._free = list(range(0, len(cells), _SEAT_BYTES))[::-1]

    def clear(self) -> None:
        """Free all of them."""
        self._bytes[:] = bytes(len(self._bytes))

    def take(self, session: str) -> Seat:
        """Seat a turn. One that finds no seat goes unseen: it is suspected only with all others."""
        name = session.encode()
        if not self._free or len(name) != _NAME_BYTES:
            return Seat(memoryview(bytearray(1)), -1)
        at = self._free.pop()
        self._bytes[at + 1 : at + 1 + _NAME_BYTES] = name
        self._bytes[at] = Phase.STORING
        return Seat(self._bytes, at)

    def leave(self, seat: Seat) -> None:
        """Free the seat of a turn that is no longer in hand."""
        if seat.at >= 0:
            seat.show(Phase.FREE)
            self._free.append(seat.at)

    def suspects(self) -> Suspects:
        """Return which turns the child may have died of: those in the app's code, all if none was."""
        seated = [at for at in range(0, len(self._bytes), _SEAT_BYTES) if self._bytes[at] != Phase.FREE]
        chosen = [at for at in seated if self._bytes[at] >= Phase.RENDERING] or seated
        names = (bytes(self._bytes[at + 1 : at + 1 + _NAME_BYTES]).decode("ascii", "replace") for at in chosen)
        return Suspects(tuple(names), alone=len(seated) == 1)


class Seat:
    """Where one turn shows what it is doing: one store of one byte."""

    __slots__ = ("_bytes", "at")

    def __init__(self, cells: Bytes, at: int) -> None:
        self._bytes = cells
        self.at = at

    def show(self, phase: Phase) -> None:
        """Show what the turn does from now on."""
        self._bytes[self.at] = phase
