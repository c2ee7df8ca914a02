"""What is estimated, when a conversation is too long, and where it may be cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.engine.compaction import CompactionSettings, FileOps, compact_messages, estimate_tokens, file_ops_of, should_compact
from turnyard.engine.messages import Image, Message
from turnyard.errors import InvalidInput
from turnyard.ports import AskedCall

CALLING = Message("assistant", "abcde", calls=(AskedCall("c1", "a_long_name", '{"a":1}'),), thinking="hm")
RESULT = Message("tool_result", "xyz", call="c1")
TALK = [Message("user", "abc"), CALLING, RESULT, Message("assistant", "done")]


def test_an_estimate_is_the_sum_of_the_characters_over_four_rounded_down_once() -> None:
    assert estimate_tokens([]) == 0
    assert estimate_tokens([Message("user", "abc")] * 3) == 2, "9 characters, rounded once"
    assert estimate_tokens([CALLING]) == (5 + 2 + 7) // 4, "text, thinking and arguments, not the name"
    assert estimate_tokens([Message("user", "é" * 8)]) == 2, "characters, not bytes"
    assert estimate_tokens([Message("compact_summary", "abcd"), RESULT]) == 1
    parts = ({"type": "text", "text": "abcd"}, Image("data:image/png;base64,AAAAAAAAAAAAAAAA").part())
    assert estimate_tokens([Message("user", "", parts), Message("artifact", "x" * 400)]) == 1


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 120), st.booleans())
def test_it_is_time_to_compact_once_the_reserve_is_touched_and_not_a_token_before(
    tokens: int, window: int, reserve: int, enabled: bool
) -> None:
    due = should_compact([Message("user", "x" * 4 * tokens)], CompactionSettings(enabled, reserve), window=window)
    assert due == (enabled and tokens > window - reserve)


@given(st.integers(-2, 6))
def test_a_compacted_conversation_is_the_summary_and_what_is_kept_and_a_bad_index_changes_nothing(first_kept: int) -> None:
    before = list(TALK)
    if first_kept not in (0, 1, 3, 4):
        with pytest.raises(InvalidInput, match="first_kept"):
            compact_messages(TALK, "they met", first_kept, before=9, after=3)
    else:
        made = compact_messages(TALK, "they met", first_kept, before=9, after=3, at_ms=7)
        assert made[1:] == TALK[first_kept:]
        assert (made[0].role, made[0].text, made[0].at_ms, made[0].data["before"], made[0].data["after"]) == (
            "compact_summary",
            "they met",
            7,
            9,
            3,
        )
    assert before == TALK


def test_a_late_result_may_be_cut_off_from_a_call_that_was_answered() -> None:
    late = replace(RESULT, text="late")
    assert len(compact_messages([*TALK, late], "s", 4, before=1, after=1)) == 2


def test_files_are_those_that_calls_and_earlier_summaries_name_sorted_and_read_is_not_written() -> None:
    def calling(name: str, arguments: str) -> Message:
        return Message("assistant", calls=(AskedCall("c", name, arguments),))

    earlier = compact_messages([], "s", 0, before=0, after=0, file_ops=FileOps(read=("a", "b"), edited=("z",)))
    talk = [
        *earlier,
        calling("read", '{"path":"c"}'),
        calling("write", '{"path":"b"}'),
        calling("edit", '{"path":"a2"}'),
        calling("read", "{}"),
        calling("list", '{"path":"q"}'),
    ]
    found = file_ops_of(talk)
    assert found == FileOps(read=("a", "b", "c"), written=("b",), edited=("a2", "z"))
    assert (found.modified, found.only_read) == (("a2", "b", "z"), ("a", "c"))
    assert FileOps.from_json(found.to_json()) == found
