"""Which schema each kind of type gives, and that what the model sends becomes values of that type."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any, Literal, NotRequired
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from turnyard import App, ConfigError, ToolContext, tool
from turnyard.errors import InvalidInput
from turnyard.testing import ScriptedModel, call
from turnyard.tools import Tool, run_tool


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Box:
    wide: int
    tags: list[str] = field(default_factory=list[str])


class Note(TypedDict):
    text: Annotated[str, Field(max_length=5, description="short")]
    by: NotRequired[str | None]


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = Field(alias="dogName")


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
BOX = {
    "type": "object",
    "additionalProperties": False,
    "required": ["wide"],
    "properties": {"wide": INTEGER, "tags": {"type": "array", "items": STRING}},
}
NOTE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {"text": {"type": "string", "maxLength": 5, "description": "short"}, "by": STRING},
}
CAT = {
    "type": "object",
    "additionalProperties": False,
    "description": "A cat.",
    "required": ["kind"],
    "properties": {"kind": {"type": "string", "const": "cat"}, "lives": {"type": "integer", "default": 9}},
}
DOG = {
    "type": "object",
    "additionalProperties": False,
    "required": ["kind", "dogName"],
    "properties": {"kind": {"type": "string", "const": "dog"}, "dogName": STRING},
}
TREE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["value"],
    "properties": {"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []}},
}


def takes(hint: Any) -> Tool[..., Any]:
    """A tool whose one argument has this type."""

    def one(it: Any) -> Any:
        return it

    one.__annotations__ = {"it": hint}
    return tool(one)


@pytest.mark.spec("runner-36")
@pytest.mark.parametrize(
    ("hint", "schema", "defs", "sent", "got"),
    [
        (Literal["a", 1], {"enum": ["a", 1]}, {}, 1, 1),
        (Size, {"$ref": "#/$defs/Size"}, {"Size": {"type": "integer", "enum": [1, 2]}}, 2, Size.LARGE),
        (int | None, INTEGER, {}, None, None),
        (int | str | None, {"anyOf": [INTEGER, STRING]}, {}, "x", "x"),
        (list[int | None], {"type": "array", "items": INTEGER}, {}, [1, None], [1, None]),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}, {}, {"a": 1}, {"a": 1}),
        (tuple[int, str], {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}, {}, [1, "x"], (1, "x")),
        (set[str], {"type": "array", "items": STRING, "uniqueItems": True}, {}, ["a"], {"a"}),
        (UUID, {"type": "string", "format": "uuid"}, {}, "0" * 32, UUID(int=0)),
        (datetime, {"type": "string", "format": "date-time"}, {}, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Annotated[float, Field(gt=0, le=1)], {"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {}, 1, 1.0),
        (Box, {"$ref": "#/$defs/Box"}, {"Box": BOX}, {"wide": 1}, Box(1)),
        (Note, {"$ref": "#/$defs/Note"}, {"Note": NOTE}, {"text": "x", "by": None}, {"text": "x", "by": None}),
        (Tree, {"$ref": "#/$defs/Tree"}, {"Tree": TREE}, {"value": 1, "children": [{"value": 2}]}, Tree(value=1, children=[Tree(value=2)])),
        (
            Annotated[Cat | Dog, Field(discriminator="kind")],
            {"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
            {"Cat": CAT, "Dog": DOG},
            {"kind": "dog", "dogName": "Rex"},
            Dog(kind="dog", dogName="Rex"),
        ),
        (
            dict[Annotated[str, Field(pattern="^a")], Cat],
            {"type": "object", "patternProperties": {"^a": {"$ref": "#/$defs/Cat"}}},
            {"Cat": CAT},
            {"ab": {"kind": "cat"}},
            {"ab": Cat(kind="cat")},
        ),
        (Any, {}, {}, [1], [1]),
    ],
)
def test_each_kind_of_type_has_its_schema_and_its_values(hint: Any, schema: Any, defs: Any, sent: Any, got: Any) -> None:
    made = takes(hint)
    whole = {"type": "object", "properties": {"it": schema}, "required": ["it"], "additionalProperties": False}
    assert made.schema == (whole | {"$defs": defs} if defs else whole)
    assert made.arguments.check({"it": sent}) == {"it": got}


@pytest.mark.parametrize("hint", [Box, Note, Cat])
def test_an_unknown_field_is_refused_at_every_depth(hint: Any) -> None:
    whole: dict[Any, Any] = {Box: {"wide": 1}, Note: {"text": "x"}, Cat: {"kind": "cat"}}
    with pytest.raises(InvalidInput, match=r"it\.0\.other is not an argument"):
        takes(list[hint]).arguments.check({"it": [whole[hint] | {"other": 1}]})


@pytest.mark.parametrize("hint", [Size, Literal[1, "a"], list[Size], dict[str, Literal[0, 1]], Box | Literal[1]])
def test_true_is_no_number_though_it_equals_one(hint: Any) -> None:
    sent = {list[Size]: [True], dict[str, Literal[0, 1]]: {"a": True}}.get(hint, True)
    with pytest.raises(InvalidInput, match="it"):
        takes(hint).arguments.check({"it": sent})


def test_true_is_taken_where_it_may_stand() -> None:
    assert takes(Literal[True, 2]).arguments.check({"it": True}) == {"it": True}
    assert takes(list[bool | Size]).arguments.check({"it": [True, 2, False]}) == {"it": [True, Size.LARGE, False]}


def test_a_number_with_digits_is_exact() -> None:
    assert takes(Decimal).arguments.check({"it": "0.10"}) == {"it": Decimal("0.10")}


def test_a_tool_without_arguments_takes_none() -> None:
    @tool
    def now() -> str:
        """Tell."""
        return "now"

    assert now.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.arguments.check("") == {}
    with pytest.raises(InvalidInput, match="x is not an argument"):
        now.arguments.check({"x": 1})


@pytest.mark.spec("runner-36")
async def test_bad_arguments_become_an_error_result_that_names_the_fault_and_the_turn_goes_on() -> None:
    model = ScriptedModel([[call("one", it="x")], [call("one", it=3)], "well"])
    result = await App().agent("a", model=model, tools=[takes(int)]).run("go")
    assert [(made.content, made.is_error) for made in result.calls] == [
        ("one was not run: it: Input should be a valid integer. Correct the arguments and call it again.", True),
        ("3", False),
    ]
    assert result.text == "well"


# -- what may be a tool


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    async def price(self, ctx: ToolContext[None], part: str) -> str:
        """Tell a price.

        Args:
            part: which.
        """
        return f"{self.name} {part} {ctx.call_id}"


async def deliver(where: str, what: str = "all", *, shop: str) -> str:
    """Deliver something."""
    return f"{where} {what} {shop}"


async def test_a_bound_method_is_a_tool() -> None:
    price = tool(Shop("Anna's").price)
    assert (price.name, price.description) == ("price", "Tell a price.")
    assert price.schema["properties"] == {"part": {"type": "string", "description": "which."}}
    assert (await run_tool(price, {"part": "x"}, ToolContext.fake())).content == "Anna's x call_fake"


async def test_what_a_partial_has_filled_in_the_model_does_not_see() -> None:
    made = tool(functools.partial(deliver, shop="Anna's"))
    assert (made.name, made.description, made.is_async) == ("deliver", "Deliver something.", True)
    assert list(made.schema["properties"]) == ["where", "what"]
    assert (await run_tool(made, {"where": "here"}, ToolContext.fake())).content == "here all Anna's"
    with pytest.raises(InvalidInput, match="shop is not an argument"):
        made.arguments.check({"where": "here", "shop": "mine"})


class Early(BaseModel):
    later: Later


class Later(BaseModel):
    value: int


def test_a_type_that_waits_for_another_is_refused_until_it_is_there() -> None:
    def odd(it: Unready) -> None:
        """Take it."""

    class Unready(BaseModel):
        more: "Nowhere"  # noqa: F821, UP037  # pyright: ignore[reportUndefinedVariable]

    odd.__annotations__ = {"it": Unready}
    with pytest.raises(ConfigError, match="not defined yet; define it above"):
        tool(odd)
    assert takes(Early).arguments.check({"it": {"later": {"value": 1}}}) == {"it": Early(later=Later(value=1))}


def test_a_function_that_yields_is_refused() -> None:
    async def count(to: int) -> Any:
        """Count."""
        yield to

    with pytest.raises(ConfigError, match="tool count: a tool gives one result"):
        tool(count)
