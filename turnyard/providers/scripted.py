"""A model that answers from a file: for first steps, demos, tests and the bench.

It keeps no state of its own. Which reply comes is a function of the request alone, so a call that another worker
repeats after a crash gets the same answer.

Replies whose `when` fits the last user text come in order, one for each assistant message after that text. When none
fits, the replies without `when` come in order, one for each assistant message of the whole conversation.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from turnyard.errors import ModelError
from turnyard.ports import AskedCall, Clock, Delta, Done, ModelRequest
from turnyard.providers.script_file import Reply, Script, read_script

_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class _Choice:
    reply: Reply
    names: dict[str, str]
    step: int


class _Answer(AsyncIterator[Delta | Done]):
    """The pieces of one answer. No async generator: the loop would have to close each one that is left at its end."""

    def __init__(self, pieces: Iterator[tuple[float, Delta | Done | ModelError]], clock: Clock) -> None:
        self._pieces = pieces
        self._clock = clock

    async def __anext__(self) -> Delta | Done:
        for delay_s, piece in self._pieces:
            if delay_s:
                await self._clock.sleep(delay_s)
            if isinstance(piece, ModelError):
                raise piece
            return piece
        raise StopAsyncIteration


class Scripted:
    """The model that a script file describes."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._script: Script = read_script(path)
        self._plain = [r for r in self._script.replies if r.when is None]
        self._guarded = [r for r in self._script.replies if r.when is not None]

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer with the reply that the request's messages lead to."""
        return _Answer(self._answer(request), self._clock)

    def _answer(self, request: ModelRequest) -> Iterator[tuple[float, Delta | Done | ModelError]]:
        """Yield each piece of the answer with the seconds to wait before it."""
        choice = self._choose(request.messages)
        reply = choice.reply
        text = _fill(reply.text, choice.names)
        pieces = _cut(text, reply.chunks) if reply.error in (None, "cut") else []
        for piece in pieces[: (len(pieces) + 1) // 2] if reply.error else pieces:
            yield reply.delay_s, Delta("text", 0, piece)
        rest_s = 0.0 if pieces else reply.delay_s
        if reply.error is not None:
            yield rest_s, _error(reply.error, self._path.name)
        calls = _calls(choice, request)
        usage = {"input_tokens": _weight(request.messages), "output_tokens": (len(text) + _CHARS_PER_TOKEN - 1) // _CHARS_PER_TOKEN}
        yield rest_s, Done(text, calls, usage, "tool_calls" if calls else "stop", request.model)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    def _choose(self, messages: Sequence[Mapping[str, Any]]) -> _Choice:
        total, since, result, asked = _position(messages)
        matches = [(r, m) for r in self._guarded if r.when is not None and (m := r.when.search(asked)) is not None]
        step = since if matches else total
        replies = [r for r, _ in matches] or self._plain
        if not replies:
            raise ModelError(f"scripted model {self._path.name}: no reply fits the last user text; add one without when:")
        if step >= len(replies) and not self._script.loop:
            text = f"scripted model {self._path.name}: asked for reply {step + 1} of {len(replies)}; add a reply, or loop: true"
            raise ModelError(text)
        names = {k: v or "" for k, v in matches[step % len(matches)][1].groupdict().items()} if matches else {}
        return _Choice(replies[step % len(replies)], {"result": result} | names, total)


def _position(messages: Sequence[Mapping[str, Any]]) -> tuple[int, int, str, str]:
    """Return (assistant messages, those after the last user message, the last tool result, the last user text)."""
    total, since, result, asked = 0, 0, "", ""
    for message in messages:
        role = message["role"]
        if role == "assistant":
            total += 1
            since += 1
        elif role == "tool":
            result = _plain_text(message.get("content"))
        elif role == "user":
            since, asked = 0, _plain_text(message.get("content"))
    return total, since, result, asked


def _plain_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, Any]]", content or [])
    return "".join(str(p.get("text", "")) for p in parts)


def _fill(text: str, names: Mapping[str, str]) -> str:
    """Return `text` with each {name} that is known replaced; other braces stay."""
    return _PLACE.sub(lambda m: names.get(m[1], m[0]), text) if "{" in text else text


def _calls(choice: _Choice, request: ModelRequest) -> tuple[AskedCall, ...]:
    if not choice.reply.calls:
        return ()
    types = {t.name: t.schema.get("properties", {}) for t in request.tools}
    return tuple(
        AskedCall(
            id=f"call_{choice.step}_{index}",
            name=call.name,
            arguments=orjson.dumps(
                {k: _argument(v, choice.names, types.get(call.name, {}).get(k, {})) for k, v in call.args.items()}
            ).decode(),
        )
        for index, call in enumerate(choice.reply.calls)
    )


def _argument(value: Any, names: Mapping[str, str], schema: Mapping[str, Any]) -> Any:
    """Return an argument with its names filled in; what the tool's schema calls a number or boolean becomes one."""
    if isinstance(value, dict):
        return {k: _argument(v, names, {}) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_argument(v, names, {}) for v in cast("list[Any]", value)]
    if not isinstance(value, str) or (filled := _fill(value, names)) == value or schema.get("type") not in ("integer", "number", "boolean"):
        return _fill(value, names) if isinstance(value, str) else value
    try:
        return orjson.loads(filled)
    except orjson.JSONDecodeError:
        return filled


def _cut(text: str, pieces: int) -> list[str]:
    """Return `text` in at most `pieces` parts of about the same length."""
    if not text or pieces == 1:
        return [text] if text else []
    count = min(pieces, len(text))
    ends = [len(text) * i // count for i in range(count + 1)]
    return [text[a:b] for a, b in itertools.pairwise(ends)]


def _weight(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(m.get("content") or "") for m in messages) // _CHARS_PER_TOKEN + 1


def _error(fault: str, name: str) -> ModelError:
    told = {
        "429": f"scripted model {name}: the server asks to wait (429)",
        "500": f"scripted model {name}: the server failed (500)",
        "garbage": f"scripted model {name}: a piece of the stream is not JSON",
        "cut": f"scripted model {name}: the stream ended before the answer was complete",
    }
    wait = fault == "429"
    return ModelError(told[fault], retryable=True, retry_after_s=1.0 if wait else None, code="rate_limited" if wait else None)
