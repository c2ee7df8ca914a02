"""Whether the arguments a model sent may be used: blank is fine, anything else must be one JSON object, or a string that holds one.

What is refused is never repaired: a payload that was cut off is not closed, since half an instruction may do harm.
What is stored of a refused call is always an object, because one unparseable stored call makes a session unusable.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

import orjson

_TAIL_CHARS = 800


@dataclass(frozen=True, slots=True)
class Arguments:
    """What to store as the call's arguments, and why the call must not run (None: it may)."""

    value: dict[str, Any]
    refusal: str | None = None


def read_arguments(raw: str) -> Arguments:
    """Judge the argument text of one call."""
    if not raw or raw.isspace():
        return Arguments({})
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _refused(raw, _fault(raw))
    if isinstance(value, str):
        # some models send the whole object as one string
        value = _inside(value)
    if isinstance(value, dict):
        return Arguments(cast("dict[str, Any]", value))
    return _refused(raw, f"the arguments must be one JSON object, not {_kind(value)}; not executed, send an object")


def _inside(text: str) -> Any:
    """Return the object that a string holds as JSON, the string itself when it holds none."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return cast("Any", value) if isinstance(value, dict) else text


def _fault(raw: str) -> str:
    """Tell a payload that was cut off from one that is wrong."""
    text = raw.rstrip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated") or error.pos >= len(text):
            return f"the arguments were cut off after {len(raw)} characters; not executed, retry with smaller arguments"
    except RecursionError:
        return "the arguments are nested too deeply; not executed, retry with a flatter object"
    return "the arguments are malformed JSON; not executed, retry with correct JSON"


def _kind(value: object) -> str:
    kinds: dict[type, str] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _refused(raw: str, reason: str) -> Arguments:
    tail = raw[-_TAIL_CHARS:].encode("utf-8", "replace").decode()
    return Arguments({"refused": reason, "length": len(raw), "tail": tail}, reason)
