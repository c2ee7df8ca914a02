"""How events look at a terminal, and when following is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from turnyard.cli import follow
from turnyard.cli.follow import Printer, note, show_until_quiet
from turnyard.cli.log_tail import Tail, readable
from turnyard.cli.output import cell, one_line, show


def event(kind: str, /, **data: Any) -> dict[str, Any]:
    return {"type": kind, "session": "s1", "turn": "t1", "job": None, "seq": 1, "at": None, "data": data}


def test_what_was_streamed_is_not_repeated_by_the_whole_message(capsys: pytest.CaptureFixture[str]):
    printer = Printer()
    for piece in ("Hel", "lo"):
        printer.show(event("message/update", kind="text", index=0, delta=piece))
    printer.show(event("message/end", text="Hello"))
    printer.show(event("message/end", text="Not streamed"))
    assert capsys.readouterr().out == "Hello\nNot streamed\n"


def test_the_end_of_a_message_completes_what_was_lost_on_the_way(capsys: pytest.CaptureFixture[str]):
    printer = Printer()
    for pieces, whole in ((["Hel"], "Hello"), (["He", "o"], "Hello"), ([], "Hello")):
        printer.show(event("message/start", index=0))
        for piece in pieces:
            printer.show(event("message/update", kind="text", index=0, delta=piece))
        printer.show(event("message/end", text=whole))
    assert capsys.readouterr().out == "Hello\nHeo\nHello\nHello\n"


def test_a_message_that_another_worker_begins_anew_starts_on_its_own_line(capsys: pytest.CaptureFixture[str]):
    printer = Printer()
    for text in ("Counting 1", "Counting 1 2"):
        printer.show(event("message/start", index=0))
        printer.show(event("message/update", kind="text", index=0, delta=text))
    printer.show(event("message/end", text="Counting 1 2"))
    assert capsys.readouterr().out == "Counting 1\nCounting 1 2\n"


def test_what_the_agent_does_is_talk_and_what_it_says_is_data(capsys: pytest.CaptureFixture[str]):
    printer = Printer()
    printer.show(event("message/update", kind="text", index=0, delta="Let me see"))
    printer.show(event("message/update", kind="thinking", index=1, delta="secret thoughts"))
    printer.show(event("tool/call", call="c", name="add", args={"a": 1}))
    printer.show(event("tool/result", call="c", name="add", content="3", is_error=False))
    told = capsys.readouterr()
    assert told.out == "Let me see\n"
    assert told.err == "→ add(a=1)\n← add: 3\n"


@pytest.mark.parametrize(
    ("kind", "data", "line"),
    [
        ("tool/result", {"name": "add", "content": "x", "is_error": True}, "✗ add: x"),
        ("tool/progress", {"call": "c", "fraction": 0.4, "note": "frame 40"}, "… frame 40 40%"),
        ("call/parked", {"kind": "callback", "expires_at": "T"}, "parked on callback until T"),
        ("call/resolved", {"outcome": "result", "by": "u1"}, "resolved: result by u1"),
        ("turn/end", {"stop_reason": "stop", "error": None}, None),
        ("turn/end", {"stop_reason": "cancelled"}, "turn ended: cancelled"),
        ("turn/end", {"error": {"code": "step_limit", "message": "too many"}}, "turn failed: step_limit: too many"),
        ("hello", {}, None),
    ],
)
def test_each_event_has_its_line(kind: str, data: dict[str, Any], line: str | None):
    assert note(kind, data) == line


async def stream(*events: dict[str, Any], then: asyncio.Event | None = None) -> AsyncIterator[dict[str, Any]]:
    for each in events:
        yield each
    if then is not None:
        await then.wait()


async def test_following_ends_when_the_session_is_settled_and_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(follow, "QUIET_S", 0.01)
    answers = iter([False, False, True])

    async def settled() -> bool:
        return next(answers)

    async with asyncio.timeout(5):
        await show_until_quiet(stream(event("message/end", text="hi"), then=asyncio.Event()), settled, as_json=True, forever=False)
    assert json.loads(capsys.readouterr().out)["data"] == {"text": "hi"}
    assert next(answers, None) is None


async def test_following_ends_with_its_stream_and_passes_its_error_on():
    async def never() -> bool:
        return False

    async def broken() -> AsyncIterator[dict[str, Any]]:
        yield event("hello")
        raise ConnectionError("gone")

    await show_until_quiet(stream(event("hello")), never, as_json=False, forever=True)
    with pytest.raises(ConnectionError):
        await show_until_quiet(broken(), never, as_json=False, forever=True)


def test_a_cell_stays_on_one_line_and_shows_no_control_characters():
    assert one_line("a\x1b[31m\nb", 20) == "a [31m b"
    assert (cell(None), cell(["a", "b"]), cell({"x": 1}), cell(1.25), cell([])) == ("-", "a,b", "x", "1.2", "-")
    assert len(one_line("x" * 200, 80)) == 80


def test_a_list_is_a_table_for_people_and_lines_of_json_for_programs(capsys: pytest.CaptureFixture[str]):
    rows = [{"id": "j1", "state": "queued", "more": 1}, {"id": "job2", "state": None, "more": 2}]
    show(rows, ("id", "state"), as_json=False, empty="none")
    show(rows, ("id", "state"), as_json=True, empty="none")
    show([], ("id",), as_json=True, empty="none")
    show([], ("id",), as_json=False, empty="none")
    told = capsys.readouterr()
    assert told.out.splitlines()[:3] == ["ID    STATE", "j1    queued", "job2  -"]
    assert [json.loads(line) for line in told.out.splitlines()[3:]] == rows
    assert told.err == "none\n"


def test_a_json_log_line_is_shown_as_people_read_it_and_another_as_it_is():
    line = '{"ts":"2026-11-30T10:00:00.123+00:00","level":"warning","event":"child gone","role":"worker","pid":7,"logger":"x"}'
    assert readable(line) == "10:00:00.123 WARNING child gone pid=7"
    assert readable("plain") == "plain"


def test_only_whole_new_lines_are_shown(tmp_path: Any):
    log = tmp_path / "a.log"
    log.write_text("old\n")
    tail = Tail([("a", log), ("longer", tmp_path / "none.log")])
    with log.open("a") as sink:
        sink.write("new\nhalf")
        sink.flush()
        assert tail.lines() == ["a      | new"]
        sink.write(" done\n")
    assert tail.lines() == ["a      | half done"]


def test_a_retry_a_summary_and_a_shortened_request_are_told_in_words():
    failed = {"attempt": 1, "max_attempts": 3, "delay_ms": 3233, "error_message": "429: slow down"}
    assert note("retry/start", failed) == "! the model is asked again in 3.2 s (retry 1 of 3): 429: slow down"
    assert (
        note("summarization/retry/start", failed | {"max_attempts": None})
        == "! the model is asked again in 3.2 s (retry 1): 429: slow down"
    )
    assert note("session/compaction", {"count": 14, "text": "secret"}) == "… 14 older entries are summarised from here on"
    told = note("overflow/recovery", {"applied": True, "error": "8192 tokens"})
    assert told == "! the request was too long and is sent again, shortened: 8192 tokens"
    assert note("overflow/recovery", {"applied": False, "error": "8192 tokens"}) is None
