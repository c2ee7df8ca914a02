"""Whether a list of messages pairs every call with its result, and how a torn one is mended.

Strict servers refuse a call without a result, a result without a call, anything between them, and two assistant
messages in a row. `validity` is pure and deterministic, and mending a mended list changes nothing. It never drops a
result: one that has no call left to answer becomes a user message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from turnyard.engine.texts import INTERRUPTED, orphan_text

Message = dict[str, Any]

_ID_CHARS = 64
_ROOM = 8  # for a number that tells two ids apart
_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{_ID_CHARS}}}\Z")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
OPENING: Message = {"role": "user", "content": "[the conversation goes on]"}
CLOSING: Message = {"role": "user", "content": "[go on]"}


@dataclass(slots=True)
class _Slot:
    """One call of an assistant message and the tool message that answers it."""

    call: dict[str, Any]
    result: Message | None = None


@dataclass(slots=True)
class _Line:
    """One message that is no tool message, with the calls it makes."""

    message: Message
    slots: list[_Slot]


def validity(messages: Sequence[Message], *, pending: Mapping[str, str] | None = None) -> list[Message]:
    """Return the messages so that every model API accepts them.

    `pending` gives, by call id, the text for a call that is known to be parked; any other call without a result is
    said to be interrupted. The given messages are not changed.
    """
    return closed(opened(paired(messages, pending=pending)))


def paired(messages: Sequence[Message], *, pending: Mapping[str, str] | None = None) -> list[Message]:
    """Return the messages with every call and its result together; who speaks first and last is left as it is."""
    mended: list[Message] = []
    for line in _merged(_lines(messages)):
        mended.append(line.message)
        mended.extend(_results(line.slots, pending or {}))
    return mended


def opened(messages: list[Message]) -> list[Message]:
    """Return the messages with one of the user first after the system's, as Anthropic and Gemini want it."""
    at = next((i for i, message in enumerate(messages) if message["role"] not in ("system", "developer")), None)
    return messages if at is None or messages[at]["role"] != "assistant" else [*messages[:at], dict(OPENING), *messages[at:]]


def closed(messages: list[Message]) -> list[Message]:
    """Return the messages with one of the user, or results, last: Gemini refuses what the model said there, and Claude goes on with its sentence."""
    return [*messages, dict(CLOSING)] if messages and messages[-1]["role"] == "assistant" else messages


def fits_id(ident: str | None) -> bool:
    """Tell whether every API takes this as the id of a call."""
    return bool(ident) and _ID.match(ident or "") is not None


def _lines(messages: Sequence[Message]) -> list[_Line]:
    """Give each result to the nearest preceding unanswered call with its id, since servers reuse ids in each round."""
    lines: list[_Line] = []
    unanswered: dict[str, list[_Slot]] = {}
    for message in messages:
        if message["role"] == "tool":
            slots = unanswered.get(message.get("tool_call_id") or "")
            if slots:
                slots.pop().result = message
            else:
                lines.append(_Line(_as_user(message), []))
            continue
        calls = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
        line = _Line(message, [_Slot(call) for call in calls])
        for slot in reversed(line.slots):
            unanswered.setdefault(slot.call.get("id") or "", []).append(slot)
        if line.slots or message["role"] != "assistant" or message.get("content"):
            lines.append(line)
    return lines


def _as_user(message: Message) -> Message:
    """Return a result that answers no open call as a message of the user."""
    content = orphan_text(message.get("name") or "", message.get("tool_call_id") or "", message.get("content") or "")
    return {"role": "user", "content": content}


def _merged(lines: list[_Line]) -> list[_Line]:
    """Make one message of two assistant messages that stand next to each other."""
    merged: list[_Line] = []
    for line in lines:
        last = merged[-1] if merged else None
        if last and not last.slots and last.message["role"] == line.message["role"] == "assistant":
            content = _joined(last.message.get("content"), line.message.get("content"))
            merged[-1] = _Line({**last.message, **line.message, "content": content}, line.slots)
        else:
            merged.append(line)
    return [_with_unique_ids(line) for line in merged]


def _joined(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second or ""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n{second}"
    return _parts(first) + _parts(second)


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _with_unique_ids(line: _Line) -> _Line:
    """Give calls of one message different ids that every API takes, where the server sent none, an odd one, or one twice."""
    given = [slot.call.get("id") or "" for slot in line.slots]
    if len(set(given)) == len(given) and all(fits_id(ident) for ident in given):
        return line
    ids = [_UNFIT.sub("_", ident)[: _ID_CHARS - _ROOM] if not fits_id(ident) else ident for ident in given]
    taken = set(ids) - {""}
    seen: set[str] = set()
    slots: list[_Slot] = []
    for index, (ident, slot) in enumerate(zip(ids, line.slots, strict=True)):
        fresh, n = ident, index
        while not fresh or fresh in seen or (fresh != ident and fresh in taken):
            fresh, n = f"{(ident or 'call')[: _ID_CHARS - _ROOM]}_{n}", n + 1
        seen.add(fresh)
        slots.append(_Slot({**slot.call, "id": fresh}, slot.result))
    return _Line({**line.message, "tool_calls": [slot.call for slot in slots]}, slots)


def _results(slots: list[_Slot], pending: Mapping[str, str]) -> list[Message]:
    """Return the results of a message's calls, under the ids and names that the calls have there."""
    results: list[Message] = []
    for slot in slots:
        ident = slot.call["id"]
        answers = {"tool_call_id": ident, "name": slot.call.get("function", {}).get("name", "")}
        result = slot.result or {"role": "tool", "content": pending.get(ident, INTERRUPTED)}
        results.append(result if answers.items() <= result.items() else {**result, **answers})
    return results
