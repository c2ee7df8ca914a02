"""What arguments a tool takes: its JSON Schema for the model and the check of what the model sends.

Both come from one pydantic type, so the schema never promises what the check refuses. Objects are closed unless a
model in them says otherwise, types are strict (no "5" for 5), and the function's own defaults stay its own.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, cast

import orjson
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json, to_jsonable_python
from typing_extensions import TypedDict

from turnyard.errors import ConfigError, InvalidInput
from turnyard.text import scrub_tree
from turnyard.tools.truths import misplaced, numbered

MAX_FAULTS = 10
_MAX_WHERE_CHARS = 100
_MAX_SAID_CHARS = 200
_FAULTS = {
    "missing": "is missing",
    "extra_forbidden": "is not an argument of this tool",
    "unexpected_keyword_argument": "is not an argument of this tool",
}
_UNFIT = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one tool: `schema` is what the model sees; `check` is what a call goes through.

    Not `closed` are those with a model that takes what it does not know; `numbered` those with an enumeration of numbers.
    """

    schema: dict[str, Any]
    adapter: TypeAdapter[dict[str, Any]]
    closed: bool
    numbered: bool = False

    def check(self, given: object) -> dict[str, Any]:
        """Return the arguments as Python values, by name.

        Raises:
            InvalidInput: they do not fit; the message names each faulty argument, for the model to read.
        """
        value = unwrapped(given)
        try:
            values = self._validate(value)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False, include_context=False)
        else:
            faults = misplaced(value, self._validate) if self.numbered else []
            if not faults:
                return values
        if any(f["type"] == "int_type" for f in faults):
            try:
                return self._validate(_whole(value))
            except ValidationError as error:
                faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise InvalidInput("; ".join(_fault(f) for f in faults[:MAX_FAULTS]))

    def _validate(self, given: Any) -> dict[str, Any]:
        return self.adapter.validate_json(_as_json(given), strict=True, extra="forbid" if self.closed else None)


