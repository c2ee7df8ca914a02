"""What a model reads: the entries of a log as messages in OpenAI's chat shape, paired and valid.

A call is part of the assistant message before it; its result follows as a tool message. What reaches a call that was
answered before (a late result, or the real one after a placeholder) is a user message, so that what a model has read
once never changes and prompt caches hold. Text of tools is prompt: `<|` in it cannot open a turn of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson

from turnyard.engine.texts import late_text, outcome_text
from turnyard.engine.validity import Message, validity
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, RESULT, USER, LogRecord, position

_EMPTY = "(empty message)"


def render(entries: Sequence[LogRecord], *, system: str = "", trusted: bool = False) -> list[Message]:
    """Return the messages for one model call.

    `trusted` leaves the text of tools as it is, for servers that take no control tokens from content. The order is
    that of the log, whatever the order of `entries`.
    """
    if any(position(after) < position(before) for before, after in pairwise(entries)):
        entries = sorted(entries, key=lambda e: (position(e), e.type, e.call or ""))
    draft = _Draft(trusted=trusted)
    if system:
        draft.messages.append({"role": "system", "content": system})
    for entry in entries:
        _RENDER.get(entry.type, _other)(draft, entry)
    # The pass is for logs that a crash, a fold or another's entry has torn; an intact log is valid as it stands.
    return draft.messages if draft.intact(1 if system else 0) else validity(draft.messages)


@dataclass(slots=True)
class _Draft:
    """Messages so far. `owed` are the calls of the last assistant message without their result, in order."""

    trusted: bool
    messages: list[Message] = field(default_factory=list[Message])
    names: dict[str, str] = field(default_factory=dict[str, str])
    owed: list[str] = field(default_factory=list[str])
    torn: bool = False

    def intact(self, first: int) -> bool:
        """Tell whether the messages need no repair; `first` is where the system message ends."""
        return not (self.torn or self.owed or (len(self.messages) > first and self.messages[first]["role"] != "user"))

    def user(self, content: Any) -> None:
        """Add a user message."""
        if self.owed:
            self.torn = True
        self.messages.append({"role": "user", "content": content or _EMPTY})

    def guard(self, text: str) -> str:
        """Return text of a tool so that it cannot open a turn."""
        return text if self.trusted or "<|" not in text else text.replace("<|", "&lt;|")


def _user(draft: _Draft, entry: LogRecord) -> None:
    if "role" in entry.body:
        return  # a role of somebody's own, which nobody here turned into words
    draft.user(entry.body.get("parts") or entry.body.get("text"))


def _assistant(draft: _Draft, entry: LogRecord) -> None:
    text = entry.body.get("text")
    if not text or entry.body.get("aborted"):
        return
    if draft.owed or (draft.messages and draft.messages[-1]["role"] == "assistant"):
        draft.torn = True
    draft.messages.append({"role": "assistant", "content": text})


def _call(draft: _Draft, entry: LogRecord) -> None:
    call, name = entry.call or "", str(entry.body.get("name") or "unknown")
    draft.names[call] = name
    last: Message | None = draft.messages[-1] if draft.messages else None
    if last is None or last["role"] != "assistant":
        if draft.owed:
            draft.torn = True
        last = {"role": "assistant", "content": ""}
        draft.messages.append(last)
    asked = {"id": call, "type": "function", "function": {"name": name, "arguments": _arguments(entry)}}
    last.setdefault("tool_calls", []).append(asked)
    draft.owed.append(call)


def _arguments(entry: LogRecord) -> str:
    return orjson.dumps(entry.body.get("args") or {}).decode()


def _result(draft: _Draft, entry: LogRecord) -> None:
    call = entry.call or str(entry.seq)
    name = draft.names.get(call, "")
    text = draft.guard(_result_text(entry, name, call))
    if entry.aside:
        draft.user(late_text(name, call, text, late=entry.late))
        return
    if draft.owed and draft.owed[0] == call:
        del draft.owed[0]
    else:
        draft.torn = True
    draft.messages.append({"role": "tool", "tool_call_id": call, "name": name, "content": text})


def _result_text(entry: LogRecord, name: str, call: str) -> str:
    body = entry.body
    if "content" not in body:
        return outcome_text(entry.outcome, name, call)
    text = str(body["content"])
    return f"ERROR: {text}" if body.get("is_error") and not text.startswith("ERROR:") else text


def _compaction(draft: _Draft, entry: LogRecord) -> None:
    draft.user(f"[compacted]\n{entry.body.get('text', '')}")


def _other(draft: _Draft, entry: LogRecord) -> None:
    draft.user(f"[{entry.body.get('tag') or entry.type}] {entry.body.get('text', '')}")


_RENDER: dict[str, Callable[[_Draft, LogRecord], None]] = {
    USER: _user,
    ASSISTANT: _assistant,
    CALL: _call,
    RESULT: _result,
    COMPACTION: _compaction,
}
