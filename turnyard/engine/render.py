"""What a model reads: the entries of a log as messages in OpenAI's chat shape, paired and valid.

A call is part of the assistant message before it; its result follows as a tool message. What reaches a call that was
answered before (a late result, or the real one after a placeholder) is a user message, so that what a model has read
once never changes and prompt caches hold. Text of tools is prompt: `<|` in it cannot open a turn of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from turnyard.engine.groups import Group, Grouping
from turnyard.engine.stubs import stub
from turnyard.engine.texts import arguments_of, late_text, orphan_text, text_of
from turnyard.engine.validity import Message, closed, fits_id, opened, paired
from turnyard.records.log import COMPACTION, RESULT, USER, LogRecord, position

Late = Literal["append", "replace"]

_EMPTY = "(empty message)"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Style:
    """How entries are shown.

    `trusted` leaves the text of tools as it is, for servers that take no control tokens from content. `pending` gives
    the text for parked calls without a result. Texts of more than `above_chars` characters are shown as stubs, 0 for none.
    """

    trusted: bool = False
    pending: Mapping[str, str] = field(default_factory=dict[str, str])
    above_chars: int = 0

    def guard(self, text: str) -> str:
        """Return text of a tool so that it cannot open a turn."""
        return text if self.trusted or "<|" not in text else text.replace("<|", "&lt;|")

    def short(self, entry: LogRecord, tool: str = "") -> str:
        """Return what is shown of an entry's words."""
        return stub(entry.seq, text_of(entry, tool), self.above_chars)


def render(
    entries: Sequence[LogRecord],
    *,
    system: str = "",
    trusted: bool = False,
    late: Late = "append",
    pending: Mapping[str, str] | None = None,
    asks: bool = True,
) -> list[Message]:
    """Return the messages for one model call, or, where that `asks` nothing, to look at: they may end with an answer.

    `late` says whether the result of a call that was answered before is a message of its own or takes the place of
    that answer. For `trusted` and `pending` see `Style`. The order is that of the log, whatever the order of `entries`.
    """
    grouping = Grouping(replace_late=late == "replace")
    for entry in in_order(entries):
        grouping.add(entry)
    style = Style(trusted=trusted, pending=pending or {})
    messages = assembled(system, (message for group in grouping.groups for message in group_messages(group, style)))
    return closed(messages) if asks else messages


def in_order(entries: Sequence[LogRecord]) -> Sequence[LogRecord]:
    """Return the entries in reading order; those that are in it already as they are."""
    in_place = all(_place(before) <= _place(after) for before, after in pairwise(entries))
    return entries if in_place else sorted(entries, key=_place)


def _place(entry: LogRecord) -> tuple[tuple[int, int], int, str, str]:
    """Return where an entry is read; summaries that stand at the same entry are read in the order they were written."""
    return position(entry), entry.seq, entry.type, entry.call or ""


def assembled(system: str, messages: Iterable[Message]) -> list[Message]:
    """Return the messages of groups as a request's: the system message first, then one of the user."""
    return opened([{"role": "system", "content": system}, *messages] if system else [*messages])


def group_messages(group: Group, style: Style) -> list[Message]:
    """Return the messages of one group, valid by themselves but for who speaks first."""
    if group.silent:
        return []
    return _answer(group, style) if group.answer else [{"role": "user", "content": _alone(group, style) or _EMPTY}]


def _alone(group: Group, style: Style) -> Any:
    """Return the content of an entry that is a message by itself."""
    entry = group.entries[0]
    if entry.type == USER:
        return _user(entry, style)
    if entry.type == COMPACTION:
        return f"[compacted]\n{text_of(entry)}"
    if entry.type != RESULT:
        return f"[{entry.body.get('tag') or entry.type}] {style.short(entry)}"
    call, text = entry.call or str(entry.seq), style.guard(style.short(entry, group.tool))
    return late_text(group.tool, call, text, late=entry.late) if entry.aside else orphan_text(group.tool, call, text)


def _user(entry: LogRecord, style: Style) -> Any:
    words = text_of(entry)
    parts = [part for part in entry.body.get("parts") or () if part.get("type") != "text" or str(part.get("text") or "").strip()]
    if parts:
        shown = stub(entry.seq, words, style.above_chars)
        return parts if shown is words else shown
    return style.short(entry) if words.strip() else ""


def _answer(group: Group, style: Style) -> list[Message]:
    """Return what the model said with its calls, and their results in the order of the calls."""
    said: Message = {"role": "assistant", "content": "\n".join(style.short(entry) for entry in group.words)}
    if not group.calls:
        return [said]
    said["tool_calls"] = [_asked(entry) for entry in group.calls]
    names = {entry.call or "": _name(entry) for entry in group.calls}
    late = {entry.call: entry for entry in group.replaced}
    draft = [said, *(_tool(entry, late.get(entry.call, entry), names, style) for entry in group.results)]
    asked, answered = [e.call for e in group.calls], [e.call for e in group.results]
    # the pass is for groups that a crash or another's entry has torn
    intact = asked == answered and len(set(asked)) == len(asked) and all(fits_id(call) for call in asked)
    return draft if intact else paired(draft, pending=style.pending)


def _asked(entry: LogRecord) -> dict[str, Any]:
    return {"id": entry.call or "", "type": "function", "function": {"name": _name(entry), "arguments": arguments_of(entry)}}


def _name(entry: LogRecord) -> str:
    """Return the name of the tool that is called, as every API takes it."""
    name = str(entry.body.get("name") or "unknown")
    return name if _NAME.match(name) else f"_{_UNFIT.sub('_', name)}"[:64]


def _tool(entry: LogRecord, shown: LogRecord, names: Mapping[str, str], style: Style) -> Message:
    call = entry.call or str(entry.seq)
    name = names.get(call, "")
    return {"role": "tool", "tool_call_id": call, "name": name, "content": style.guard(style.short(shown, name))}
