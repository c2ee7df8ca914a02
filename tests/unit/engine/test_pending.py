"""When the text of a result means that the real one comes later."""

from __future__ import annotations

import pytest

from turnyard.engine.effects import Parked
from turnyard.engine.pending import read_pending


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
