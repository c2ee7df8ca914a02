"""Where a true or a false stands in place of a number that it equals: pydantic takes it for one of an enumeration, JSON does not.

What was sent is read a second time with a mark in place of each of them. An enumeration that then refuses the mark had
taken the truth for a number, unless it, or another type that may stand there, has truths of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_MARK = "true or false"
_ENUMERATED = ("enum", "literal_error")
_OWN_TRUTH = re.compile(r"\b(?:True|False)\b")
_BRANCH = re.compile(r"(?:\w+-)?(?:enum|literal)\[")  # how pydantic names one of several types in the place of a fault


def numbered(schema: Any) -> bool:
    """Tell whether a JSON Schema has an enumeration of numbers somewhere."""
    if isinstance(schema, list):
        return any(numbered(each) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    known = cast("dict[str, Any]", schema)
    listed = [*known["enum"], known.get("const")] if isinstance(known.get("enum"), list) else [known.get("const")]
    return any(type(one) in (int, float) for one in listed) or any(numbered(each) for each in known.values())


def misplaced(given: dict[str, Any], validate: Callable[[dict[str, Any]], object]) -> list[ErrorDetails]:
    """Return the faults of truths that stand for numbers in what `validate` takes."""
    marked = _marked(given)
    if marked == given:
        return []
    try:
        validate(marked)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        return [fault for fault in faults if _is_number(fault) and not _may_be_truth(fault, faults)]
    return []


def _is_number(fault: ErrorDetails) -> bool:
    return fault["type"] in _ENUMERATED and fault["input"] == _MARK and not _OWN_TRUTH.search(fault["msg"])


def _may_be_truth(fault: ErrorDetails, faults: list[ErrorDetails]) -> bool:
    """Tell whether the place is one of several types, another of which is the truth's own."""
    *place, branch = fault["loc"]
    if not _BRANCH.match(str(branch)):
        return False
    return any(other["type"].startswith("bool_") and list(other["loc"][:-1]) == place for other in faults)


def _marked(value: Any) -> Any:
    if isinstance(value, bool):
        return _MARK
    if isinstance(value, dict):
        return {name: _marked(each) for name, each in cast("dict[str, Any]", value).items()}
    return [_marked(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value
