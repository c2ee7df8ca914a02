"""Tools whose schema comes from elsewhere: what they take, what is refused, and that a hostile schema does no harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard import ConfigError, ToolContext, tool
from turnyard.errors import InvalidInput
from turnyard.tools import Tool, run_tool
from turnyard.tools.names import MAX_CHARS, NAME, sanitised

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "ctx": {"type": "string", "pattern": "^[a-z]+$"},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
    },
    "$defs": {"part": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
}


async def echo(arguments: dict[str, Any]) -> Any:
    """Give back."""
    return arguments


async def echo_with(ctx: ToolContext[None], arguments: dict[str, Any]) -> str:
    """Give back with the call."""
    return f"{ctx.call_id} {arguments}"


def made(schema: dict[str, Any] | None = None, handler: Any = echo, **options: Any) -> Tool[..., Any]:
    """A tool with this schema."""
    return Tool.from_schema("crm.get-part", "Get a part.", SCHEMA if schema is None else schema, handler, **options)


async def test_a_tool_from_a_schema_is_what_the_schema_says() -> None:
    one = made(idempotent=True, timeout=3)
    assert (one.name, one.given, one.description, one.schema) == ("crm_get_part", "crm.get-part", "Get a part.", SCHEMA)
    assert (one.idempotent, one.limit.total_seconds(), one.is_async) == (True, 3, True)
    assert (await run_tool(one, {"id": 1, "ctx": "abc"}, ToolContext.fake())).content == '{"id":1,"ctx":"abc"}'


async def test_its_handler_may_take_the_context_and_may_be_a_plain_function() -> None:
    assert (await run_tool(made(handler=echo_with), {"id": 1}, ToolContext.fake())).content == "call_fake {'id': 1}"
    assert (await run_tool(made(handler=lambda arguments: arguments["id"]), {"id": 7}, ToolContext.fake())).content == "7"


async def test_a_schema_may_take_the_place_of_the_types() -> None:
    @tool(schema={"properties": {"to-whom": {"type": "string"}}})
    async def greet(**names: Any) -> str:
        """Greet."""
        return f"hello {names['to-whom']}"

    assert greet.schema == {"type": "object", "properties": {"to-whom": {"type": "string"}}}
    assert (await run_tool(greet, {"to-whom": "Ann"}, ToolContext.fake())).content == "hello Ann"


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        ({}, "id is missing"),
        ({"id": "1"}, "id: '1' is not of type 'integer'"),
        ({"id": 0}, "id: 0 is less than the minimum of 1"),
        ({"id": 1, "more": 2}, "'more' was unexpected"),
        ({"id": 1, "parts": [{"name": "x"}, {}]}, "parts.1.name is missing"),
        ({"id": 1, "ctx": "ABC"}, "ctx: does not match '^[a-z]+$'"),
        ([], "one JSON object"),
        ("[1]", "one JSON object"),
    ],
)
def test_a_faulty_argument_is_named(sent: Any, fault: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        made().arguments.check(sent)
    assert fault in str(caught.value)


@pytest.mark.spec("runner-36")
def test_arguments_that_came_as_a_string_are_understood() -> None:
    assert made().arguments.check('{"id": 2}') == {"id": 2}
    assert made({}).arguments.check("  ") == {}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "are one object"),
        ({"properties": {"a": {"type": "nonsense"}}}, "no JSON Schema"),
        ({"properties": 3}, "no JSON Schema"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "refers to what is not in it"),
        ({"properties": {"a": {"$ref": "https://example.com/schema.json"}}}, "refers to what is not in it"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "refers to what is not in it"),
        ({"$ref": "#"}, "without end"),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}, "without end"),
        ({"description": "x" * 300_000}, "may have 262,144"),
        ({"default": {1, 2}}, "is no JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_when_the_tool_is_made(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        made(schema)


@pytest.mark.spec("S19")
def test_a_pattern_that_could_run_for_ever_does_not() -> None:
    one = made({"properties": {"a": {"pattern": "^(a+)+$"}}, "patternProperties": {"^(b+)+$": {"type": "integer"}}})
    with pytest.raises(InvalidInput, match="a: does not match"):
        one.arguments.check({"a": "a" * 50_000 + "!", "b" * 50_000 + "!": 1})
    looks_ahead = made({"properties": {"a": {"pattern": "^(?!x)"}}})
    assert looks_ahead.arguments.check({"a": "x"}) == {"a": "x"}


@given(name=st.text(max_size=100) | st.from_regex(r"[a-z.0-9_/-]{0,80}", fullmatch=True))
def test_a_name_becomes_one_that_every_model_api_accepts_and_then_stays(name: str) -> None:
    fit = sanitised(name)
    assert NAME.match(fit)
    assert len(fit) <= MAX_CHARS
    assert sanitised(fit) == fit
    if NAME.match(name):
        assert fit == name
