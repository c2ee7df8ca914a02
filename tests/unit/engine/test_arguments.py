"""Which arguments of a call may be used, and what is stored of those that may not."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.engine.arguments import read_arguments


@pytest.mark.parametrize("raw", ["", " ", "\n"])
def test_blank_arguments_are_an_empty_object(raw: str) -> None:
    assert read_arguments(raw).value == {}
    assert read_arguments(raw).refusal is None


def test_an_object_is_taken_as_it_is() -> None:
    assert read_arguments('{"a": [1, {"b": null}]}').value == {"a": [1, {"b": None}]}


@pytest.mark.spec("runner-36")
def test_an_object_that_came_as_a_string_is_unwrapped_once() -> None:
    once = orjson.dumps('{"a": 1}').decode()
    assert read_arguments(once).value == {"a": 1}
    assert "not a string" in (read_arguments(orjson.dumps(once).decode()).refusal or "")


@pytest.mark.parametrize(
    ("raw", "kind"),
    [("[1]", "an array"), ('"x"', "a string"), ("3", "a number"), ('"3"', "a string"), ("true", "a boolean"), ("null", "null")],
)
def test_json_that_is_no_object_is_refused(raw: str, kind: str) -> None:
    assert f"not {kind}; not executed" in (read_arguments(raw).refusal or "")


@pytest.mark.parametrize("raw", ['{"text": "once upon', '{"a": 1,', '{"a": [1, 2', '{"a"', "{"])
def test_arguments_that_were_cut_off_are_refused_with_their_length(raw: str) -> None:
    assert f"cut off after {len(raw)} characters" in (read_arguments(raw).refusal or "")


@pytest.mark.parametrize("raw", ["{a: 1}", '{"a": 1}}', "{'a': 1}", "nope", '{"a": NaN}'])
def test_malformed_arguments_are_refused(raw: str) -> None:
    assert "malformed" in (read_arguments(raw).refusal or "")


def test_arguments_nested_beyond_reason_are_refused() -> None:
    assert read_arguments('{"a":' * 100_000).refusal is not None


def test_what_is_stored_of_refused_arguments_is_an_object_with_the_reason_the_length_and_the_end() -> None:
    raw = '{"text": "' + "x" * 5000
    stored = read_arguments(raw)
    assert stored.value == {"refused": stored.refusal, "length": 5010, "tail": "x" * 800}


@given(raw=st.text() | st.binary(max_size=40).map(lambda b: b.decode("utf-8", "surrogateescape")))
def test_whatever_the_model_sent_what_is_stored_can_be_stored(raw: str) -> None:
    assert isinstance(orjson.loads(orjson.dumps(read_arguments(raw).value)), dict)
