"""What the model is told of a tool's arguments, and what its arguments must be."""

from __future__ import annotations

import enum
from datetime import date, timedelta
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from turnyard.errors import ConfigError, InvalidInput
from turnyard.tools import ToolContext, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    title: str | None = None


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    y: int


@tool
async def paint(ctx: ToolContext[None], scene: str, colour: Colour, at: list[Point], when: date | None = None, coats: int = 2) -> str:
    """Paint a scene.

    Takes its time.

    Args:
        scene: what to paint,
            in a few words.
        at (list): where.

    Returns:
        A link.
    """
    return f"{scene} {colour} {at} {when} {coats}"


@tool
def odd_names(schema: int, json: int, self: int, copy: Annotated[int, Field(ge=1, description="own words")] = 1) -> list[int]:
    """Use names that pydantic's models have too.

    Args:
        copy: other words.
    """
    return [schema, json, self, copy]


@tool
def loose(inner: Loose) -> str:
    """Take an open object."""
    return str(inner)


def test_the_schema_of_a_tool_is_made_from_its_types_and_docstring() -> None:
    assert paint.description == "Paint a scene.\n\nTakes its time."
    assert paint.schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["scene", "colour", "at"],
        "properties": {
            "scene": {"type": "string", "description": "what to paint, in a few words."},
            "colour": {"$ref": "#/$defs/Colour"},
            "at": {"type": "array", "items": {"$ref": "#/$defs/Point"}, "description": "where."},
            "when": {"type": "string", "format": "date"},
            "coats": {"type": "integer", "default": 2},
        },
        "$defs": {
            "Colour": {"type": "string", "enum": ["red", "blue"]},
            "Point": {
                "type": "object",
                "additionalProperties": False,
                "required": ["x"],
                "properties": {"x": {"type": "integer"}, "title": {"type": "string"}},
            },
        },
    }


def test_the_context_is_no_argument() -> None:
    assert "ctx" not in paint.schema["properties"]
    assert paint.takes_context
    assert not odd_names.takes_context


def test_arguments_become_python_values() -> None:
    given = paint.arguments.check({"scene": "sea", "colour": "blue", "at": [{"x": 1}], "when": "2026-01-02"})
    assert given == {"scene": "sea", "colour": Colour.BLUE, "at": [Point(x=1)], "when": date(2026, 1, 2)}


def test_an_optional_argument_may_be_null() -> None:
    assert paint.arguments.check({"scene": "s", "colour": "red", "at": [], "when": None})["when"] is None


def test_an_argument_may_be_called_like_anything() -> None:
    assert odd_names(**odd_names.arguments.check({"schema": 1, "json": 2, "self": 3})) == [1, 2, 3, 1]


