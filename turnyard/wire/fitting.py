"""Does a value fit a tool's JSON Schema, as far as that can be told without the tool's code?

Only what cannot be right is refused: what this does not understand passes, and the tool's own check has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from turnyard.records.input import escape_pointer

_DEEPEST = 32
_MOST = 20

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
    "null": (type(None),),
}

Fault = dict[str, str]


def faults_of(value: Any, schema: dict[str, Any], *, pointer: str = "") -> list[Fault]:
    """Return what is wrong with a value, each with its JSON pointer below `pointer`; empty when nothing is known to be."""
    checker = _Checker(schema)
    return [fault for fault, _ in zip(checker.check(value, schema, pointer, 0), range(_MOST), strict=False)]


class _Checker:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def check(self, value: Any, schema: Any, pointer: str, depth: int) -> Iterator[Fault]:
        """Yield the faults of one value."""
        schema = self._followed(schema)
        if depth > _DEEPEST or not schema:
            return
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            if all(any(self.check(value, choice, pointer, depth + 1)) for choice in choices):
                yield {"pointer": pointer, "detail": "fits none of the forms that the tool takes"}
            return
        wrong = _wrong_kind(value, schema)
        if wrong is not None:
            yield {"pointer": pointer, "detail": wrong}
        elif isinstance(value, dict):
            yield from self._object(cast("dict[str, Any]", value), schema, pointer, depth)
        elif isinstance(value, list):
            for i, item in enumerate(cast("list[Any]", value)):
                yield from self.check(item, schema.get("items"), f"{pointer}/{i}", depth + 1)

    def _object(self, value: dict[str, Any], schema: dict[str, Any], pointer: str, depth: int) -> Iterator[Fault]:
        known: dict[str, Any] = schema.get("properties") or {}
        needed: list[str] = schema.get("required") or []
        for name in needed:
            if name not in value:
                yield {"pointer": f"{pointer}/{escape_pointer(name)}", "detail": "is missing"}
        rest = schema.get("additionalProperties")
        for name, item in value.items():
            at = f"{pointer}/{escape_pointer(name)}"
            if item is None and name in known and name not in needed:
                continue  # a schema shows "text or nothing" as text that may be left out
            if name in known:
                yield from self.check(item, known[name], at, depth + 1)
            elif rest is False:
                yield {"pointer": at, "detail": "is not an argument of this tool"}
            else:
                yield from self.check(item, rest, at, depth + 1)

    def _followed(self, schema: Any) -> dict[str, Any]:
        """Return the schema that a reference within the document names; nothing for what says nothing."""
        for _ in range(_DEEPEST):
            if not isinstance(schema, dict):
                return {}
            found = cast("dict[str, Any]", schema)
            if not isinstance(name := found.get("$ref"), str):
                return found
            schema = self._root
            for part in name.removeprefix("#/").split("/"):
                schema = cast("dict[str, Any]", schema).get(part) if isinstance(schema, dict) else None
        return {}


def _wrong_kind(value: Any, schema: dict[str, Any]) -> str | None:
    """Return what a value is not, None when its kind is right."""
    if "const" in schema and value != schema["const"]:
        return f"must be {schema['const']!r}"
    if schema.get("enum") and value not in schema["enum"]:
        return "must be one of " + ", ".join(repr(choice) for choice in schema["enum"])
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds or []
    if not kinds or any(_is(value, kind) for kind in kinds):
        return None
    return f"must be of type {' or '.join(kinds)}"


def _is(value: Any, kind: str) -> bool:
    if kind not in _TYPES:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])
