"""How a summary that somebody wrote takes the place of the older entries of a log in this process."""

from __future__ import annotations

from collections.abc import Sequence

from turnyard.engine.compaction import CHARS_PER_TOKEN, Compaction, FileOps, check_cut, estimate_tokens, file_ops_of
from turnyard.engine.effects import Fold, Summary
from turnyard.engine.folded import marker_of
from turnyard.engine.memory import MemorySession
from turnyard.engine.messages import SUMMARY, Message
from turnyard.errors import InvalidInput
from turnyard.records.commit import TurnView
from turnyard.records.log import COMPACTION, LogRecord, position


def cut(
    memory: MemorySession,
    messages: Sequence[Message],
    summary: str,
    first_kept: int,
    *,
    before: int | None = None,
    after: int | None = None,
    file_ops: FileOps | None = None,
) -> LogRecord:
    """Write the summary in place of the messages before index `first_kept`; return its record.

    Raises:
        InvalidInput: these messages cannot be cut there; nothing is changed.
    """
    check_cut(messages, first_kept)
    gone, kept = messages[:first_kept], messages[first_kept:]
    owed = next((asked for message in gone for asked in message.calls if asked.id in memory.pending), None)
    if owed is not None:
        raise InvalidInput(f"first_kept is {first_kept}: call {owed.id} before it still waits for its result; keep it")
    seqs = {seq for message in gone for seq in message.seqs}
    entries = memory.entries
    folded = [entry for entry in entries if entry.seq in seqs]
    body = {
        "text": summary,
        "at": position(folded[-1])[0] if folded else position(entries[0])[0] - 1 if entries else 0,
        "spans": _spans(folded),
        "count": sum(1 for message in gone if message.role != SUMMARY),
        "before": estimate_tokens(messages) if before is None else before,
        "after": estimate_tokens(kept) + len(summary) // CHARS_PER_TOKEN if after is None else after,
        "more": False,
        "first_kept": first_kept,
        "files": (file_ops_of(gone) if file_ops is None else file_ops).to_json(),
    }
    return memory.append(LogRecord(0, COMPACTION, body=body))


def _spans(folded: Sequence[LogRecord]) -> list[list[int]]:
    """Return the stretches of seqs that hold these entries and no entry that stays."""
    plain = [entry.seq for entry in folded if entry.type != COMPACTION]
    spans = [[plain[0], plain[-1]]] if plain else []
    return spans + [[entry.seq, entry.seq] for entry in folded if entry.type == COMPACTION]


def put_summary(memory: MemorySession, fold: Fold, summary: Summary) -> LogRecord:
    """Write a summary that a model made, with the files that the calls it stands for touched; return its record."""
    body = marker_of(memory.entries, fold, summary)
    for name, n in {"summary_calls": 1, **{f"summary_{name}": n for name, n in (summary.usage or {}).items()}}.items():
        memory.usage[name] = memory.usage.get(name, 0) + n
    return memory.append(LogRecord(0, COMPACTION, body=body))


def idle_view(memory: MemorySession) -> TurnView:
    """Return what a session shows between two turns."""
    return TurnView("OK", "local", memory.store, memory.turn, memory.epoch, memory.rev, memory.entries, head=memory.head)


def compaction_of(record: LogRecord) -> Compaction:
    """Return what a compaction's record says."""
    body = record.body
    files = FileOps.from_json(body.get("files") or {})
    return Compaction(body["text"], body.get("before", 0), body.get("after", 0), body.get("count", 0), body.get("first_kept"), files)
