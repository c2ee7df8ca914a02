"""Would a strict model API take this list of messages? One checker per API, for property tests and fake servers.

The lists are in OpenAI's chat shape, as requests hold them; the checkers for Anthropic and Gemini apply the rules of
those APIs to what their adapters will make of the list. Each returns its complaints, which name the message by its
index and say what is wrong with it; none means accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import orjson

Message = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}\Z")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_SYSTEM = frozenset({"system", "developer"})
_FIELDS = {
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls"},
    "tool": {"role", "content", "name", "tool_call_id"},
}


def check_openai(messages: Sequence[Message]) -> list[str]:
    """Return what OpenAI's chat API, or a strict server in its shape, has against these messages."""
    return [*_roles(messages), *_contents(messages), *_pairs(messages), *_neighbours(messages)]


def check_anthropic(messages: Sequence[Message]) -> list[str]:
    """Return what Anthropic has against them: results are the leading run of the user turn after their calls."""
    talk = _talk(messages)
    return [*_ends_are_users(talk), *_pairs(messages), *_neighbours(messages), *_blank_texts(talk)]


def check_gemini(messages: Sequence[Message]) -> list[str]:
    """Return what Gemini has against them: a call comes right after a user turn or results, all results in one turn."""
    talk = _talk(messages)
    return [*_ends_are_users(talk), *_pairs(messages), *_neighbours(messages), *_blank_texts(talk), *_function_names(talk)]


def _talk(messages: Sequence[Message]) -> list[tuple[int, Message]]:
    """Return the messages that are no system's, which travel apart from the others, each with its index in the list."""
    return [(i, m) for i, m in enumerate(messages) if m.get("role") not in _SYSTEM]


def _roles(messages: Sequence[Message]) -> Iterator[str]:
    for i, message in enumerate(messages):
        role = message.get("role")
        if role not in _ROLES:
            yield f"message {i}: role {role!r} is none of system, developer, user, assistant and tool"
        if role in _SYSTEM and i > 0:
            yield f"message {i}: a system message after the first"
        if extra := set(message) - _FIELDS.get(role or "", set(message)):
            yield f"message {i}: a message of {role} has no {', '.join(sorted(extra))}"


def _contents(messages: Sequence[Message]) -> Iterator[str]:
    for i, message in enumerate(messages):
        if message.get("role") in ("user", "tool", *_SYSTEM) and not isinstance(message.get("content"), str | list):
            yield f"message {i}: no content"
        if message.get("role") == "assistant" and not message.get("content") and not message.get("tool_calls"):
            yield f"message {i}: an assistant message without content and calls"


def _pairs(messages: Sequence[Message]) -> Iterator[str]:
    """Each assistant message with N calls is followed directly by N results, one per call, in call order."""
    at = 0
    while at < len(messages):
        message = messages[at]
        if message.get("role") == "tool":
            yield f"message {at}: a result of {message.get('tool_call_id')!r} that follows no call of that id"
        calls = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
        yield from _calls(at, calls)
        following = messages[at + 1 : at + 1 + len(calls)]
        answered = [m.get("tool_call_id") for m in following if m.get("role") == "tool"]
        wanted = [c.get("id") for c in calls]
        if answered != wanted:
            yield f"message {at}: calls {wanted} are followed by results of {answered}; each needs its own, in their order, directly after it"
        at += 1 + len(answered)


def _calls(at: int, calls: list[dict[str, Any]]) -> Iterator[str]:
    ids = [c.get("id") for c in calls]
    if len(set(ids)) != len(ids) or not all(isinstance(i, str) and _NAME.match(i) for i in ids):
        yield f"message {at}: call ids {ids} must differ and be 1 to 64 letters, digits, _ and -"
    for call in calls:
        function = call.get("function", {})
        if call.get("type") != "function":
            yield f"message {at}: a call of the type {call.get('type')!r}"
        if not _NAME.match(function.get("name", "")):
            yield f"message {at}: function name {function.get('name')!r}"
        if not _is_object(function.get("arguments")):
            yield f"message {at}: arguments of {function.get('name')} are not a JSON object: {str(function.get('arguments'))[:80]!r}"


def _is_object(text: Any) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _neighbours(messages: Sequence[Message]) -> Iterator[str]:
    for i in range(1, len(messages)):
        if messages[i].get("role") == messages[i - 1].get("role") == "assistant":
            yield f"message {i}: two assistant messages in a row"


def _ends_are_users(talk: Sequence[tuple[int, Message]]) -> Iterator[str]:
    if talk and talk[0][1].get("role") != "user":
        yield f"message {talk[0][0]}: the first message is one of {talk[0][1].get('role')}, it must be one of user"
    if talk and talk[-1][1].get("role") == "assistant" and not talk[-1][1].get("tool_calls"):
        yield f"message {talk[-1][0]}: the last message is one of assistant, it must be one of user or a result"


def _blank_texts(talk: Sequence[tuple[int, Message]]) -> Iterator[str]:
    """A text must have something other than white space; an assistant's may be empty next to calls."""
    for i, message in talk:
        content = message.get("content")
        if isinstance(content, list):
            parts = cast("list[dict[str, Any]]", content)
            if not parts or any(part.get("type") == "text" and not str(part.get("text", "")).strip() for part in parts):
                yield f"message {i}: no parts, or a part with blank text"
        elif message.get("role") != "tool" and not (message.get("tool_calls") and not content) and not str(content or "").strip():
            yield f"message {i}: blank text"


def _function_names(talk: Sequence[tuple[int, Message]]) -> Iterator[str]:
    """A call names its function as Gemini allows, its result names the same one."""
    names: dict[str, str] = {}
    for i, message in talk:
        for call in message.get("tool_calls") or ():
            names[call.get("id")] = name = call.get("function", {}).get("name", "")
            if not _GEMINI_NAME.match(name):
                yield f"message {i}: function name {name!r} must begin with a letter or _"
        if message.get("role") == "tool" and message.get("name") != names.get(message.get("tool_call_id") or ""):
            yield f"message {i}: the result of {message.get('tool_call_id')!r} is said to be of {message.get('name')!r}, its call is of {names.get(message.get('tool_call_id') or '')!r}"
