"""How a torn list of messages is mended."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.engine.texts import INTERRUPTED
from turnyard.engine.validity import validity
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai

Message = dict[str, Any]


def calls(*ids: str, content: Any = "") -> Message:
    made = [{"id": i, "type": "function", "function": {"name": "add", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": content, "tool_calls": made}


def result(call: str, content: str = "3") -> Message:
    return {"role": "tool", "tool_call_id": call, "name": "add", "content": content}


def human(content: str = "hi") -> Message:
    return {"role": "user", "content": content}


def model(content: str = "ok") -> Message:
    return {"role": "assistant", "content": content}


def outline(messages: list[Message]) -> list[str]:
    return [f"{m['role']}:{m.get('tool_call_id') or m['content']}" for m in messages]


def test_a_valid_list_is_left_as_it_is() -> None:
    messages = [human(), calls("a", "b"), result("a"), result("b"), model(), human()]
    assert validity(messages) == messages


def test_the_results_follow_their_calls_in_call_order() -> None:
    assert outline(validity([human(), calls("a", "b"), result("b"), result("a")])) == ["user:hi", "assistant:", "tool:a", "tool:b"]


def test_what_stands_between_a_call_and_its_result_moves_behind_in_its_order() -> None:
    messages = [human(), calls("a"), human("one"), model("two"), human("three"), result("a")]
    assert outline(validity(messages)) == ["user:hi", "assistant:", "tool:a", "user:one", "assistant:two", "user:three"]


def test_a_call_without_a_result_is_interrupted_or_pending() -> None:
    mended = validity([human(), calls("a", "b")], pending={"b": "still running"})
    assert [m["content"] for m in mended[2:]] == [INTERRUPTED, "still running"]


def test_a_second_result_becomes_a_message_of_the_user() -> None:
    mended = validity([human(), calls("a"), result("a", "first"), result("a", "second")])
    assert mended[3] == human("[add a] result for an earlier call: second")


def test_a_result_without_its_call_becomes_a_message_of_the_user() -> None:
    assert validity([human(), result("gone", "7")])[1] == human("[add gone] result for an earlier call: 7")


def test_two_answers_in_a_row_become_one() -> None:
    assert validity([human(), model("a"), calls("x", content="b"), result("x")])[1]["content"] == "a\nb"
    parts = [{"type": "text", "text": "b"}]
    assert validity([human(), model("a"), {"role": "assistant", "content": parts}])[1]["content"] == [{"type": "text", "text": "a"}, *parts]


def test_a_result_belongs_to_the_nearest_open_call_with_its_id() -> None:
    messages = [human(), calls("call_0"), result("call_0", "old"), human("again"), calls("call_0"), result("call_0", "new")]
    assert validity(messages) == messages
    lost = [human(), calls("call_0"), human("again"), calls("call_0"), result("call_0", "new")]
    assert [m["content"] for m in validity(lost) if m["role"] == "tool"] == [INTERRUPTED, "new"]


def test_calls_of_one_answer_get_different_ids() -> None:
    mended = validity([human(), calls("a", "a", ""), result("a", "1"), result("a", "2")])
    ids = [c["id"] for c in mended[1]["tool_calls"]]
    assert len(set(ids)) == 3
    assert [(m["tool_call_id"], m["content"]) for m in mended[2:]] == list(zip(ids, ["1", "2", INTERRUPTED], strict=True))


def test_a_result_has_the_name_of_the_call_it_answers_and_odd_ids_are_made_fit() -> None:
    made = calls("a", "a", "no id!")
    made["tool_calls"][1]["function"]["name"] = "sub"
    mended = validity([human(), made, result("a", "1"), result("a", "2"), result("no id!", "3")])
    assert [(m["tool_call_id"], m["name"], m["content"]) for m in mended[2:]] == [
        ("a", "add", "1"),
        ("a_1", "sub", "2"),
        ("no_id_", "add", "3"),
    ]


def test_an_empty_answer_is_dropped_and_the_talk_begins_and_ends_with_the_user() -> None:
    assert outline(validity([model(""), model("hello")])) == ["user:[the conversation goes on]", "assistant:hello", "user:[go on]"]


ID = st.sampled_from(["a", "b", "a_0", ""])
PLAIN = st.builds(human, st.sampled_from(["x", "y"])) | st.builds(model, st.sampled_from(["", "x"]))
CALLING = st.lists(ID, min_size=1, max_size=4).map(lambda ids: calls(*ids))
MESSAGES = st.lists(PLAIN | CALLING | st.builds(result, ID, st.sampled_from(["", "1"])), max_size=14)


@pytest.mark.spec("I4")
@given(messages=MESSAGES)
def test_any_list_is_mended_into_one_that_strict_apis_accept(messages: list[Message]) -> None:
    mended = validity(messages)
    assert check_openai(mended) == []
    assert check_anthropic(mended) == []
    assert check_gemini(mended) == []


@given(messages=MESSAGES)
def test_mending_a_mended_list_changes_nothing_and_the_given_one_stays(messages: list[Message]) -> None:
    before = copy.deepcopy(messages)
    once = validity(messages)
    assert validity(once) == once
    assert messages == before


@given(messages=MESSAGES)
def test_no_result_is_lost_in_mending(messages: list[Message]) -> None:
    marked = [{**m, "content": f"result-{i}"} if m["role"] == "tool" else m for i, m in enumerate(messages)]
    shown = str(validity(marked))
    assert all(f"'{m['content']}'" in shown or f": {m['content']}'" in shown for m in marked if m["role"] == "tool")
