"""What a worker learns from begin and commit, and what it may ask a commit to do.

These are the whole vocabulary between the engine, which decides, and the store, which makes it so. One `Commit` is
one transition: it happens in one script or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from turnyard.errors import StateTooLarge
from turnyard.records.log import LogRecord

CallKind = Literal["plain", "parallel", "lift", "callback", "approval", "child", "question", "timer", "retry"]
RowState = Literal["open", "allowed", "started", "parked"]
Ending = Literal["none", "finish", "park", "yield"]
Code = Literal["OK", "ALREADY", "FENCED", "DIVERGED", "AWAITS"]

PLACEHOLDER = "placeholder"
MOST_STATE_BYTES = 18_432  # 16 KB of a strategy's, and what the kernel counts beside it
MOST_CALLS = 64
MOST_GRANTS = 64
# How it is told what became of what people were asked, by the outcome of the call; the others are told as they are.
ASK_OUTCOMES = {"denied": "deny", "result": "answered", "error": "answered"}
TOO_MANY_CALLS = {
    "content": "ERROR: 64 calls have no result yet; not executed. Wait for results before you make more.",
    "is_error": True,
}
ASKED_TWICE = {"content": "ERROR: this call was approved and asked for approval again; not executed.", "is_error": True}


@dataclass(frozen=True, slots=True)
class NewCall:
    """A call that the model just made, to be recorded with the assistant entry that made it.

    `awaited` calls hold the turn; others are detached: a placeholder answers them and the real result comes later.
    `body` is {"name", "args" (a JSON object), "provider_id"}; `idempotent` decides what happens after a crash.
    `timeout_ms` matters to lifted calls only, `queue` to them and to a callback whose raw answers its tool resolves there.
    """

    id: str
    kind: CallKind
    body: dict[str, Any]
    awaited: bool = False
    idempotent: bool = False
    queue: str | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """Append an assistant entry with the calls it makes.

    `body`: {"text", "usage", "model", "finish"}, and "asked", how often a model was asked for it, where that is not once.
    """

    body: dict[str, Any]
    calls: tuple[NewCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Append the result of an open call. `outcome` may be "placeholder". `body`: {"content", "is_error"} or None."""

    call: str
    outcome: str
    body: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Append a record of another type: a notification entry, or an event that only followers see."""

    type: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Clear:
    """Take the notices of one group and key, which the log has shown already, out of what a model sees.

    With `unshown` those that wait to be shown go, too.
    """

    group_key: str
    unshown: bool = False


Part = Say | Answer | Note | Clear


@dataclass(frozen=True, slots=True)
class Park:
    """Let a call wait outside. `deadline_ms` is how long from now; `secret_hash` is None when no token exists.

    For a lifted call it is how long its task may run, counted from the task's start; it waits for that up to a day, or
    as long if that is longer. `task` lets go of a started call whose effect goes on at this worker: the row belongs to
    (worker, task), who tells its outcome. With `awaited` the turn waits for it, whatever the call was declared as.
    `kind` is what the call is from now on, None what it was. `request` is kept as JSON beside the row while it waits: what
    people are asked, or what a poll has to know. `after_ms` puts off the first relay of a lifted call. With `ripe` the
    deadline gives the call that result body, and no timeout.
    """

    call: str
    deadline_ms: int
    secret_hash: str | None = None
    task: str | None = None
    awaited: bool = False
    kind: CallKind | None = None
    request: dict[str, Any] | None = None
    after_ms: int | None = None
    ripe: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold the turn for a while: a row that is no call, with no entry and no result. `id` is the caller's, once per store."""

    id: str
    kind: Literal["retry", "timer"]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One transition of a turn.

    `append` is written in order. `start` marks calls STARTED (their intent; no effect may run before that commit
    answered). `tokens` are (call, hash of its token's secret) of started calls whose body may hand the token out: the
    row knows it before that. `unstart` takes marks back. `settle` puts a result of a parallel batch into its row. `claim` takes
    what waits in the inbox into the log, allowed only when the next step is a model call. `failure` ends the turn's
    jobs as failed: {"code", "message", "retryable", "ref"}. `closing` answers all calls that are still open, as the
    end of a cancelled or failed turn must. `wait` holds the turn that parks. What the jobs answer is the turn's last assistant entry. `lanes` are the
    out lanes to wake. `state` is what the strategy and the kernel have to remember of the turn after this transition: None leaves
    it as it is, the turn's end drops it. `low` comes with a compaction: the seq of the oldest entry that a model still sees.
    """

    append: tuple[Part, ...] = ()
    start: tuple[str, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()
    unstart: tuple[str, ...] = ()
    settle: tuple[Answer, ...] = ()
    park: tuple[Park, ...] = ()
    wait: tuple[Wait, ...] = ()
    claim: bool = False
    ending: Ending = "none"
    closing: bool = False
    failure: dict[str, Any] | None = None
    usage: dict[str, int] = field(default_factory=dict[str, int])
    lanes: tuple[str, ...] = ()
    state: dict[str, Any] | None = None
    low: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """An unanswered call of the open batch, as its row says.

    `decision` is "allow" or "deny" once people decided, and `decided` what they said: {"by", "at"} (ms), and where it was given
    "input" (arguments in place of the model's), "reason" and "scope".
    """

    call: str
    kind: CallKind
    state: RowState
    awaited: bool
    outcome: str | None
    demoted: bool
    idempotent: bool
    decision: str | None
    attempt: int = 1
    decided: dict[str, Any] | None = None

    @property
    def detached(self) -> bool:
        """Tell whether a placeholder answers this call, its real result coming later through the inbox."""
        return self.demoted or (not self.awaited and self.kind in ("lift", "callback", "child"))


@dataclass(frozen=True, slots=True)
class TurnView:
    """What a worker knows of the turn it runs, straight after a begin or commit.

    `entries` are all records of the store that a model may see, oldest first, struck ones left out. `rows` holds the
    unanswered calls of the last batch in source order. `mine` are calls whose STARTED mark this worker made and whose
    effect it has not reported: only these may run; a started row outside `mine` was interrupted. `cancel` and
    `yield_` are asked for by the server; `drain` by this process. `last_seq` is that of the store's last entry;
    `serial` the agent version the turn runs on, `began` the one that began it (0: not known); `mark` names the commit this view comes from, empty after a begin.
    `state` is what the last transition left of the turn's state; `active_ms` how long the turn has run on workers by then, its waits
    left out. `now_ms` is what the store's clock said. `entries` are in reading order: a summary stands where what it stands for was.
    """

    code: Code
    session: str
    store: str
    turn: str
    epoch: int
    rev: int
    entries: tuple[LogRecord, ...] = ()
    rows: tuple[Row, ...] = ()
    mine: frozenset[str] = frozenset()
    cancel: str | None = None
    yield_: bool = False
    drain: bool = False
    jobs: tuple[str, ...] = ()
    head: dict[str, str] = field(default_factory=dict[str, str])
    ended: bool = False
    ending: str | None = None
    last_seq: int = 0
    serial: int = 0
    began: int = 0
    mark: str = ""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    active_ms: int = 0
    now_ms: int = 0


def encode_state(state: dict[str, Any]) -> bytes:
    """Return a turn's state as a store keeps it, b"" for an empty one.

    Raises:
        StateTooLarge: it is over 18 KB as JSON; nothing was written.
    """
    raw = orjson.dumps(state) if state else b""
    if len(raw) > MOST_STATE_BYTES:
        raise StateTooLarge(
            f"the turn's state is {len(raw):,} bytes as JSON and may be {MOST_STATE_BYTES:,}: "
            "keep what is large in the log or in a file, and a reference to it in the state"
        )
    return raw
