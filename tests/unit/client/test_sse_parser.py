"""The event-stream parser reads what the writer wrote, wherever the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.records.sse import Event, SSEParser, format_event

_NAMES = st.sampled_from(["hello", "message/update", "job"])
_DATA = st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=30).map(lambda s: s.replace("\r", "\n"))


@given(st.lists(st.tuples(_NAMES, _DATA, st.sampled_from(["0.1-0", "2.17-3"])), max_size=5), st.data())
def test_what_is_written_is_read_back_wherever_the_text_is_cut(events: list[tuple[str, str, str]], draw: st.DataObject) -> None:
    text = "".join(format_event(name, data, id=feed_id) for name, data, feed_id in events)
    cut = draw.draw(st.integers(0, len(text)))
    parser = SSEParser()
    read = parser.feed(text[:cut]) + parser.feed(text[cut:])
    assert read == [Event(name, data, feed_id) for name, data, feed_id in events]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_gives_the_same_events(end: str) -> None:
    text = end.join(["event: a", "data: 1", "data: 2", "", "data:3", "", ""])
    whole = SSEParser().feed(text)
    parser = SSEParser()
    by_char = [event for char in text for event in parser.feed(char)]
    assert whole == by_char == [Event("a", "1\n2"), Event("message", "3")]


def test_comments_and_events_without_data_are_no_events() -> None:
    assert SSEParser().feed(": ping\n\nevent: nothing\n\n") == []


def test_an_id_stays_until_the_next_and_one_with_nul_is_ignored() -> None:
    parser = SSEParser()
    events = parser.feed("id: 1\ndata: a\n\ndata: b\n\nid: x\0y\ndata: c\n\nid:\ndata: d\n\n")
    assert [e.id for e in events] == ["1", "1", "1", ""]


def test_retry_is_read_only_when_it_is_a_number() -> None:
    events = SSEParser().feed("retry: 2000\ndata: a\n\nretry: soon\ndata: b\n\n")
    assert [e.retry_ms for e in events] == [2000, None]


@pytest.mark.parametrize("text", ["x" * 11, "data: 12345678\ndata: 1234567\n"])
def test_an_endless_event_is_refused_instead_of_filling_memory(text: str) -> None:
    with pytest.raises(ValueError, match="longer than 10"):
        SSEParser(max_event_chars=10).feed(text)
