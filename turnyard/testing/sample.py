"""What value fits a JSON Schema: the smallest one, the same each time."""

from __future__ import annotations

from typing import Any, cast

_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00",
    "duration": "PT1S",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "email": "user@example.com",
    "uri": "https://example.com/",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
}


def sample(schema: dict[str, Any]) -> Any:
    """Return the smallest value that fits `schema`; patterns are not looked at."""
    return _sample(schema, cast("dict[str, Any]", schema.get("$defs", {})))


def _sample(schema: dict[str, Any], defs: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _sample(defs[str(schema["$ref"]).rpartition("/")[2]], defs)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return _sample(schema[several][0], defs)
    return _of_type(str(schema.get("type", "null")), schema, defs)


def _of_type(kind: str, schema: dict[str, Any], defs: dict[str, Any]) -> Any:
    if kind == "object":
        properties = cast("dict[str, Any]", schema.get("properties", {}))
        return {name: _sample(properties[name], defs) for name in schema.get("required", ()) if name in properties}
    if kind == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})] * int(schema.get("minItems", 0))
        return [_sample(item, defs) for item in items]
    if kind == "string":
        text = _FORMATS.get(str(schema.get("format")), "a")
        return text.ljust(int(schema.get("minLength", 0)), "a")
    if kind in ("integer", "number"):
        return _number(schema)
    return False if kind == "boolean" else None


def _number(schema: dict[str, Any]) -> float:
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + 1
    top = schema.get("maximum", schema.get("exclusiveMaximum", 1))
    return 0 if top > 0 else top - 1
