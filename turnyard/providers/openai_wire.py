"""How a model call looks on OpenAI's Chat Completions wire, and what a streamed answer adds up to.

Pure: no network. An answer counts only when the server said why it finished; anything else is a `ModelError`, so a
cut stream can never pass for a short answer, and a call whose arguments are incomplete is never handed on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from turnyard.errors import ModelError
from turnyard.ports import AskedCall, Delta, Done, ModelRequest
from turnyard.text import scrub, scrub_tree

_FINISH = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
# Words of an error object that say the request itself is at fault, so sending it again cannot help.
_HOPELESS = re.compile(r"invalid|not_found|unsupported|context_length|authentication|permission|insufficient_quota|content_policy|billing")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_SHOWN_CHARS = 300
# No answer is so long; it would be kept for ever and sent again with every later request.
ANSWER_CHARS = 4_000_000
_CALL_CHARS = 1_000
_MOST_TOKENS = 2**40
_MOST_COST = 1e6


def encode_request(request: ModelRequest) -> bytes:
    """Return the body of the request: the user's settings, and over them what the protocol needs."""
    body: dict[str, Any] = dict(request.settings)
    body |= {
        "model": request.model,
        "messages": list(request.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}} for t in request.tools
        ]
    try:
        return orjson.dumps(body)
    except TypeError:
        # orjson refuses lone surrogates; looking for them in every request would cost more than this.
        return orjson.dumps(scrub_tree(body))


