"""What is refused before anybody runs it would have been refused by the tool, too."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from turnyard import tool
from turnyard.errors import InvalidInput
from turnyard.wire.fitting import faults_of


class Line(BaseModel):
    sku: str
    count: int = 1
    more: list[Line] | None = None


@tool
async def buy(
    order: str, total: float, lines: list[Line], kind: Literal["full", "part"] = "full", urgent: bool = False, note: str | None = None
) -> str:
    """Buy something."""
    return ""


@tool
async def sized(width: Annotated[int, Field(ge=1)], tags: dict[str, int], either: int | list[str]) -> str:
    """Take sizes."""
    return ""


LEAF = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["full", "part", "x", ""])
LINE = st.fixed_dictionaries({"sku": st.sampled_from(["a", "b"])}, optional={"count": LEAF, "more": st.none() | st.just([]), "odd": LEAF})
VALUE = LEAF | st.lists(LEAF | LINE, max_size=2) | st.dictionaries(st.sampled_from(["sku", "count", "a"]), LEAF, max_size=2)
BUY = st.dictionaries(st.sampled_from(["order", "total", "kind", "urgent", "note", "odd"]), LEAF, max_size=6)


@given(BUY, st.lists(LINE, max_size=2) | VALUE)
@example({"order": "7", "total": 1, "note": None, "urgent": True, "kind": "part"}, [])
@example({"order": "7", "total": 1}, [{"sku": "a", "more": None, "count": 2.0}])
def test_what_a_tool_takes_is_never_refused(args: dict[str, Any], lines: Any) -> None:
    whole = {**args, "lines": lines}
    faults = faults_of(whole, buy.schema)
    try:
        buy.arguments.check(whole)
    except InvalidInput:
        return
    assert faults == []


@given(st.fixed_dictionaries({"width": LEAF, "tags": st.dictionaries(st.text(max_size=2), LEAF, max_size=2) | LEAF, "either": VALUE}))
def test_what_another_tool_takes_is_never_refused_either(args: dict[str, Any]) -> None:
    faults = faults_of(args, sized.schema)
    try:
        sized.arguments.check(args)
    except InvalidInput:
        return
    assert faults == []


@pytest.mark.parametrize(
    ("args", "pointers"),
    [
        ({}, ["/order", "/total", "/lines"]),
        ({"order": 7, "total": "x", "lines": []}, ["/order", "/total"]),
        (
            {"order": "7", "total": True, "lines": [{"count": 1}, {"sku": "a", "more": [{"sku": 3}]}]},
            ["/total", "/lines/0/sku", "/lines/1/more/0/sku"],
        ),
        ({"order": "7", "total": 1, "lines": [], "a/b": 1, "kind": "half", "note": 3}, ["/a~1b", "/kind", "/note"]),
    ],
)
def test_each_fault_has_its_pointer(args: dict[str, Any], pointers: list[str]) -> None:
    assert sorted(fault["pointer"] for fault in faults_of(args, buy.schema)) == sorted(pointers)


@pytest.mark.parametrize(
    "schema", [{}, {"$ref": "#/$defs/none"}, {"type": "odd"}, {"$ref": "#"}, {"anyOf": [{}]}, {"type": ["string", "null"]}]
)
def test_a_schema_that_says_little_refuses_little(schema: dict[str, Any]) -> None:
    assert faults_of(None, schema) == []
