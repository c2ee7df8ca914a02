"""A job: one accepted message and its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

JobState = Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Job:
    """A job row as read from the store.

    `session_key` is the key part; `session` the readable id. `open` counts calls opened for it and not yet settled.
    `output` is {"text", "output"} once it succeeded; `error` is {"code", "message", "retryable", "ref"} once it
    failed; `cause` says why it was cancelled, and `partial` what it had said last when it ended either way. `usage` has
    that of its children in it. Times are milliseconds of the server's clock.
    """

    id: str
    state: JobState
    tenant: str
    session: str
    session_key: str
    agent: str
    user: str = ""
    turn: str | None = None
    mode: str = "steer"
    complete_when: str = "settled"
    open: int = 0
    input: dict[str, Any] = field(default_factory=dict[str, Any])
    output: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    cause: str | None = None
    partial: str = ""
    merged_into: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    priority: int = 0
    usage: dict[str, int] = field(default_factory=dict[str, int])
    cancel_requested: bool = False
    created_ms: int = 0
    started_ms: int | None = None
    finished_ms: int | None = None

    @property
    def done(self) -> bool:
        """Tell whether the job has its last state."""
        return self.state in TERMINAL
