"""Do the checkers of strict APIs name what is wrong?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai

Message = dict[str, Any]
Check = Callable[[list[Message]], list[str]]
ALL = (check_openai, check_anthropic, check_gemini)
BLANK = (check_anthropic, check_gemini)


def user(content: Any = "hi") -> Message:
    return {"role": "user", "content": content}


def calls(*ids: str, name: str = "add", arguments: str = "{}", **more: Any) -> Message:
    made = [{"id": i, "type": "function", "function": {"name": name, "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": "", "tool_calls": made} | more


def result(call: str, name: str = "add") -> Message:
    return {"role": "tool", "tool_call_id": call, "name": name, "content": ""}


def test_a_sound_conversation_has_no_complaints() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    talk = [{"role": "system", "content": "s"}, user(), calls("a", "b"), result("a"), result("b"), {"role": "assistant", "content": "ok"}]
    talk += [user(parts), user(), calls("a", content="again"), result("a")]
    assert [check(talk) for check in ALL] == [[], [], []]


FAULTS: list[tuple[str, list[Message], tuple[Check, ...], str]] = [
    ("no result", [user(), calls("a")], ALL, "message 1: calls ['a'] are followed by results of []"),
    ("one result short", [user(), calls("a", "b"), result("a")], ALL, "calls ['a', 'b'] are followed by results of ['a']"),
    ("wrong order", [user(), calls("a", "b"), result("b"), result("a")], ALL, "each needs its own, in their order"),
    ("something between", [user(), calls("a"), user(), result("a")], ALL, "message 1: calls ['a'] are followed by results of []"),
    (
        "something between results",
        [user(), calls("a", "b"), result("a"), user(), result("b")],
        ALL,
        "message 4: a result of 'b' that follows no call",
    ),
    ("a second result", [user(), calls("a"), result("a"), result("a")], ALL, "message 3: a result of 'a' that follows no call"),
    ("a result without a call", [user(), result("a")], ALL, "message 1: a result of 'a' that follows no call"),
    (
        "two answers",
        [user(), calls("a"), result("a"), {"role": "assistant", "content": "x"}, calls("b"), result("b")],
        ALL,
        "message 4: two assistant",
    ),
    ("ids twice", [user(), calls("a", "a"), result("a"), result("a")], ALL, "message 1: call ids ['a', 'a'] must differ"),
    ("an odd id", [user(), calls("a b"), result("a b")], ALL, "1 to 64 letters"),
    ("a long id", [user(), calls("a" * 65), result("a" * 65)], ALL, "1 to 64 letters"),
    ("no JSON", [user(), calls("a", arguments='{"x":'), result("a")], ALL, "arguments of add are not a JSON object: '{\"x\":'"),
    ("no object", [user(), calls("a", arguments="[]"), result("a")], ALL, "not a JSON object"),
    ("an odd name", [user(), calls("a", name="a.b c"), result("a", "a.b c")], ALL, "function name 'a.b c'"),
    ("a name with a digit first", [user(), calls("a", name="9x"), result("a", "9x")], (check_gemini,), "must begin with a letter"),
    (
        "a result of another function",
        [user(), calls("a"), result("a", "sub")],
        (check_gemini,),
        "is said to be of 'sub', its call is of 'add'",
    ),
    (
        "the model first",
        [{"role": "system", "content": "s"}, calls("a"), result("a")],
        BLANK,
        "message 1: the first message is one of assistant",
    ),
    (
        "the model last",
        [user(), {"role": "assistant", "content": "x"}],
        BLANK,
        "message 1: the last message is one of assistant",
    ),
    ("a result first", [result("a")], ALL, "message 0: a result"),
    ("blank text", [user(" \n")], BLANK, "message 0: blank text"),
    ("a blank part", [user([{"type": "text", "text": ""}])], BLANK, "message 0: no parts, or a part with blank text"),
    ("a blank answer with calls", [user(), calls("a", content="\n"), result("a")], BLANK, "message 1: blank text"),
    ("nothing said", [user(), {"role": "assistant", "content": ""}], ALL, "message 1"),
    ("no content", [user(None)], ALL, "message 0"),
    (
        "a system message later",
        [user(), {"role": "system", "content": "s"}],
        (check_openai,),
        "message 1: a system message after the first",
    ),
    ("an odd role", [{"role": "bot", "content": "s"}], (check_openai,), "role 'bot' is none of"),
    ("a field of our own", [user() | {"seq": 3}], (check_openai,), "message 0: a message of user has no seq"),
    (
        "no type",
        [user(), {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}],
        ALL,
        "type None",
    ),
]


@pytest.mark.parametrize(("messages", "checks", "said"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_fault_is_named(messages: list[Message], checks: tuple[Check, ...], said: str) -> None:
    for check in checks:
        assert said in "\n".join(check(messages))
