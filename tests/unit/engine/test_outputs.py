"""What a turn gives: everything the model said, in order, and one value of the declared type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from turnyard import App, tool
from turnyard.app.output import Output
from turnyard.testing import ScriptedModel, call, say


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass
class Line:
    name: str
    amount: Decimal


class Order(BaseModel):
    kind: Literal["new", "old"]
    at: datetime | None = None
    lines: list[Line] = []
    more: dict[str, int | str] = {}


lines = st.builds(Line, st.text(max_size=8), st.decimals(allow_nan=False, allow_infinity=False))
more = st.dictionaries(st.text(max_size=4), st.integers(-(2**53), 2**53) | st.text(max_size=8), max_size=3)
orders = st.builds(Order, kind=st.sampled_from(["new", "old"]), at=st.none() | st.datetimes(), lines=st.lists(lines, max_size=3), more=more)


@pytest.mark.spec("turn-45")
async def test_everything_the_model_said_in_the_turn_is_there_in_order() -> None:
    model = ScriptedModel(
        [say("let me see", call("add", a=1, b=2)), call("add", a=3, b=4), say("nearly", call("add", a=3, b=7)), "it is 10"]
    )
    result = await App().agent("a", model=model, tools=[add]).run("go")
    assert result.texts == ("let me see", "nearly", "it is 10")
    assert result.text == result.output == "it is 10"


async def test_what_was_said_before_the_prompt_is_not_said_again() -> None:
    talk = App().agent("a", model=ScriptedModel(["one", "two"])).local()
    assert (await talk.prompt("a")).texts == ("one",)
    assert (await talk.prompt("b")).texts == ("two",)


@pytest.mark.spec("turn-45")
@given(orders)
def test_an_output_that_was_stored_is_read_as_the_very_value_that_was_said(order: Order) -> None:
    output = Output(Order, agent="a")
    stored = output.read(TypeAdapter(Order).dump_json(order).decode())
    assert output.decode(orjson.loads(orjson.dumps(stored))) == order


@pytest.mark.spec("turn-45")
@pytest.mark.parametrize("said", ["", "no", "{", '{"kind": "newer"}', '{"kind": "new", "lines": [{"name": "x"}]}', "[]", "\x00"])
def test_an_output_that_is_not_of_its_type_is_an_error_whether_it_is_said_or_stored(said: str) -> None:
    output = Output(Order, agent="a")
    with pytest.raises(ValueError, match=r"the reply|kind|lines"):
        output.read(said)
    with pytest.raises(ValueError, match="Order"):
        output.decode(_value(said))


def _value(said: str) -> Any:
    try:
        return orjson.loads(said)
    except orjson.JSONDecodeError:
        return said
