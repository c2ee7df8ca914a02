"""What a notice is: news of a group and key that matters until it is cleared, and is shown to a model once.

The pair names what the news is about; two notices of one pair are older and newer word of the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from turnyard.records.log import NOTICE, LogRecord


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. `seq` is its number in the log, 0 when no model was shown it yet; `until_ms` when it stops to matter, None: never."""

    group: str
    key: str
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    seq: int = 0
    until_ms: int | None = None

    @property
    def pair(self) -> str:
        """Return group and key as a log record names them."""
        return group_key(self.group, self.key)


def group_key(group: str, key: str) -> str:
    """Return a group and key as a log record names them."""
    return f"{group}\n{key}"


def shown_notice(record: LogRecord) -> Notice | None:
    """Return what an entry of the log is a notice of, None when it is none or has no group and key."""
    if record.type != NOTICE or not record.group_key.strip("\n"):
        return None
    group, _, key = record.group_key.partition("\n")
    return Notice(group, key, record.body, record.seq, record.until_ms)


def live(notices: Iterable[Notice], now_ms: int) -> list[Notice]:
    """Return those that still matter at `now_ms`, by the clock of their store."""
    return [n for n in notices if n.until_ms is None or n.until_ms > now_ms]
