"""What a tool returns when its result will come from outside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Park:
    """Leave the call open: its result arrives later, at the call's callback or outcome URL.

    `note` is what the model is told meanwhile. `expires_in` shortens the time the tool was declared with (None: that
    time). With `wait` the turn stops until the result is there; otherwise the model goes on.
    """

    note: str
    expires_in: timedelta | None = None
    wait: bool = False
