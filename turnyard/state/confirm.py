"""When a server says that what was written is where the deployment wants it: at a replica, or on disk.

The question goes with the calls over their own connection, because WAIT answers for what its connection wrote. A call
that is made again writes nothing, so each question follows a mark of its own: it waits for all that came before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnyard.state.target import DurableAck

MARK = "mark"
WAIT_MS = 1_000
_QUESTIONS: dict[str, tuple[Any, ...]] = {"replica": ("WAIT", 1, WAIT_MS), "fsync": ("WAITAOF", 1, 0, WAIT_MS)}


class Confirm:
    """The question, and whether it was answered with yes."""

    def __init__(self, durable_ack: DurableAck) -> None:
        self._question = _QUESTIONS[durable_ack]
        self.lacking = f"the server has it, and {self._question[0]} did not confirm it within {WAIT_MS} ms; see its {self._whose()}"

    def _whose(self) -> str:
        return "replica" if self._question[0] == "WAIT" else "disk"

    def commands(self, mark: str, key: str) -> list[tuple[Any, ...]]:
        """Return what to send after the calls: `mark` is the mark's function, `key` the ingress key of one of them."""
        return [("FCALL", mark, 1, key), self._question]

    @staticmethod
    def given(replies: Sequence[Any]) -> bool:
        """Tell whether the answers to `commands` mean yes: fewer than one replica, or no disk, is no."""
        marked, count = replies
        # WAIT answers with a number, WAITAOF with two: of this server, and of its replicas.
        here = cast("list[Any]", count)[0] if isinstance(count, list) else count
        return marked == b"OK" and isinstance(here, int) and here >= 1
