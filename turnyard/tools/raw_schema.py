"""What arguments a tool takes whose JSON Schema comes from elsewhere: a server, a catalogue, a hand-written file.

The schema may be a stranger's. Nothing is fetched for it, no pattern in it can run for ever, and one that cannot be
used is refused when the tool is made and not when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any, cast

import orjson
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from turnyard.errors import ConfigError, InvalidInput
from turnyard.text import scrub_tree
from turnyard.tools.schema import MAX_FAULTS, fault_text, unwrapped

_MAX_SCHEMA_BYTES = 262_144
# Names would be matched by an engine that a hostile pattern keeps busy for ever.
_BESIDE_PATTERNS = frozenset({"patternProperties", "additionalProperties", "unevaluatedProperties"})
_BY_NAME = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples"})


@dataclass(frozen=True, slots=True)
class RawArguments:
    """The arguments of one tool: `schema` is what the model sees; `check` is what a call goes through."""

    schema: dict[str, Any]
    _errors: Callable[[Any], Iterator[Any]]

    def check(self, given: object) -> dict[str, Any]:
        """Return the arguments as the JSON they came as.

        Raises:
            InvalidInput: they do not fit; the message names each faulty argument, for the model to read.
        """
        value = unwrapped(given)
        try:
            clean: dict[str, Any] = orjson.loads(orjson.dumps(scrub_tree(value)))
            faults = [_fault(error) for error in islice(self._errors(clean), MAX_FAULTS)]
        except (RecursionError, TypeError) as error:
            raise InvalidInput("the arguments are nested too deeply, or hold what JSON cannot") from error
        if faults:
            raise InvalidInput("; ".join(faults))
        return clean


def raw_arguments(tool: str, schema: Mapping[str, Any]) -> RawArguments:
    """Return the arguments that `schema` describes.

    Raises:
        ConfigError: it is no JSON Schema of an object, it refers to something outside itself, or the package `jsonschema` is missing.
    """
    jsonschema, validators, referencing = _packages(tool)
    shown = _own_copy(tool, schema)
    kind = validators.validator_for(shown, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(shown)
    except (jsonschema.SchemaError, RecursionError) as error:
        raise ConfigError(f"tool {tool}: this is no JSON Schema: {str(error).splitlines()[0]}") from error
    checked = _checkable(shown)
    # a registry of its own: the default one would fetch what a schema refers to
    validator = validators.extend(kind, {"pattern": _pattern_keyword(jsonschema.ValidationError)})(checked, registry=referencing.Registry())
    try:
        _try_references(validator, checked)
        list(validator.iter_errors({}))
    except Exception as error:
        raise ConfigError(f"tool {tool}: its schema refers to what is not in it, or to itself without end: {error!s:.200}") from error
    return RawArguments(shown, validator.iter_errors)


def _packages(tool: str) -> tuple[Any, Any, Any]:
    try:
        return import_module("jsonschema"), import_module("jsonschema.validators"), import_module("referencing")
    except ImportError as error:
        raise ConfigError(f"tool {tool}: a schema of its own needs the package jsonschema: pip install 'turnyard[server]'") from error


def _own_copy(tool: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        raw = orjson.dumps(dict(schema))
    except TypeError as error:
        raise ConfigError(f"tool {tool}: its schema is no JSON ({error})") from error
    if len(raw) > _MAX_SCHEMA_BYTES:
        raise ConfigError(f"tool {tool}: its schema has {len(raw):,} bytes and may have {_MAX_SCHEMA_BYTES:,}")
    copy: dict[str, Any] = {"type": "object"} | orjson.loads(raw)
    if copy["type"] != "object":
        raise ConfigError(f"tool {tool}: its schema is of {copy['type']!r}; the arguments of a tool are one object")
    return copy


def _checkable(node: Any, *, names: bool = False) -> Any:
    """Return the schema without what cannot be checked in bounded time, and without what would be wrong in its absence."""
    if isinstance(node, list):
        return [_checkable(each) for each in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    known = cast("dict[str, Any]", node)
    skip = _BESIDE_PATTERNS if not names and "patternProperties" in known else frozenset[str]()
    return {
        key: value if key in _VALUES and not names else _checkable(value, names=not names and key in _BY_NAME)
        for key, value in known.items()
        if key not in skip
    }


def _try_references(validator: Any, node: Any) -> None:
    """Resolve every reference of the schema once.

    Raises:
        Exception: one leads nowhere.
    """
    if isinstance(node, list):
        for each in cast("list[Any]", node):
            _try_references(validator, each)
    elif isinstance(node, dict):
        known = cast("dict[str, Any]", node)
        if isinstance(known.get("$ref"), str):
            list(validator.evolve(schema={"$ref": known["$ref"]}).iter_errors({}))
        for each in known.values():
            _try_references(validator, each)


def _matcher(pattern: str) -> SchemaValidator | None:
    """Return what matches a pattern in linear time; None for one that needs more, which only the tool itself can check."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _pattern_keyword(error: Callable[[str], Any]) -> Callable[..., Iterator[Any]]:
    """Return how a schema's patterns are checked; `error` makes what is yielded for one that does not match."""
    matchers: dict[str, SchemaValidator | None] = {}

    def check(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
        if pattern not in matchers:
            matchers[pattern] = _matcher(pattern)
        matcher = matchers[pattern]
        if matcher is None or not validator.is_type(instance, "string"):
            return
        try:
            matcher.validate_python(instance)
        except ValidationError:
            yield error(f"does not match {pattern!r}")

    return check


def _fault(error: Any) -> str:
    where = [*error.absolute_path]
    if error.validator == "required":
        missing = next((name for name in error.validator_value if name not in error.instance), "")
        return fault_text([*where, missing], "is missing")
    return fault_text(where, f": {error.message}")
