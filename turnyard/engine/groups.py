"""Which entries of a log stand or fall together.

A group is what the model said in one go, with the calls it made and all their results, wherever those stand in the log;
or one entry of another kind. What is shortened, folded or left out is left out by whole groups, because every model
API refuses a call without its result. Entries are added one by one, and what was grouped before is not looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnyard.engine.texts import text_of
from turnyard.records.commit import PLACEHOLDER
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, RESULT, USER, LogRecord


@dataclass(slots=True)
class Group:
    """One group. `index` is its place among all groups.

    In an answer of the model `calls` and `results` are the entries of its calls, `replaced` the late results that are
    shown in place of the first ones. In a group of one entry `tool` names the tool that its result is of.
    """

    index: int
    entries: tuple[LogRecord, ...]
    answer: bool = False
    calls: tuple[LogRecord, ...] = ()
    results: tuple[LogRecord, ...] = ()
    replaced: tuple[LogRecord, ...] = ()
    tool: str = ""

    @property
    def words(self) -> list[LogRecord]:
        """The texts of an answer."""
        return [entry for entry in self.entries if entry.type == ASSISTANT and is_shown(entry)]

    @property
    def silent(self) -> bool:
        """Tell whether a model reads nothing of it."""
        return not (self.calls or any(is_shown(entry) for entry in self.entries))

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
    """The groups of a log, in reading order. With `replace_late` a late result joins the answer that its call got first.

    `parked` says, by call, which group has a placeholder whose result is still to come. `unread` are the groups with
    results that came after the model's last answer, `asked` is the last message of the user: all by their index.
    """

    def __init__(self, *, replace_late: bool = False) -> None:
        self.groups: list[Group] = []
        self.parked: dict[str, int] = {}
        self.unread: set[int] = set()
        self.asked: int | None = None
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
        group = Group(len(self.groups), (entry,), answer, tool=tool)
        self.groups.append(group)
        if answer or not group.silent:
            self._last = group
            self.asked = group.index if group.asks else self.asked
        return group

    def _said(self, entry: LogRecord) -> Group:
        if entry.body.get("aborted"):
            return self._new(entry)
        self.unread.clear()
        # two answers in a row are one message
        last = self._last
        return _joined(last, entry) if last and last.answer and not last.calls else self._new(entry, answer=True)

    def _asked(self, entry: LogRecord) -> Group:
        call = entry.call or ""
        self._names[call] = str(entry.body.get("name") or "unknown")
        last = self._last
        group = _joined(last, entry) if last and last.answer and not last.results else self._new(entry, answer=True)
        group.calls += (entry,)
        self._unanswered.setdefault(call, []).append(group)
        return group

    def _result(self, entry: LogRecord) -> Group:
        group = self._of_result(entry, entry.call or str(entry.seq))
        self.unread.add(group.index)
        return group

    def _of_result(self, entry: LogRecord, call: str) -> Group:
        waiting = self._unanswered.get(call)
        if waiting and not entry.aside:
            group = self._answered[call] = waiting.pop()
            group.results += (entry,)
            if entry.outcome == PLACEHOLDER:
                self.parked[call] = group.index
            return _joined(group, entry)
        self.parked.pop(call, None)
        earlier = self._answered.get(call)
        if earlier is None or not (self._replace_late and entry.aside):
            return self._new(entry, tool=self._names.get(call, ""))
        earlier.replaced += (entry,)
        return _joined(earlier, entry)


def _joined(group: Group, entry: LogRecord) -> Group:
    group.entries += (entry,)
    return group
