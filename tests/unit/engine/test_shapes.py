"""When the text of a result means that the real one comes later, or that a notice is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.engine.effects import Parked
from turnyard.engine.shapes import MOST_TTL_S, read_clear, read_pending


def test_a_pending_object_with_a_correlation_id_is_a_promise() -> None:
    assert read_pending('{"pending": true, "correlation_id": "j-1", "ttl_s": 1.5}') == Parked("", 1500, "j-1")
    assert read_pending('{"pending": true, "correlation_id": "j-1"}') == Parked("", None, "j-1")


@pytest.mark.parametrize(
    "content",
    [
        "done",
        ' {"pending": true, "correlation_id": "j-1"}',
        '{"pending": true, "correlation_id": ""}',
        '{"pending": true, "correlation_id": 7}',
        '{"pending": 1, "correlation_id": "j-1"}',
        '{"pending": false, "correlation_id": "j-1"}',
        '{"pending": true}',
        '{"pending": true, "correlation_id": "j-1"',
        '{"nested": {"pending": true, "correlation_id": "j-1"}}',
    ],
)
def test_anything_else_is_an_ordinary_result(content: str) -> None:
    assert read_pending(content) is None


@pytest.mark.parametrize("ttl", ["0", "-1", "true", '"soon"', "null"])
def test_a_time_that_is_no_positive_number_is_no_time(ttl: str) -> None:
    assert read_pending(f'{{"pending": true, "correlation_id": "j-1", "ttl_s": {ttl}}}') == Parked("", None, "j-1")


@pytest.mark.parametrize(("ttl", "ms"), [("1e308", MOST_TTL_S * 1000), ("18446744073709551615", MOST_TTL_S * 1000), ("1e-300", 1)])
def test_a_time_that_no_clock_can_tell_is_cut_to_one_that_can(ttl: str, ms: int) -> None:
    assert read_pending(f'{{"pending": true, "correlation_id": "j-1", "ttl_s": {ttl}}}') == Parked("", ms, "j-1")


def test_a_clear_object_names_the_notices_that_are_over() -> None:
    assert read_clear('{"clear": true, "group_by": "disk", "key": "sda", "said": "cleaned"}') == "disk\nsda"


@pytest.mark.parametrize(
    "content",
    [
        "cleared",
        ' {"clear": true, "group_by": "disk", "key": "sda"}',
        '{"clear": true, "group_by": "", "key": "sda"}',
        '{"clear": true, "group_by": "disk", "key": ""}',
        '{"clear": true, "group_by": "disk", "key": 7}',
        '{"clear": true, "group_by": "disk\\nsda", "key": "sda"}',
        '{"clear": true, "group": "disk", "key": "sda"}',
        '{"clear": 1, "group_by": "disk", "key": "sda"}',
        '{"clear": "true", "group_by": "disk", "key": "sda"}',
        '{"clear": true, "group_by": "disk", "key": "sda"',
        '{"nested": {"clear": true, "group_by": "disk", "key": "sda"}}',
    ],
)
def test_anything_else_clears_nothing(content: str) -> None:
    assert read_clear(content) is None


@given(st.text())
def test_no_text_of_a_tool_can_break_the_reading_of_it(text: str) -> None:
    for content in (text, "{" + text, f'{{"pending": true, "clear": true, {text}'):
        read_pending(content)
        read_clear(content)
