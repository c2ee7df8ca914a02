"""Which entries of a log stand or fall together.

A group is what the model said in one go, with the calls it made and all their results, wherever those stand in the log;
or one entry of another kind. What is shortened, folded or left out is left out by whole groups, because every model
API refuses a call without its result. Entries are added one by one, and what was grouped before is not looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from turnyard.engine.texts import text_of
from turnyard.records.commit import PLACEHOLDER
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, RESULT, USER, LogRecord


@dataclass(slots=True)
class Group:
    """One group. `index` is its place among all groups.

    In an answer of the model `words` are its texts, `calls` and `results` the entries of its calls; `replaced` holds,
    by call, the late result that is shown in place of the first. `parked` are calls whose placeholder still stands for
    a result to come. In a group of one entry `tool` names the tool that its result is of. A silent group has nothing
    that a model reads.
    """

    index: int
    entries: list[LogRecord]
    answer: bool = False
    words: list[LogRecord] = field(default_factory=list[LogRecord])
    calls: list[LogRecord] = field(default_factory=list[LogRecord])
    results: list[LogRecord] = field(default_factory=list[LogRecord])
    replaced: dict[str, LogRecord] = field(default_factory=dict[str, LogRecord])
    parked: set[str] = field(default_factory=set[str])
    tool: str = ""

    @property
    def silent(self) -> bool:
        """Tell whether a model reads nothing of it."""
        if self.answer:
            return not (self.words or self.calls)
        return not is_shown(self.entries[0])

    @property
    def summary(self) -> bool:
        """Tell whether it is a summary of earlier entries."""
        return self.entries[0].type == COMPACTION

    @property
    def spoken(self) -> int:
        """How many messages of the user or the model it is."""
        if self.answer:
            return 0 if self.silent else sum(1 for entry in self.entries if entry.type == ASSISTANT)
        return int(self.asks)

    @property
    def exchanges(self) -> int:
        """How many calls with their results it is; a result that stands alone is one, too."""
        return len(self.calls) or int(self.entries[0].type == RESULT)

    @property
    def asks(self) -> bool:
        """Tell whether it is a message of the user."""
        return self.entries[0].type == USER and not self.silent


def is_shown(entry: LogRecord) -> bool:
    """Tell whether a model reads something of an entry.

    It does not of an answer without words or one that was broken off, nor of a message with a role of somebody's own,
    which nobody turned into words.
    """
    if entry.type == ASSISTANT:
        return not entry.body.get("aborted") and bool(text_of(entry).strip())
    return entry.type != USER or "role" not in entry.body


class Grouping:
    """The groups of a log, in reading order. With `replace_late` a late result joins the answer that its call got first."""

    def __init__(self, *, replace_late: bool = False) -> None:
        self.groups: list[Group] = []
        self.last_answer = 0
        self.newest_summary: LogRecord | None = None
        self._replace_late = replace_late
        self._last: Group | None = None
        self._unanswered: dict[str, list[Group]] = {}
        self._answered: dict[str, Group] = {}
        self._names: dict[str, str] = {}

    def add(self, entry: LogRecord) -> Group:
        """Take in the next entry; return the group it is part of."""
        if entry.type == RESULT:
            return self._result(entry)
        if entry.type == CALL:
            return self._asked(entry)
        if entry.type == ASSISTANT:
            return self._said(entry)
        if entry.type == COMPACTION and (self.newest_summary is None or entry.seq > self.newest_summary.seq):
            self.newest_summary = entry
        return self._new(entry)

    def _new(self, entry: LogRecord, *, answer: bool = False, tool: str = "") -> Group:
        group = Group(len(self.groups), [entry], answer, tool=tool)
        self.groups.append(group)
        if answer or not group.silent:
            self._last = group
        return group

    def _said(self, entry: LogRecord) -> Group:
        if entry.body.get("aborted"):
            return self._new(entry)
        self.last_answer = max(self.last_answer, entry.seq)
        # two answers in a row are one message
        joins = self._last is not None and self._last.answer and not self._last.calls
        group = self._joined(self._last, entry) if joins and self._last else self._new(entry, answer=True)
        if is_shown(entry):
            group.words.append(entry)
        return group

    def _asked(self, entry: LogRecord) -> Group:
        call = entry.call or ""
        self._names[call] = str(entry.body.get("name") or "unknown")
        joins = self._last is not None and self._last.answer and not self._last.results
        group = self._joined(self._last, entry) if joins and self._last else self._new(entry, answer=True)
        group.calls.append(entry)
        self._unanswered.setdefault(call, []).append(group)
        return group

    def _result(self, entry: LogRecord) -> Group:
        call = entry.call or str(entry.seq)
        waiting = self._unanswered.get(call)
        if not entry.aside and waiting:
            return self._answer(waiting.pop(), call, entry)
        earlier = self._answered.get(call)
        if earlier is not None:
            earlier.parked.discard(call)
            if self._replace_late and entry.aside:
                earlier.replaced[call] = entry
                return self._joined(earlier, entry)
        return self._new(entry, tool=self._names.get(call, ""))

    def _answer(self, group: Group, call: str, entry: LogRecord) -> Group:
        group.results.append(entry)
        self._answered[call] = group
        if entry.outcome == PLACEHOLDER:
            group.parked.add(call)
        return self._joined(group, entry)

    @staticmethod
    def _joined(group: Group, entry: LogRecord) -> Group:
        group.entries.append(entry)
        return group
