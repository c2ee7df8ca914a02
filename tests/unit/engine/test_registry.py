"""What a model sees of messages whose roles an application made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.engine.logs import asked, folded, got, noticed, said, user
from turnyard.engine.messages import Image, Message, body_of, messages_of
from turnyard.engine.registry import Registry
from turnyard.engine.render import render
from turnyard.errors import InvalidInput


def to_user(message: Message) -> Message:
    return replace(message, role="user", text=f"artifact {message.data['name']}: {message.text}")


ARTIFACT = {"role": "artifact", "data": {"name": "plan"}}


def texts(registry: Registry, *log: object) -> list[str]:
    return [str(m["content"]) for m in render(registry.shown(log))]  # pyright: ignore[reportArgumentType]


@pytest.mark.spec("runner-53")
def test_a_message_of_an_unknown_role_is_left_out_and_a_registered_one_is_shown_as_its_converter_says() -> None:
    log = [user(1, "a"), user(2, "step 1", **ARTIFACT), user(3, "b")]
    registry = Registry()
    assert texts(registry, *log) == ["a", "b"]
    registry.register("artifact", to_user)
    assert texts(registry, *log) == ["a", "artifact plan: step 1", "b"]
    registry.register("artifact", lambda _: None)
    assert texts(registry, *log) == ["a", "b"]
    assert registry.convert_all(messages_of(log)) == [m for m in messages_of(log) if m.role == "user"]


def test_what_nobody_converted_is_not_rendered_either() -> None:
    assert render([user(1, "a"), user(2, "step 1", **ARTIFACT)]) == [{"role": "user", "content": "a"}]


def test_the_built_in_roles_pass_and_a_summary_is_seen_as_a_message_of_the_user_of_the_same_time() -> None:
    log = [replace(folded(1, "they met"), at_ms=5), user(2, "x"), said(3, "y"), asked(4, "c1"), got(5, "c1"), noticed(6)]
    registry = Registry()
    assert registry.shown(log) is log
    seen = registry.convert_all(messages_of(log))
    assert [m.role for m in seen] == ["user", "user", "assistant", "tool_result", "notification"]
    assert (seen[0].text, seen[0].at_ms) == ("they met", 5)
    assert registry.roles == ("user", "assistant", "tool_result", "compact_summary", "notification")


def test_a_converter_of_ones_own_for_a_built_in_role_changes_the_words_and_keeps_calls_paired() -> None:
    log = [user(1, "hello"), said(2, "sure"), asked(3, "c1"), got(4, "c1", "secret"), said(5, "done")]
    registry = Registry({"tool_result": lambda m: replace(m, text="***"), "user": lambda m: replace(m, text=m.text.upper())})
    shown = render(registry.shown(log), asks=False)
    assert [m["content"] for m in shown] == ["HELLO", "sure", "***", "done"]
    assert shown[2]["tool_call_id"] == "c1"


def test_an_answer_is_one_message_with_its_calls_and_a_result_knows_the_tool() -> None:
    messages = messages_of([user(1), said(2, "a"), asked(3, "c1", args={"a": 1}), asked(4, "c2", "mul"), got(5, "c1"), got(6, "c2")])
    assert [(m.role, m.seqs) for m in messages] == [("user", (1,)), ("assistant", (2, 3, 4)), ("tool_result", (5,)), ("tool_result", (6,))]
    assert [(c.id, c.name, c.arguments) for c in messages[1].calls] == [("c1", "add", '{"a":1}'), ("c2", "mul", "{}")]
    assert [m.tool for m in messages[2:]] == ["add", "mul"]


def test_an_aborted_answer_is_a_message_that_the_model_is_not_shown() -> None:
    half = replace(said(2, "I was about"), body={"text": "I was about", "aborted": True})
    assert messages_of([user(1), half])[1].stop == "aborted"
    assert render([user(1), half, user(3, "go on")]) == [{"role": "user", "content": "hi"}, {"role": "user", "content": "go on"}]


def test_a_users_message_is_its_text_then_its_images() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://a.example/1.png"}}
    assert body_of("look", Image("https://a.example/1.png")) == {"parts": [{"type": "text", "text": "look"}, image]}
    assert body_of(Message("user", "look"), Image("https://a.example/1.png")) == {"parts": [{"type": "text", "text": "look"}, image]}
    assert body_of(Message("user", "look")) == body_of("look") == {"text": "look"}
    assert body_of(Message("artifact", "x", data={"name": "plan"})) == {"role": "artifact", "text": "x", "data": {"name": "plan"}}
    for wrong in (" ", Message("user", ""), Message("assistant", "x")):
        with pytest.raises(InvalidInput):
            body_of(wrong)
