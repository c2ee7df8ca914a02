"""Would a strict model API take this list of messages? One checker per API, for property tests and fake servers.

The lists are in OpenAI's chat shape, as requests hold them; the checkers for Anthropic and Gemini apply the rules of
those APIs to what their adapters will make of the list. Each returns its complaints; none means accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import orjson

Message = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_SYSTEM = frozenset({"system", "developer"})


def check_openai(messages: Sequence[Message]) -> list[str]:
    """Return what OpenAI's chat API, or a strict server in its shape, has against these messages."""
    return [*_roles(messages), *_contents(messages), *_pairs(messages), *_neighbours(messages)]


def check_anthropic(messages: Sequence[Message]) -> list[str]:
    """Return what Anthropic has against them: results are the leading run of the user turn after their calls."""
    talk = [m for m in messages if m["role"] not in _SYSTEM]
    complaints = [*_first_is_user(talk), *_pairs(talk), *_neighbours(talk)]
    complaints += [f"message {i}: empty text" for i, m in enumerate(talk) if m["role"] in ("user", "assistant") and _blank(m)]
    return complaints


def check_gemini(messages: Sequence[Message]) -> list[str]:
    """Return what Gemini has against them: a call comes right after a user turn or results, all results in one turn."""
    talk = [m for m in messages if m["role"] not in _SYSTEM]
    complaints = [*_first_is_user(talk), *_pairs(talk), *_neighbours(talk)]
    complaints += [
        f"message {i}: a result without the name of its function" for i, m in enumerate(talk) if m["role"] == "tool" and not m.get("name")
    ]
    return complaints


def _roles(messages: Sequence[Message]) -> Iterator[str]:
    for i, message in enumerate(messages):
        if message["role"] not in _ROLES:
            yield f"message {i}: role {message['role']!r}"
        if message["role"] in _SYSTEM and i > 0:
            yield f"message {i}: a system message after the first"


def _contents(messages: Sequence[Message]) -> Iterator[str]:
    for i, message in enumerate(messages):
        if message["role"] in ("user", "tool") and not isinstance(message.get("content"), str | list):
            yield f"message {i}: no content"
        if message["role"] == "assistant" and _blank(message):
            yield f"message {i}: an assistant message without content and calls"


def _blank(message: Message) -> bool:
    return not message.get("content") and not message.get("tool_calls")


def _pairs(messages: Sequence[Message]) -> Iterator[str]:
    """Each assistant message with N calls is followed directly by N results, one per call, in call order."""
    at = 0
    while at < len(messages):
        message = messages[at]
        if message["role"] == "tool":
            yield f"message {at}: a result of {message.get('tool_call_id')} without its call"
        calls = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
        yield from _calls(at, calls)
        following = messages[at + 1 : at + 1 + len(calls)]
        answered = [m.get("tool_call_id") for m in following if m["role"] == "tool"]
        wanted = [c.get("id") for c in calls]
        if answered != wanted:
            yield f"message {at}: calls {wanted} are followed by results of {answered}"
        at += 1 + len(answered)


def _calls(at: int, calls: list[dict[str, Any]]) -> Iterator[str]:
    ids = [c.get("id") for c in calls]
    if len(set(ids)) != len(ids) or not all(isinstance(i, str) and _NAME.match(i) for i in ids):
        yield f"message {at}: call ids {ids}"
    for call in calls:
        function = call.get("function", {})
        if not _NAME.match(function.get("name", "")):
            yield f"message {at}: function name {function.get('name')!r}"
        if not _is_object(function.get("arguments")):
            yield f"message {at}: arguments are not a JSON object"


def _is_object(text: Any) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _neighbours(messages: Sequence[Message]) -> Iterator[str]:
    for i in range(1, len(messages)):
        if messages[i]["role"] == messages[i - 1]["role"] == "assistant":
            yield f"message {i}: two assistant messages in a row"


def _first_is_user(talk: Sequence[Message]) -> Iterator[str]:
    if talk and talk[0]["role"] != "user":
        yield f"the first message is one of {talk[0]['role']}"