def test_an_annotation_describes_an_argument_better_than_the_docstring() -> None:
    assert odd_names.schema["properties"]["copy"] == {"type": "integer", "minimum": 1, "default": 1, "description": "own words"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"scene": "s", "colour": "green", "at": []}, "colour"),
        ({"colour": "red", "at": []}, "scene is missing"),
        ({"scene": 5, "colour": "red", "at": []}, "scene"),
        ({"scene": "s", "colour": "red", "at": [{"x": "1"}]}, "at.0.x"),
        ({"scene": "s", "colour": "red", "at": [{"x": 1, "z": 1}]}, "at.0.z is not an argument"),
        ({"scene": "s", "colour": "red", "at": [], "coats": "2"}, "coats"),
        ({"scene": "s", "colour": "red", "at": [], "coats": 2.5}, "coats"),
        ({"scene": "s", "colour": "red", "at": [], "coats": True}, "coats"),
        ({"scene": "s", "colour": "red", "at": [], "extra": 1}, "extra is not an argument"),
        ({"scene": "s", "colour": "red", "at": [], "ctx": 1}, "ctx is not an argument"),
        (["s"], "one JSON object"),
        ("not json", "one JSON object"),
        (None, "one JSON object"),
    ],
)
def test_a_faulty_argument_is_named(given: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        paint.arguments.check(given)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert paint.arguments.check({"scene": "s", "colour": "red", "at": [{"x": 3.0}], "coats": 4.0})["coats"] == 4


def test_an_object_sent_as_a_string_is_understood() -> None:
    assert odd_names.arguments.check('{"schema": 1, "json": 2, "self": 3}') == {"schema": 1, "json": 2, "self": 3}


def test_a_broken_character_in_an_argument_does_no_harm() -> None:
    assert paint.arguments.check({"scene": "a\udc97", "colour": "red", "at": []})["scene"] == "a\ufffd"


def test_arguments_nested_without_end_are_refused() -> None:
    deep: Any = 1
    for _ in range(1000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="deep"):
        loose.arguments.check({"inner": {"y": 1, "more": deep}})


def test_a_model_that_says_it_is_open_stays_open() -> None:
    assert loose.arguments.check({"inner": {"y": 1, "more": 2}})["inner"].model_extra == {"more": 2}
    assert loose.schema["$defs"]["Loose"]["additionalProperties"] is True
    with pytest.raises(InvalidInput):
        loose.arguments.check({"inner": {"y": 1}, "more": 2})


def test_one_message_names_several_faults_and_ends() -> None:
    with pytest.raises(InvalidInput) as caught:
        paint.arguments.check({f"u{i}": 1 for i in range(1000)})
    assert 5 < str(caught.value).count(";") < 20


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda x: x, "name"),
        ("untyped", "parameter a has no type"),
        ("star", "parameter args"),
        ("unknown_type", "Nowhere"),
        ("no_json", "cannot be JSON"),
        ("field_default", "Annotated"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_where_it_is_declared(wrong: Any, named: str) -> None:
    functions = {f.__name__: f for f in (untyped, star, unknown_type, no_json, field_default)}
    with pytest.raises(ConfigError, match=named):
        tool(functions.get(wrong, wrong) if isinstance(wrong, str) else wrong)


def untyped(a) -> None:  # pyright: ignore[reportMissingParameterType]
    """Lack a type."""


def star(*args: int) -> None:
    """Take any number."""


def unknown_type(a: Nowhere) -> None:  # pyright: ignore[reportUndefinedVariable]  # noqa: F821
    """Name a type that is not there."""


def no_json(a: object, b: pytest.Config) -> None:
    """Take what JSON cannot hold."""


def field_default(a: int = Field(ge=1)) -> None:
    """Have a field as default."""


def test_a_tool_stays_callable_as_a_plain_function() -> None:
    assert odd_names(1, 2, 3) == [1, 2, 3, 1]
    assert odd_names.__doc__ == odd_names.function.__doc__


@pytest.mark.parametrize(
    ("options", "kind", "queue"),
    [
        ({}, "plain", None),
        ({"lift": True}, "lift", "default"),
        ({"lift": True, "queue": "gpu", "timeout": 5, "idempotent": True, "wait": True}, "lift", "gpu"),
        ({"park": timedelta(days=1)}, "callback", None),
    ],
)
def test_options_decide_the_kind_of_the_calls(options: dict[str, Any], kind: str, queue: str | None) -> None:
    made = tool(**options)(some)
    assert (made.kind, made.queue, made.idempotent, made.wait) == (
        kind,
        queue,
        options.get("idempotent", False),
        options.get("wait", False),
    )
    assert (made.facts().kind, made.facts().queue) == (kind, queue)


def test_a_duration_may_be_seconds() -> None:
    made = tool(timeout=1.5)(some)
    assert made.timeout == made.limit == timedelta(seconds=1.5)
    assert tool(some).timeout is None


@pytest.mark.parametrize("options", [{"lift": True, "park": 5}, {"queue": "gpu"}, {"wait": True}, {"timeout": 0}, {"park": -1}])
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="tool some"):
        tool(**options)(some)


def some(a: Literal["x", "y"]) -> str:
    """Do something."""
    return a