def beneath(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `def` that decorators and `functools.partial` stand on."""
    inner = inspect.unwrap(function)
    return beneath(inner.func) if isinstance(inner, functools.partial) else inner


def arguments_of(function: Callable[..., Any], *, skip: frozenset[str], described: dict[str, str]) -> Arguments:
    """Build the arguments of `function`, leaving out the names in `skip` and those that a `functools.partial` has filled in.

    Raises:
        ConfigError: a parameter has no type, a type that cannot be JSON, or a kind that has no name.
    """
    left_out = skip | _filled(function)
    parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n not in left_out}
    hints = _hints(function, parameters)
    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        hint = hints[name]
        if name in described and not _says_itself(hint):
            hint = Annotated[hint, Field(description=described[name])]
        fields[name] = hint if parameter.default is inspect.Parameter.empty else NotRequired[hint]
    shape = cast("Any", TypedDict)("Arguments", fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(shape)
        schema = adapter.json_schema()
    except PydanticUserError as error:
        early = error.code in ("class-not-fully-defined", "undefined-annotation")
        why = "refers to one that is not defined yet; define it above the tool" if early else f"cannot be JSON: {error.message}"
        raise ConfigError(f"tool {beneath(function).__name__}: an argument has a type that {why}") from error
    closed = not _any_open(schema)
    return Arguments(_tidy(_with_defaults(schema, parameters), closed=closed), adapter, closed, numbered(schema))


def _filled(function: object) -> frozenset[str]:
    return frozenset(cast("functools.partial[Any]", function).keywords) if isinstance(function, functools.partial) else frozenset()


def _hints(function: Callable[..., Any], parameters: dict[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the type of each parameter; types of others (the context, the result) need not be importable."""
    inner = beneath(function)
    for name, parameter in parameters.items():
        if parameter.kind in _UNFIT:
            raise ConfigError(f"tool {inner.__name__}: parameter {name} cannot be given by name; write it as a plain parameter")
        if parameter.annotation is inspect.Parameter.empty:
            raise ConfigError(f"tool {inner.__name__}: parameter {name} has no type; the model's schema is made from it, add one")
        if isinstance(parameter.default, FieldInfo):
            raise ConfigError(f"tool {inner.__name__}: parameter {name} has a Field as default; write Annotated[T, Field(...)] = value")
    shim = types.SimpleNamespace(__annotations__={n: p.annotation for n, p in parameters.items()})
    scope = getattr(inner, "__globals__", {})
    try:
        return typing.get_type_hints(shim, globalns=scope, localns={}, include_extras=True)
    except NameError as error:
        raise ConfigError(f"tool {inner.__name__}: type {error.name} is not known at module level; define or import it there") from error


def _says_itself(hint: Any) -> bool:
    return any(isinstance(m, FieldInfo) and m.description for m in getattr(hint, "__metadata__", ()))


def _with_defaults(schema: dict[str, Any], parameters: dict[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the schema with the function's defaults shown; one that is no JSON is left out."""
    for name, shown in schema.get("properties", {}).items():
        default = parameters[name].default
        if default is inspect.Parameter.empty or default is None:
            continue
        try:
            shown["default"] = to_jsonable_python(default)
        except PydanticSerializationError:
            continue
    return schema


def _any_open(node: Any) -> bool:
    if isinstance(node, dict):
        known = cast("dict[str, Any]", node)
        return (known.get("additionalProperties") is True and "properties" in known) or any(_any_open(v) for v in known.values())
    return isinstance(node, list) and any(_any_open(v) for v in cast("list[Any]", node))


def _tidy(node: dict[str, Any], *, closed: bool) -> dict[str, Any]:
    """Return a schema without generated titles, with `T or null` as T, and with closed objects."""
    tidy: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs", "patternProperties"):
            tidy[key] = {name: _tidy(each, closed=closed) for name, each in value.items()}
        elif key in ("title", "discriminator") or (key == "default" and value is None):
            continue
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            tidy[key] = [_tidy(each, closed=closed) for each in value]
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            tidy[key] = _tidy(cast("dict[str, Any]", value), closed=closed)
        else:
            tidy[key] = value
    if closed and "properties" in tidy:
        tidy.setdefault("additionalProperties", False)
    return _collapse(tidy)


def _collapse(node: dict[str, Any]) -> dict[str, Any]:
    options = node.get("anyOf")
    if not options or {"type": "null"} not in options:
        return node
    rest = [o for o in options if o != {"type": "null"}]
    outer = {k: v for k, v in node.items() if k != "anyOf"}
    return {**rest[0], **outer} if len(rest) == 1 else {**outer, "anyOf": rest}


def _as_json(given: object) -> bytes:
    try:
        return to_json(given)
    except PydanticSerializationError:
        # A lone surrogate, or nesting beyond what pydantic carries: then this fails as well.
        try:
            return to_json(scrub_tree(given))
        except (PydanticSerializationError, RecursionError) as error:
            raise InvalidInput("the arguments are nested too deeply") from error


def unwrapped(given: object) -> dict[str, Any]:
    """Return the object of arguments, also one that came as a string of JSON, as some models send it; a blank string is no arguments.

    Raises:
        InvalidInput: it is no object.
    """
    if isinstance(given, str):
        try:
            given = orjson.loads(given) if given.strip() else {}
        except orjson.JSONDecodeError:
            given = None
    if not isinstance(given, dict):
        raise InvalidInput("the arguments must be one JSON object")
    return cast("dict[str, Any]", given)


def _whole(value: Any) -> Any:
    """Return the value with 5.0 as 5: JSON has one kind of number, and models write either."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {k: _whole(v) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_whole(v) for v in cast("list[Any]", value)]
    return value


def _fault(fault: ErrorDetails) -> str:
    return fault_text(fault["loc"], _FAULTS.get(fault["type"]) or f": {fault['msg']}")


def fault_text(where: Sequence[object], said: str) -> str:
    """Return what is wrong at a place in the arguments, short whatever was sent."""
    place = ".".join(str(part) for part in where) or "the arguments"
    gap = "" if said.startswith(":") else " "
    return f"{_cut(place, _MAX_WHERE_CHARS)}{gap}{_cut(said, _MAX_SAID_CHARS)}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
