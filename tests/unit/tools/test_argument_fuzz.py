"""Whatever a model sends as arguments, the turn goes on: what fits is run, what does not is named, and no text is without end."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tools.test_typed import Box, Note, Size, Tree
from turnyard import Agent, App, ToolContext, tool
from turnyard.engine.arguments import read_arguments
from turnyard.ports import AskedCall, Done, ModelRequest
from turnyard.testing.sample import sample
from turnyard.tools import Tool, run_tool

SHORT = 4_096

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@tool
async def order(
    size: Size, boxes: list[Box], note: Note, tree: Tree | None = None, prices: dict[str, float] | None = None, how: str | int = "fast"
) -> str:
    """Order."""
    return f"{size!r} {len(boxes)} {note} {tree} {prices} {how}"


async def keep(arguments: dict[str, Any]) -> str:
    """Keep."""
    return orjson.dumps(arguments).decode()


raw_order: Tool[..., Any] = Tool.from_schema("raw_order", "Order.", order.schema, keep)
TOOLS = pytest.mark.parametrize("one", [order, raw_order], ids=lambda one: one.name)


@st.composite
def nearly_right(draw: Callable[[Any], Any]) -> Any:
    """Arguments that fit, and then a few things done to them."""
    value: Any = copy.deepcopy(sample(order.schema))
    value |= {"boxes": [{"wide": 1, "tags": ["x"]}], "tree": {"value": 1, "children": [{"value": 2}]}, "prices": {"a": 1.5}}
    for _ in range(draw(st.integers(0, 3))):
        holder, key = draw(st.sampled_from(list(places(value))))
        action = draw(st.sampled_from(["replace", "drop", "add", "wrap", "text"]))
        if action == "replace":
            holder[key] = draw(json_values)
        elif action == "drop":
            del holder[key]
        elif action == "add" and isinstance(holder, dict):
            holder[draw(st.text(max_size=200))] = draw(json_values)
        elif action == "wrap":
            holder[key] = [holder[key]]
        else:
            holder[key] = json.dumps(holder[key])
        if not list(places(value)):
            break
    return value


def places(value: Any) -> Any:
    """Every place in a value, as what holds it and the key there."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def fits(schema: dict[str, Any], value: Any) -> bool:
    """What the schema says of a value, by a checker that is not ours."""
    import jsonschema

    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.spec("S19")
@TOOLS
@given(sent=nearly_right() | json_values)
async def test_no_arguments_break_the_turn_and_every_refusal_is_short(one: Tool[..., Any], sent: Any) -> None:
    done = await run_tool(one, sent, ToolContext.fake())
    if done.is_error:
        assert done.content.startswith(f"{one.name} was not run: ")
        assert len(done.content.encode()) <= SHORT
    else:
        value = orjson.loads(sent) if isinstance(sent, str) and sent.strip() else sent or {}
        assert isinstance(value, dict)


@pytest.mark.spec("S19")
@TOOLS
@given(sent=nearly_right())
async def test_what_the_schema_refuses_is_not_run(one: Tool[..., Any], sent: Any) -> None:
    done = await run_tool(one, sent, ToolContext.fake())
    # null stands for an argument that is left out, which a schema without null does not say
    if not done.is_error and None not in (holder[key] for holder, key in places(sent)):
        assert fits(one.schema, sent)


@pytest.mark.spec("S19")
@given(raw=st.text(max_size=200) | json_values.map(lambda value: orjson.dumps(str(value)).decode()) | nearly_right().map(json.dumps))
async def test_whatever_text_comes_as_arguments_what_is_stored_and_run_is_an_object(raw: str) -> None:
    given = read_arguments(raw)
    assert isinstance(given.value, dict)
    if given.refusal is None:
        done = await run_tool(order, given.value, ToolContext.fake())
        assert len(done.content.encode()) <= SHORT or not done.is_error
    else:
        assert len(given.refusal) < SHORT


class Says:
    """A model that makes one call with these arguments and then is done."""

    def __init__(self, raw: str, name: str) -> None:
        self._done = [Done("done"), Done("", (AskedCall("1", name, raw),), finish="tool_calls")]

    async def stream(self, request: ModelRequest) -> AsyncIterator[Done]:
        del request
        yield self._done.pop()

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


app = App()


@app.policy
async def look_inside(ctx: Any, call: Any) -> None:
    """Read what the schema promises: a policy that raises fails its turn."""
    del ctx
    if call.name == "order":
        assert isinstance(call.args["boxes"], list)


judged = app.agent("judged", model="openai:x", tools=[order, raw_order])
plain = App().agent("plain", model="openai:x", tools=[order, raw_order])


@pytest.mark.spec("S19")
@pytest.mark.parametrize("agent", [plain, judged], ids=lambda agent: agent.name)
@given(
    raw=st.text(max_size=60)
    | nearly_right().map(json.dumps)
    | nearly_right().map(lambda v: json.dumps(json.dumps(v)))
    | json_values.map(json.dumps),
    name=st.sampled_from(["order", "raw_order", "nobody", "or der", ""]),
)
async def test_a_turn_goes_on_whatever_its_model_calls_with_whatever_arguments(agent: Agent, raw: str, name: str) -> None:
    result = await agent.run("go", model=Says(raw, name))
    assert (result.state, result.text) == ("succeeded", "done")
    (made,) = result.calls
    assert made.content is not None
    assert not made.is_error or len(made.content.encode()) <= SHORT
    orjson.dumps(made.args)


@pytest.mark.spec("S19")
@pytest.mark.parametrize(
    "sent",
    [
        {"x" * 1_000_000: 1},
        {f"k{n}": n for n in range(20_000)},
        {"size": "y" * 1_000_000, "boxes": [], "note": {"text": "t"}},
        {"size": 1, "boxes": [{"wide": "w", "z" * 10_000: 1}] * 1000, "note": {"text": "t"}},
        {"size": 1, "boxes": [], "note": {"text": "\ud800" * 100}},
        {"size": 1e308, "boxes": [], "note": {"text": "t"}},
        {"size": 10**400, "boxes": [], "note": {"text": "t"}},
    ],
    ids=["a long name", "many names", "a long value", "long names inside", "half characters", "a huge float", "a huge number"],
)
@TOOLS
async def test_a_refusal_of_very_much_is_short(one: Tool[..., Any], sent: Any) -> None:
    done = await run_tool(one, sent, ToolContext.fake())
    assert done.is_error
    assert len(done.content.encode()) <= SHORT
