"""Whether this child may still act on the outside world.

A lease is sure until `valid_until` and only under the name it was given to. Work asks before every call that goes
out; when the lease is not sure it waits, and is either told that the lease was renewed or is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnyard.ports import Clock

    from .board import Line

_LOOK_AGAIN_S = 0.05


class Lease:
    """The lease of the incarnation this child is now; `owner` is empty between two incarnations."""

    __slots__ = ("_clock", "_line", "_monotonic", "owner")

    def __init__(self, line: Line, clock: Clock) -> None:
        self._line = line
        self._clock = clock
        self._monotonic = clock.monotonic
        self.owner = ""

    def hold(self, owner: str) -> None:
        """Go on under this name."""
        self.owner = owner

    def let_go(self) -> None:
        """Stop acting until there is a new name."""
        self.owner = ""

    @property
    def sure(self) -> bool:
        """Tell whether an outside call may start now."""
        return self._monotonic() < self._line.valid_until

    def doubt(self) -> None:
        """Ask for a comparison of what the server counts to this child with what it has in hand."""
        self._line.doubt = True

    async def wait(self, given_up: Callable[[], bool]) -> bool:
        """Wait until the lease is sure; return False when `given_up` says first that nobody needs it any more."""
        while not self.sure:
            if given_up():
                return False
            await self._clock.sleep(_LOOK_AGAIN_S)
        return True

    async def name(self, given_up: Callable[[], bool]) -> str:
        """Return the name to work under, once there is one and its lease is sure; empty when `given_up` says so first."""
        while not (self.owner and self.sure):
            if given_up():
                return ""
            await self._clock.sleep(_LOOK_AGAIN_S)
        return self.owner
