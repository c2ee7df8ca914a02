"""How an old, large entry is shown, and how the rest of it is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.logs import got, user
from turnyard.engine.stubs import MAX_READ_CHARS, READ_ENTRY, read_arguments, read_entry, read_entry_spec, stub


@pytest.mark.spec("turn-28")
def test_a_stub_names_the_entry_and_its_length_and_shows_the_head() -> None:
    text = "0123456789" * 100
    assert stub(17, text, 400) == f"[event_id=17 length=1000]\n{text[:200]}\n…"
    assert stub(17, text, 40) == f"[event_id=17 length=1000]\n{text[:100]}\n…"


@pytest.mark.spec("turn-28")
def test_what_is_short_enough_stays_and_so_does_what_a_stub_would_make_longer() -> None:
    assert stub(1, "x" * 400, 400) == "x" * 400
    assert stub(1, "x" * 120, 40) == "x" * 120
    assert stub(1, "x" * 9_999, 0) == "x" * 9_999


@given(text=st.text(max_size=600), above=st.integers(-1, 500))
def test_a_stub_is_never_longer_than_the_text_and_counts_characters(text: str, above: int) -> None:
    shown = stub(3, text, above)
    assert len(shown) <= len(text)
    if shown != text:
        first, _, rest = shown.partition("\n")
        assert first == f"[event_id=3 length={len(text)}]"
        assert text.startswith(rest.removesuffix("\n…"))


@pytest.mark.spec("turn-28", "turn-33")
def test_the_reader_shows_a_stretch_of_an_entry_and_where_to_go_on() -> None:
    log = [user(1, "abcdefghij"), got(2, "c1", "result")]
    assert read_entry(log, 1) == "[event_id=1 characters 0 to 10 of 10]\nabcdefghij"
    assert read_entry(log, 1, 2, 3) == "[event_id=1 characters 2 to 5 of 10; go on with offset 5]\ncde"
    assert read_entry(log, 2) == "[event_id=2 characters 0 to 6 of 6]\nresult"


def test_the_reader_takes_any_numbers() -> None:
    long = [user(1, "x" * 50_000)]
    assert len(read_entry(long, 1, -5, 10**9)) < MAX_READ_CHARS + 100
    assert read_entry(long, 1, 10**9).endswith("of 50000]\n")
    assert "no entry 9" in read_entry(long, 9)
    assert read_arguments({"id": 4, "offset": "x"}) == (4, 0, 4_000)


@given(text=st.text(max_size=300), length=st.integers(1, 40))
def test_reading_on_and_on_gives_the_whole_text(text: str, length: int) -> None:
    log, got_text, offset = [user(5, text)], "", 0
    while offset < len(text):
        got_text += read_entry(log, 5, offset, length).partition("\n")[2]
        offset += length
    assert got_text == text


def test_the_readers_spec_names_what_the_function_takes() -> None:
    spec = read_entry_spec()
    assert spec.name == READ_ENTRY
    assert set(spec.schema["properties"]) == {"id", "offset", "length"}
