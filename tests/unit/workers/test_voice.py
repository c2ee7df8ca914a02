"""How pieces of an answer are gathered before they are written."""

from __future__ import annotations

from typing import Any, cast

from turnyard.ports import Delta
from turnyard.records.commit import TurnView
from workers.feed import Voice

VIEW = TurnView("OK", "a", "a.0", "turn_1", 1, 4, last_seq=7, head={"followed_for": "12"})


def voice() -> Voice:
    return Voice(cast("Any", None), VIEW, now_s=0.0)


def test_pieces_of_one_block_are_joined() -> None:
    one = voice()
    for text in ("a", "b", "c"):
        one.say(Delta("text", 0, text))
    assert [live.text for live in one.collect()] == ["abc"]


def test_blocks_and_kinds_stay_apart_and_in_order() -> None:
    one = voice()
    for delta in (Delta("thinking", 0, "x"), Delta("text", 1, "y"), Delta("text", 1, "z"), Delta("toolcall", 2, "{")):
        one.say(delta)
    assert [(live.kind, live.index, live.text) for live in one.collect()] == [("thinking", 0, "x"), ("text", 1, "yz"), ("toolcall", 2, "{")]


def test_reports_of_progress_are_never_joined() -> None:
    one = voice()
    one.say(Delta("progress", 0, "call_1\nhalf"))
    one.say(Delta("progress", 0, "call_1\ndone"))
    assert [live.text for live in one.collect()] == ["call_1\nhalf", "call_1\ndone"]


def test_numbers_go_on_from_one_write_to_the_next_and_name_the_step() -> None:
    one = voice()
    one.say(Delta("text", 0, "a"))
    [first] = one.collect()
    one.say(Delta("text", 0, "b"))
    [second] = one.collect()
    assert (first.seq, first.step, first.k, second.k) == (7, 5, 1, 2)


def test_what_nobody_takes_away_is_bounded() -> None:
    one = voice()
    for _ in range(1000):
        one.say(Delta("text", 0, "x" * 1000))
    assert len(one.collect()[0].text) < 40_000


def test_text_that_no_server_takes_is_mended_so_that_others_are_still_written() -> None:
    one = voice()
    for text in ("\ud83d", "\ude00", " \ud800"):
        one.say(Delta("text", 0, text))
    assert [live.text for live in one.collect()] == ["\U0001f600 \ufffd"]
