"""How the older messages of a conversation give way to a summary that somebody else wrote.

These functions decide nothing and change nothing they are given: they estimate, check and cut. A cut never comes
between a call and its result, because no model accepts a result whose call it cannot see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from turnyard.engine.messages import ASSISTANT, NOTIFICATION, SUMMARY, TOOL_RESULT, USER, Message
from turnyard.errors import InvalidInput
from turnyard.ports import AskedCall

CHARS_PER_TOKEN = 4
_COUNTED = (USER, ASSISTANT, TOOL_RESULT, SUMMARY, NOTIFICATION)
_KINDS = ("read", "written", "edited")
_TOOLS = {"read": "read", "write": "written", "edit": "edited"}


@dataclass(frozen=True, slots=True)
class FileOps:
    """Which files the calls of a conversation touched, sorted, over all that was compacted so far."""

    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()

    @property
    def modified(self) -> tuple[str, ...]:
        """Return the files that were written or edited."""
        return tuple(sorted({*self.written, *self.edited}))

    @property
    def only_read(self) -> tuple[str, ...]:
        """Return the files that were read and never changed."""
        return tuple(sorted({*self.read} - {*self.modified}))

    def union(self, other: FileOps) -> FileOps:
        """Return both together."""
        return FileOps(*(tuple(sorted({*getattr(self, kind), *getattr(other, kind)})) for kind in _KINDS))

    def to_json(self) -> dict[str, list[str]]:
        """Return it as a log holds it."""
        return {kind: list(getattr(self, kind)) for kind in _KINDS}

    @staticmethod
    def from_json(value: Mapping[str, Sequence[str]]) -> FileOps:
        """Return what `to_json` wrote."""
        return FileOps(*(tuple(value.get(kind) or ()) for kind in _KINDS))


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction that took place. `first_kept` is the index that the first message which stayed had, None when entries, not messages, were cut.

    `before` and `after` are the size of the conversation in tokens; `count` is how many entries the summary stands for.
    """

    summary: str
    before: int
    after: int
    count: int
    first_kept: int | None = None
    files: FileOps = field(default_factory=FileOps)


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When to compact: as soon as fewer than `reserve_tokens` of the model's window are free."""

    enabled: bool = True
    reserve_tokens: int = 16_384


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Return about how many tokens these messages are: their characters together, divided by four, rounded down.

    Counted are texts, thinking and the arguments of calls; images and messages with roles of one's own are not.
    """
    return sum(_chars(message) for message in messages if message.role in _COUNTED) // CHARS_PER_TOKEN


def should_compact(messages: Sequence[Message], settings: CompactionSettings, *, window: int) -> bool:
    """Tell whether the messages leave less than the reserve of a window of so many tokens."""
    return settings.enabled and estimate_tokens(messages) > window - settings.reserve_tokens


def compact_messages(
    messages: Sequence[Message], summary: str, first_kept: int, *, before: int, after: int, file_ops: FileOps | None = None, at_ms: int = 0
) -> list[Message]:
    """Return a summary followed by the messages from index `first_kept` on.

    Raises:
        InvalidInput: there is no such index, or a result after it belongs to a call before it.
    """
    check_cut(messages, first_kept)
    data: dict[str, Any] = {"before": before, "after": after, "files": (file_ops or FileOps()).to_json()}
    return [Message(SUMMARY, summary, data=data, at_ms=at_ms), *messages[first_kept:]]


def check_cut(messages: Sequence[Message], first_kept: int) -> None:
    """Refuse an index at which these messages cannot be cut.

    Raises:
        InvalidInput: it is below 0 or above their number, or a result after it belongs to a call before it.
    """
    if not 0 <= first_kept <= len(messages):
        raise InvalidInput(f"first_kept is {first_kept}; it must be from 0 to {len(messages)}, the number of messages")
    made = {asked.id for message in messages[:first_kept] for asked in message.calls}
    made -= {message.call for message in messages[:first_kept] if message.role == TOOL_RESULT}
    parted = next((m.call for m in messages[first_kept:] if m.role == TOOL_RESULT and m.call in made), None)
    if parted is not None:
        raise InvalidInput(
            f"first_kept is {first_kept}: that cuts between call {parted} and its result; keep the call, or let its result go, too"
        )


def file_ops_of(messages: Sequence[Message]) -> FileOps:
    """Return the files that calls of `read`, `write` and `edit` name as `path`, and those that earlier summaries tell of."""
    found = FileOps()
    for message in messages:
        if message.role == SUMMARY:
            found = found.union(FileOps.from_json(message.data.get("files") or {}))
        for asked in message.calls:
            found = found.union(_touched(asked))
    return found


def _touched(asked: AskedCall) -> FileOps:
    kind = _TOOLS.get(asked.name)
    path = cast("dict[str, Any]", orjson.loads(asked.arguments)).get("path") if kind else None
    return FileOps(**{kind: (path,)}) if kind and isinstance(path, str) and path else FileOps()


def _chars(message: Message) -> int:
    words = sum(len(part["text"]) for part in message.parts if isinstance(part.get("text"), str)) if message.parts else len(message.text)
    return words + len(message.thinking) + sum(len(asked.arguments) for asked in message.calls)
