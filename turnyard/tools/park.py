"""What a tool returns when its result will come from outside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
from pydantic_core import to_jsonable_python

from turnyard.text import scrub_tree

STATE_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Park:
    """Leave the call open: its result arrives later, at the call's callback or outcome URL, or is looked for.

    `note` is what the model is told meanwhile. `expires_in` shortens the time the tool was declared with (None: that
    time). With `wait` the turn stops until the result is there; otherwise the model goes on. `poll` is how long after
    this the tool's `@tool.poll` function looks for the result, and again each time it finds none (None: it does not
    look); `state` is JSON that it is given, to know where. `ripe` is the result once the time is over, where that is no failure
    (None: it is a timeout); any tool may park like that. The durations are timedelta or seconds.
    """

    note: str = ""
    expires_in: timedelta | float | None = None
    wait: bool = False
    poll: timedelta | float | None = None
    state: Any = None
    ripe: str | None = None

    @property
    def expires_in_ms(self) -> int | None:
        """Return `expires_in` in milliseconds."""
        return _ms(self.expires_in)

    @property
    def poll_ms(self) -> int | None:
        """Return `poll` in milliseconds."""
        return _ms(self.poll)

    @property
    def request(self) -> dict[str, Any]:
        """Return what is kept of a call that is polled: how often to look, and what to know then.

        Raises:
            RuntimeError: the state is no JSON, or too large.
        """
        try:
            state = scrub_tree(to_jsonable_python(self.state))
            size = len(orjson.dumps(state))
        except (ValueError, TypeError) as error:
            raise RuntimeError(f"the state of a Park is no JSON: {error}") from error
        if size > STATE_BYTES:
            raise RuntimeError(f"the state of a Park has {size:,} bytes as JSON and may have {STATE_BYTES:,}; keep what is large in a file")
        return {"poll_ms": self.poll_ms, "state": state}


def _ms(duration: timedelta | float | None) -> int | None:
    if duration is None:
        return None
    return max(1, int((duration.total_seconds() if isinstance(duration, timedelta) else duration) * 1000))
