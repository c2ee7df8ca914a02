"""What waits to be said to a running session: messages that steer it, and messages for when it would stop.

A queue gives out its messages in the order they came, one at a time or all at once. It may be filled from any thread.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Any, Literal

Drain = Literal["one", "all"]
Body = dict[str, Any]


class MessageQueue:
    """Messages in the order they came. `mode` says whether `drain` gives out the oldest one or all of them."""

    def __init__(self, mode: Drain = "one") -> None:
        self.mode: Drain = mode
        self._lock = Lock()
        self._held: deque[Body] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def enqueue(self, body: Body) -> None:
        """Add a message at the end."""
        with self._lock:
            self._held.append(body)

    def drain(self) -> list[Body]:
        """Take out what is due: nothing, the oldest message, or all."""
        with self._lock:
            count = len(self._held) if self.mode == "all" else min(1, len(self._held))
            return [self._held.popleft() for _ in range(count)]

    def clear(self) -> None:
        """Drop all messages without a word."""
        with self._lock:
            self._held.clear()
