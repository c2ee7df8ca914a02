"""Text that is safe to store and to send."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from turnyard.text import bound, scrub, scrub_tree

ANY_TEXT = st.text(st.characters(), max_size=40)
JSON = st.recursive(ANY_TEXT | st.integers(-5, 5) | st.none(), lambda s: st.lists(s, max_size=3) | st.dictionaries(ANY_TEXT, s, max_size=3))


@given(ANY_TEXT)
def test_scrubbed_text_can_be_encoded_and_scrubbing_again_changes_nothing(text: str) -> None:
    clean = scrub(text)
    assert "\0" not in clean
    assert clean.encode().decode() == clean
    assert scrub(clean) == clean


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_good_text_is_left_alone(text: str) -> None:
    assert scrub(text) == text


def test_the_two_halves_of_a_character_are_joined() -> None:
    assert scrub("\ud83d\ude00 \ude00\ud83d") == "😀 \ufffd\ufffd"


@given(JSON)
def test_a_scrubbed_tree_is_json(value: object) -> None:
    orjson.dumps(scrub_tree(value))


@given(ANY_TEXT.map(lambda t: t * 20), st.integers(100, 400))
def test_bounded_text_fits_and_says_when_it_was_cut(text: str, limit: int) -> None:
    shown = bound(text, limit)
    assert len(shown.encode()) <= limit
    assert shown == scrub(text) or "[cut after" in shown
