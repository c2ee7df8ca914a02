"""Which roles messages may have, and what of them the model sees.

Roles of one's own are messages that only an application understands; a converter says what a model reads in their
place, and nothing when it returns None. A role that nobody registered is left out. What is registered counts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnyard.engine.messages import BUILT_IN, SUMMARY, USER, Message, message_of, role_of
from turnyard.records.log import ASSISTANT as ANSWER
from turnyard.records.log import CALL, LogRecord
from turnyard.records.log import USER as ASKED

Converter = Callable[[Message], Message | None]


class Registry:
    """The roles of one session, or of one agent. The built-in ones are there from the start and may be replaced."""

    def __init__(self, converters: Mapping[str, Converter] | None = None) -> None:
        self._own: dict[str, Converter] = dict(converters or {})

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles that are known."""
        return (*BUILT_IN, *(role for role in self._own if role not in BUILT_IN))

    def register(self, role: str, converter: Converter) -> None:
        """Say what the model sees of the messages of this role, in place of what was said before."""
        self._own[role] = converter

    def convert(self, message: Message) -> Message | None:
        """Return what the model sees of a message, None for nothing. A summary is seen as a message of the user."""
        converter = self._own.get(message.role)
        if converter is not None:
            return converter(message)
        if message.role not in BUILT_IN:
            return None
        return replace(message, role=USER) if message.role == SUMMARY else message

    def convert_all(self, messages: Iterable[Message]) -> list[Message]:
        """Return what the model sees of these messages, in their order."""
        return [seen for message in messages if (seen := self.convert(message)) is not None]

    def shown(self, entries: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Return the entries as the model is to see them. What has no converter of one's own stays the very same entry."""
        if not self._own and not any("role" in entry.body for entry in entries):
            return entries
        return tuple(seen for entry in entries if (seen := self._shown(entry)) is not None)

    def _shown(self, entry: LogRecord) -> LogRecord | None:
        role = role_of(entry)
        if entry.type == CALL or (role in BUILT_IN and role not in self._own):
            return entry
        seen = self.convert(message_of(entry))
        return None if seen is None else _rewritten(entry, seen)


def shown_by(convert: Converter, entries: Sequence[LogRecord]) -> Sequence[LogRecord]:
    """Return the entries as a converter alone wants the model to see them, whatever roles are known. Calls stay with their answer."""
    shown: list[LogRecord] = []
    for entry in entries:
        message = message_of(entry)
        seen = message if entry.type == CALL else convert(message)
        if seen is not None:
            shown.append(entry if seen == message else _rewritten(entry, seen))
    return tuple(shown)


def _rewritten(entry: LogRecord, seen: Message) -> LogRecord:
    """Return the entry with the words of `seen`; one with a role of its own takes that of `seen`."""
    words: dict[str, Any] = {"parts": list(seen.parts)} if seen.parts else {"text": seen.text}
    if "role" in entry.body:
        return replace(entry, type=ANSWER if seen.role == "assistant" else ASKED, body=words)
    kept = {name: value for name, value in entry.body.items() if name not in ("text", "parts", "content")}
    return replace(entry, body=kept | words | {"content": seen.text}) if entry.call else replace(entry, body=kept | words)
