"""The messages and sizes of a session's log, kept from one request to the next.

Only entries that are new since the last time are grouped, rendered and counted. When what was read before has changed
(folded, struck, cleared) everything is done again, so that the outcome never depends on what was asked before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnyard.engine.groups import Group, Grouping
from turnyard.engine.render import Late, Style, group_messages, in_order
from turnyard.engine.tokens import TokenEstimator, list_tokens
from turnyard.engine.validity import Message
from turnyard.records.log import LogRecord

LEAST_CHARS = 400


@dataclass(frozen=True, slots=True)
class Shape:
    """The messages of a group as they are shown, and their size in tokens."""

    messages: tuple[Message, ...]
    tokens: int


@dataclass(slots=True)
class Part:
    """A group as it is shown: whole and, once that was asked for, with its large texts as stubs."""

    group: Group
    whole: Shape
    short: Shape | None = None


class Transcript:
    """The parts of one session's log. `whole_tokens` is the size of all of them without any stub."""

    def __init__(self, *, above_chars: int, late: Late, trusted: bool, count: TokenEstimator) -> None:
        self._whole = Style(trusted=trusted)
        self._short = Style(trusted=trusted, above_chars=above_chars)
        self._least = Style(trusted=trusted, above_chars=min(above_chars, LEAST_CHARS))
        self._late: Late = late
        self._count = count
        self._seen: tuple[LogRecord, ...] = ()
        self.grouping = Grouping(replace_late=late == "replace")
        self.parts: list[Part] = []
        self.whole_tokens = 0

    def read(self, entries: Sequence[LogRecord]) -> int:
        """Take in the entries of the log, all of them; return how many were new and had to be rendered."""
        known = len(self._seen)
        if tuple(entries[:known]) != self._seen or in_order(news := entries[max(0, known - 1) :]) is not news:
            known, entries = 0, in_order(entries)
            self.grouping, self.parts, self.whole_tokens = Grouping(replace_late=self._late == "replace"), [], 0
        changed: dict[int, Group] = {}
        for entry in entries[known:]:
            group = self.grouping.add(entry)
            changed[group.index] = group
        for index, group in changed.items():
            self._render(index, group)
        self._seen = tuple(entries)
        return len(entries) - known

    def shortened(self, part: Part) -> Shape:
        """Return a part with its large texts as stubs."""
        if part.short is None:
            messages = tuple(group_messages(part.group, self._short))
            same = messages == part.whole.messages
            part.short = part.whole if same else Shape(messages, list_tokens(messages, self._count))
        return part.short

    def least(self, part: Part) -> Shape:
        """Return a part with all but short texts as stubs, for a request that does not fit otherwise."""
        messages = tuple(group_messages(part.group, self._least))
        return Shape(messages, list_tokens(messages, self._count))

    def _render(self, index: int, group: Group) -> None:
        messages = tuple(group_messages(group, self._whole))
        shape = Shape(messages, list_tokens(messages, self._count))
        if index < len(self.parts):
            self.whole_tokens -= self.parts[index].whole.tokens
            self.parts[index] = Part(group, shape)
        else:
            self.parts.append(Part(group, shape))
        self.whole_tokens += shape.tokens
