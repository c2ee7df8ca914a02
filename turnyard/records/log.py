"""What a session's log holds: one record per fact, in one gap-free sequence.

Entries are what a model may see; events are what only followers see. The body is JSON that no script parses.
Field letters are those of the stream (spec: decisions, "Log record").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

USER = "user/message"
ASSISTANT = "assistant/message"
CALL = "tool/call"
RESULT = "tool/result"
COMPACTION = "session/compaction"
NOTICE = "notification"

OPENED = "store/opened"
_EXTRA = (b"dl", b"qn", b"re", b"by", b"x", b"ca", b"pa", b"rs")

ENTRIES = frozenset({USER, ASSISTANT, CALL, RESULT, COMPACTION, NOTICE})

ACCEPTED = "inbox/accepted"
TURN_END = "turn/end"
PARKED = "call/parked"
RESOLVED = "call/resolved"
REQUEST = "permission/request"
DECIDED = "permission/resolved"
SENT = "message/sent"
RELAYED = "call/relayed"
CALLED_OFF = "call/cancelled"
JOB = "job"
STRIKE = "strike"
CLEARED = "notice/cleared"

# What happened to a turn on its way, for those who follow it: each body is told as it is.
COURSE = frozenset({
    "retry/start", "retry/end", "summarization/retry/start", "summarization/retry/end", "overflow/recovery", "turn/continue",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record: where it stands, who wrote it, what it says.

    `seq` counts from 1 within its store. `outcome` is set on a result whose text is not in the body (timeout,
    cancelled, denied, superseded, unknown, placeholder) as well as on ordinary ones (result, error). `aside` marks
    the result of a call that a placeholder already answered; `late` one that came after a timeout or unknown.
    `seqs` are what a strike takes out of the view; `group_key` names a notice, `until_ms` is when it stops to matter, by the store's clock; `extra` holds an event's own fields
    (dl deadline in ms, qn queue, re relay count, by who, x the store that /new opened, ca cause, pa the parent's call, rs the reason that was given).
    """

    seq: int
    type: str
    epoch: int = 0
    turn: str = ""
    step: int = 0
    at_ms: int = 0
    jobs: tuple[str, ...] = ()
    call: str | None = None
    kind: str | None = None
    outcome: str | None = None
    aside: bool = False
    late: bool = False
    seqs: tuple[int, ...] = ()
    group_key: str = ""
    until_ms: int | None = None
    extra: dict[str, str] = field(default_factory=dict[str, str])
    body: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_entry(self) -> bool:
        """Tell whether a model may see this record."""
        return self.type in ENTRIES


def _text(raw: bytes | str | None) -> str:
    return raw.decode() if isinstance(raw, bytes) else (raw or "")


def parse_record(entry_id: bytes | str, pairs: list[Any]) -> LogRecord:
    """Return the record of one stream entry: its id and its flat field, value, field, value list."""
    f = dict(zip(pairs[::2], pairs[1::2], strict=True))
    kind, body = _text(f.get(b"t")), f.get(b"b")
    jobs, flags = f.get(b"j"), f.get(b"f", b"")
    event = kind not in ENTRIES  # an entry has none of the fields that only events have, but for a notice's key and deadline
    return LogRecord(
        seq=int(entry_id.partition(b"-")[0] if isinstance(entry_id, bytes) else entry_id.partition("-")[0]),
        type=kind,
        epoch=int(f.get(b"e", 0)),
        turn=_text(f.get(b"u")),
        step=int(f.get(b"s", 0)),
        at_ms=int(f.get(b"at", 0)),
        jobs=tuple(jobs.decode().split(",")) if jobs else (),
        call=f[b"c"].decode() if b"c" in f else None,
        kind=f[b"k"].decode() if b"k" in f else None,
        outcome=f[b"o"].decode() if b"o" in f else None,
        aside=b"a" in flags,
        late=b"l" in flags,
        seqs=_seqs(f) if kind == STRIKE else (),
        group_key=_text(f.get(b"gk")),
        until_ms=int(f[b"dl"]) if kind == NOTICE and b"dl" in f else None,
        extra={name.decode(): _text(f[name]) for name in _EXTRA if name in f} if event else {},
        body=orjson.loads(body) if body else {},
    )


def _seqs(f: dict[bytes, bytes]) -> tuple[int, ...]:
    return tuple(int(n) for n in f.get(b"x", b"").split(b",") if n)


def position(record: LogRecord) -> tuple[int, int]:
    """Return where a record is read: a summary where the last entry it stands for was, before one of the same place."""
    if record.type == COMPACTION and "at" in record.body:
        return record.body["at"], 0
    return record.seq, 1


def visible(base: tuple[LogRecord, ...], records: Sequence[LogRecord]) -> tuple[LogRecord, ...]:
    """Return the entries of `base` and `records` that a model may see, in reading order.

    Left out are events, and what was struck, cleared or folded into a summary that stands. `base` must not lack what
    `records` brings back: ask `unfolds` first where a rollback may be among them.
    """
    entries = base + tuple(r for r in records if r.type in ENTRIES)
    struck = {seq for r in records if r.type == STRIKE for seq in r.seqs}
    cleared = [r for r in records if r.type == CLEARED]
    markers = [r for r in records if r.type == COMPACTION and r.seq not in struck]
    if struck:
        entries = tuple(e for e in entries if e.seq not in struck)
    for clear in cleared:
        entries = tuple(e for e in entries if e.type != NOTICE or e.group_key != clear.group_key or e.seq > clear.seq)
    for marker in markers:
        entries = tuple(e for e in entries if not _folded(e, marker))
    return tuple(sorted(entries, key=position)) if markers else entries


def unfolds(base: Sequence[LogRecord], records: Sequence[LogRecord]) -> bool:
    """Tell whether `records` strike a summary of `base`: then what it stood for is seen again, and has to be read."""
    struck = {seq for r in records if r.type == STRIKE for seq in r.seqs}
    return bool(struck) and any(e.type == COMPACTION and e.seq in struck for e in base)


def _folded(entry: LogRecord, marker: LogRecord) -> bool:
    return any(first <= entry.seq <= last for first, last in marker.body.get("spans") or ())
