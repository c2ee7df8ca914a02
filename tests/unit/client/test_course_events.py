"""What happens to a turn on its way is told to whoever follows it."""

from __future__ import annotations

import pytest

from turnyard.records.log import COURSE, USER, LogRecord
from turnyard.wire.events import Renderer


@pytest.mark.parametrize("kind", sorted(COURSE))
def test_a_follower_hears_of_retries_folds_and_continuations_as_the_log_has_them(kind: str) -> None:
    body = {"attempt": 1, "delay_ms": 2000}
    [event] = Renderer("s").render(LogRecord(7, kind, turn="turn_1", body=body))
    assert (event.event, event.data["turn"], event.data["seq"], event.data["data"]) == (kind, "turn_1", 7, body)


def test_what_a_hook_said_is_no_message_that_was_claimed() -> None:
    renderer = Renderer("s")
    renderer.render(LogRecord(1, USER, turn="turn_1", jobs=("job_1",), body={"text": "do it"}))
    assert renderer.render(LogRecord(2, USER, turn="turn_1", body={"text": "check it", "origin": "hook"})) == []
