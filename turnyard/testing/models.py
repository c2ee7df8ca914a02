"""Models for tests, without a server or a key.

Like the scripted file model they keep no state that matters: which answer comes is a function of the request, so a
repeated call is answered alike.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

import orjson

from turnyard.errors import ConfigError, ModelError
from turnyard.ports import AskedCall, Delta, Done, ModelRequest
from turnyard.testing.sample import sample

_WORD = re.compile(r"\s*\S+\s*\Z|\s*\S+")


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A tool call that a test makes the model ask for."""

    name: str
    args: dict[str, Any]


def call(name: str, /, **args: Any) -> ModelCall:
    """Return a call of tool `name` with these arguments."""
    return ModelCall(name, args)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of words and calls."""

    text: str
    calls: tuple[ModelCall, ...]


def say(text: str, /, *calls: ModelCall) -> Reply:
    """Return an answer that says something and makes calls, too."""
    return Reply(text, calls)


Item = str | ModelCall | Sequence[ModelCall] | Reply | Exception


class ScriptedModel:
    """A model that gives one answer after the other.

    An item is the text of an answer, a call or several calls in one answer, or an exception to raise. The answer to a
    request is the item with the number of assistant messages it holds. `requests` are all requests so far.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = tuple(items)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer with the item that is due."""
        self.requests.append(request)
        step = sum(message["role"] == "assistant" for message in request.messages)
        if step >= len(self._items):
            raise ModelError(f"the scripted model has {len(self._items)} answers and was asked for number {step + 1}")
        reply = _reply(self._items[step])
        if reply.text:
            yield Delta("text", 0, reply.text)
        yield _done(reply.text, reply.calls, step, request.model)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


class FunctionModel:
    """A model that is a function: it is given a request and returns what is said to it, word by word.

    The function, plain or a coroutine, returns what an item of `ScriptedModel` may be. `requests` are all requests so far.
    """

    def __init__(self, function: Callable[[ModelRequest], Item | Awaitable[Item]]) -> None:
        self._function = function
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer with what the function returns."""
        self.requests.append(request)
        item = self._function(request)
        reply = _reply(await item if isawaitable(item) else item)
        for word in _WORD.findall(reply.text):
            yield Delta("text", 0, word)
        yield _done(reply.text, reply.calls, sum(m["role"] == "assistant" for m in request.messages), request.model)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


class TestModel:
    """A model that calls tools once, with the smallest arguments that fit, and then answers with their results.

    `call_tools` names the tools, all that are offered when None. `text` is the last answer; when None it is the
    smallest value that fits the agent's output type, else the results, one to a line, or "done". Each user message
    starts over.
    """

    __test__ = False

    def __init__(self, call_tools: Sequence[str] | None = None, *, text: str | None = None) -> None:
        self._names = None if call_tools is None else tuple(call_tools)
        self._text = text
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Call the tools when that was not done yet since the last user message, else answer."""
        self.requests.append(request)
        step = sum(message["role"] == "assistant" for message in request.messages)
        calls = self._calls(request)
        if calls and not _called(request):
            yield _done("", calls, step, request.model)
            return
        text = self._text if self._text is not None else _fitting(request) or "\n".join(_results(request)) or "done"
        yield Delta("text", 0, text)
        yield _done(text, (), step, request.model)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    def _calls(self, request: ModelRequest) -> tuple[ModelCall, ...]:
        offered = {t.name: t.schema for t in request.tools}
        names = tuple(offered) if self._names is None else self._names
        missing = [name for name in names if name not in offered]
        if missing:
            raise ConfigError(f"TestModel is to call {missing[0]}, but the agent has {', '.join(offered) or 'no tools'}")
        return tuple(ModelCall(name, sample(offered[name])) for name in names)


def _reply(item: Item) -> Reply:
    """Return an item as the answer it stands for; raise one that is an exception."""
    if isinstance(item, Exception):
        raise item
    if isinstance(item, Reply):
        return item
    if isinstance(item, str):
        return Reply(item, ())
    return Reply("", (item,) if isinstance(item, ModelCall) else tuple(item))


def _fitting(request: ModelRequest) -> str | None:
    """Return a value of the type that the answer must have, None when it is free text."""
    form: dict[str, Any] = request.settings.get("response_format") or {}
    schema: dict[str, Any] | None = form.get("json_schema", {}).get("schema")
    return orjson.dumps(sample(schema)).decode() if schema else None


def _since_user(request: ModelRequest) -> list[dict[str, Any]]:
    last = max((i for i, m in enumerate(request.messages) if m["role"] == "user"), default=-1)
    return list(request.messages[last + 1 :])


def _called(request: ModelRequest) -> bool:
    return any(m["role"] == "assistant" and m.get("tool_calls") for m in _since_user(request))


def _results(request: ModelRequest) -> list[str]:
    return [str(m.get("content") or "") for m in _since_user(request) if m["role"] == "tool"]


def _done(text: str, calls: Sequence[ModelCall], step: int, model: str) -> Done:
    asked = tuple(AskedCall(f"call_{step}_{i}", c.name, orjson.dumps(c.args).decode()) for i, c in enumerate(calls))
    return Done(text, asked, {"input_tokens": 1, "output_tokens": 1}, "tool_calls" if asked else "stop", model)
