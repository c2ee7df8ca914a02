"""Whether the text of a result says that the real result comes later.

The shape is a JSON object with `pending` true and a non-empty `correlation_id`; `ttl_s` is how long it may take.
Anything else is an ordinary result.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from turnyard.engine.effects import Parked


def read_pending(content: str) -> Parked | None:
    """Return what a pending result says, None for an ordinary one."""
    if not content.startswith("{") or '"pending"' not in content:
        return None
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    said = cast("dict[str, Any]", value)
    correlation = said.get("correlation_id")
    if said.get("pending") is not True or not isinstance(correlation, str) or not correlation:
        return None
    return Parked("", _ms(said.get("ttl_s")), correlation)


def _ms(ttl_s: object) -> int | None:
    """Return a time to live in milliseconds, None when it is not a positive number."""
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or ttl_s <= 0:
        return None
    return int(ttl_s * 1000)
