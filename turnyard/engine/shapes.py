"""Whether the text of a result says more than the model is to read: that the real one comes later, or that news is over.

Both shapes are JSON objects, told by one field that is true. A promise has `pending`, a non-empty `correlation_id`, and
`ttl_s` for how long it may take. A clearing has `clear`, and a non-empty `group_by` and `key`: the pair of notices that
do not matter any more. Anything else is an ordinary result.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from turnyard.engine.effects import Parked
from turnyard.records.notices import group_key

MOST_TTL_S = 366 * 86_400


def read_pending(content: str) -> Parked | None:
    """Return what a pending result says, None for an ordinary one."""
    said = _object(content, "pending")
    correlation = said.get("correlation_id")
    if not isinstance(correlation, str) or not correlation:
        return None
    return Parked("", _ms(said.get("ttl_s")), correlation)


def read_clear(content: str) -> str | None:
    """Return the pair (group_key) that a result says to be over, None for an ordinary one."""
    said = _object(content, "clear")
    group, key = said.get("group_by"), said.get("key")
    if not isinstance(group, str) or not isinstance(key, str) or not group or not key or "\n" in group:
        return None
    return group_key(group, key)


def _object(content: str, sign: str) -> dict[str, Any]:
    """Return the object that the text is, with the field `sign` true in it; an empty one when it is none."""
    if not content.startswith("{") or f'"{sign}"' not in content:
        return {}
    try:
        said = cast("dict[str, Any]", orjson.loads(content))
    except orjson.JSONDecodeError:
        return {}
    return said if said.get(sign) is True else {}


def _ms(ttl_s: object) -> int | None:
    """Return a time to live in milliseconds, a year at most; None when it is not a positive number."""
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or ttl_s <= 0:
        return None
    return int(min(ttl_s, MOST_TTL_S) * 1000) or 1