@dataclass(slots=True)
class _Block:
    """A tool call that is being put together."""

    index: int
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class Assembly:
    """Adds up the chunks of one streamed answer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, _Block] = {}
        self._blocks: dict[str, int] = {}
        self._usage: dict[str, int] | None = None
        self._finish: str | None = None
        self._left_chars = ANSWER_CHARS

    @property
    def finished(self) -> bool:
        """Tell whether the server said why it stopped: from then on the answer is complete."""
        return self._finish is not None

    def add(self, data: str) -> Iterator[Delta]:
        """Take the data of one event and yield what it adds.

        Raises:
            ModelError: it is no JSON, no chunk, or an error of the server.
        """
        chunk = read_json(data)
        if not isinstance(chunk, dict):
            raise ModelError("the model's stream holds a piece that is not a JSON object", retryable=True)
        chunk = cast("dict[str, Any]", chunk)
        if chunk.get("error"):
            raise error_of(chunk["error"], where="inside its answer")
        self._count(chunk.get("usage"))
        try:
            for choice in chunk.get("choices") or ():
                if choice.get("index", 0) == 0:
                    yield from self._choice(choice)
        except (AttributeError, KeyError, TypeError) as error:
            raise ModelError("the model's stream holds a piece of an unknown shape", retryable=True) from error

    def done(self) -> Done:
        """Return the whole answer.

        Raises:
            ModelError: the stream was cut, the answer is empty, or its last call is incomplete.
        """
        if self._finish is None:
            raise ModelError("the model's stream ended before the answer was complete", retryable=True)
        if self._finish == "error":
            raise ModelError("the model's server gave up in the middle of its answer", retryable=True)
        refusal = scrub("".join(self._refusal))
        text = scrub("".join(self._text)) or refusal
        calls = tuple(self._call(block) for block in self._calls.values())
        finish = "refusal" if refusal else _FINISH.get(self._finish, "stop")
        if calls and finish == "stop":
            finish = "tool_calls"
        if not text and not calls and finish != "content_filter":
            raise _empty(finish)
        return Done(text, calls, self._usage, finish, self._model)

    def _choice(self, choice: dict[str, Any]) -> Iterator[Delta]:
        delta: dict[str, Any] = choice.get("delta") or {}
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._take(len(thought))
            yield Delta("thinking", self._block("thinking"), scrub(thought))
        for name, kept in (("content", self._text), ("refusal", self._refusal)):
            piece = delta.get(name)
            if piece:
                kept.append(_string(piece))
                self._take(len(piece))
                yield Delta("text", self._block("text"), scrub(piece))
        for position, part in enumerate(delta.get("tool_calls") or ()):
            yield from self._part(part, position)
        if choice.get("finish_reason"):
            self._finish = _string(choice["finish_reason"])

    def _part(self, part: dict[str, Any], position: int) -> Iterator[Delta]:
        block = self._slot(part, position)
        function: dict[str, Any] = part.get("function") or {}
        block.name = block.name or _string(function.get("name") or "")
        piece = _string(function.get("arguments") or "")
        if piece:
            block.arguments.append(piece)
            self._take(len(piece))
            yield Delta("toolcall", block.index, scrub(piece))

    def _slot(self, part: dict[str, Any], position: int) -> _Block:
        """Return the call that a part belongs to. Some servers give every call the index 0, or none, and a fresh id."""
        index = part.get("index")
        key = int(index) if isinstance(index, int) else position
        call_id = _string(part.get("id") or "")
        block = self._calls.get(key)
        if block is not None and block.id and call_id and call_id != block.id:
            known = next((k for k, b in self._calls.items() if b.id == call_id), None)
            key = len(self._calls) + 1_000 if known is None else known
            block = self._calls.get(key)
        if block is None:
            self._take(_CALL_CHARS)
            block = self._calls[key] = _Block(self._block(f"call {key}"), call_id)
        block.id = block.id or call_id
        return block

    def _take(self, chars: int) -> None:
        self._left_chars -= chars
        if self._left_chars < 0:
            raise ModelError(f"the model's answer has no end: it was given up after {ANSWER_CHARS:,} characters")

    def _block(self, name: str) -> int:
        return self._blocks.setdefault(name, len(self._blocks))

    def _call(self, block: _Block) -> AskedCall:
        arguments = scrub("".join(block.arguments))
        if not block.name:
            raise ModelError("the model made a call without a tool name", retryable=True)
        if self._finish in ("length", "content_filter") and not _is_json(arguments):
            raise ModelError(f"the answer ended inside a call of {block.name} ({self._finish}); allow more tokens or ask for less")
        return AskedCall(scrub(block.id), scrub(block.name), arguments)

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        told = cast("dict[str, Any]", usage)
        details = cast("dict[str, Any]", told.get("prompt_tokens_details") or {})
        counts = {
            "input_tokens": told.get("prompt_tokens"),
            "output_tokens": told.get("completion_tokens"),
            "cached_tokens": details.get("cached_tokens"),
        }
        # no part of the API, but what gateways to several providers report, in dollars
        if isinstance(cost := told.get("cost"), int | float) and not isinstance(cost, bool) and 0 <= cost < _MOST_COST:
            counts["cost_micros"] = round(cost * 1_000_000)
        self._usage = {name: count for name, count in counts.items() if isinstance(count, int) and 0 <= count < _MOST_TOKENS}


def read_json(data: str) -> Any:
    """Return the value of a JSON text, also when it holds half of a surrogate pair, which orjson refuses.

    Raises:
        ModelError: it is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data)
        except ValueError as error:
            raise ModelError("the model's stream holds a piece that is not JSON", retryable=True) from error


def error_of(error: Any, *, where: str) -> ModelError:
    """Return what an error object of the server means: some are worth another try, some are not."""
    told = cast("dict[str, Any]", error if isinstance(error, dict) else {"message": error})
    words = [str(told[k]) for k in ("code", "type") if told.get(k) and _WORD.match(str(told[k]))]
    message = scrub(str(told.get("message") or "no message"))[:_SHOWN_CHARS]
    hopeless = any(_HOPELESS.search(w) for w in words)
    code = "context_overflow" if any("context_length" in w for w in words) else None
    return ModelError(f"the model's server reported {'/'.join(words) or 'an error'} {where}: {message}", retryable=not hopeless, code=code)


def _empty(finish: str) -> ModelError:
    if finish == "length":
        return ModelError("the model used up its tokens before it said anything; allow more tokens")
    return ModelError("the model gave an empty answer", retryable=True)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string was expected, not {type(value).__name__}")
    return value


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
