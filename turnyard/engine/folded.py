"""What is committed when a stretch of the log was summarised.

The summary and what it hides are one transition. A log that moved on since the stretch was read refuses it, and the
stretch is chosen again; what arrives meanwhile waits in the inbox, so nothing disappears into a summary unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from turnyard.engine.budget import carry
from turnyard.engine.compaction import file_ops_of
from turnyard.engine.effects import Fold, Summary
from turnyard.engine.folding import count_fold, marker_body
from turnyard.engine.guards import notice
from turnyard.engine.messages import messages_of
from turnyard.engine.progress import Progress
from turnyard.engine.recovery import after_summary
from turnyard.records.commit import Commit, Note, TurnView
from turnyard.records.log import COMPACTION, LogRecord


def marker_of(entries: Sequence[LogRecord], fold: Fold, summary: Summary) -> dict[str, Any]:
    """Return the body of a summary's entry, with the files that the calls it stands for touched, if they touched any."""
    gone = [e for e in entries if any(first <= e.seq <= last for first, last in fold.spans)]
    files = file_ops_of(messages_of(gone)).to_json()
    return marker_body(fold, summary) | ({"files": files} if any(files.values()) else {})


def after_fold(view: TurnView, fold: Fold, summary: Summary) -> Commit:
    """Return the commit that puts the summary in the place of its stretch."""
    progress, events = after_summary(carry(Progress.of(view), view, spans=fold.spans, usage=summary.usage))
    folds, thrash = count_fold(view.entries, progress.folds)
    append = (Note(COMPACTION, marker_of(view.entries, fold, summary)), *events, *((notice("thrash", thrash),) if thrash else ()))
    usage = {f"summary_{name}": n for name, n in (summary.usage or {}).items()} | {"summary_calls": 1}
    return Commit(append=append, low=fold.low, usage=usage, state=replace(progress, folds=folds).into(view.state))
