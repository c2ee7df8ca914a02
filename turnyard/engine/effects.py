"""What a turn may do next, and what came of it.

An effect is the one thing of a step that reaches outside; everything else of the step is a `Commit`. A result says
what the effect brought. Both are plain values, so a decision can be tested, compared and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from turnyard.engine.bounds import Bounds, Budget
from turnyard.engine.react import React
from turnyard.engine.strategy import AnyStrategy
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import CallKind, Commit, Row

DAY_MS = 86_400_000
APPROVAL_MS = 900_000  # how long people are asked where nothing else says so
HOOK_FAILED, POLICY_FAILED = "hook_failed", "policy_failed"


@dataclass(frozen=True, slots=True)
class ToolFact:
    """What the turn has to know of a tool. `timeout_ms` is how long a parked call may wait, None for a day.

    A call of a tool that works `alone` never runs beside another. With `resolves` what comes to its callback URL is read by
    the tool itself, on its lifted queue.
    """

    kind: CallKind = "plain"
    awaited: bool = False
    idempotent: bool = False
    queue: str | None = None
    timeout_ms: int | None = None
    alone: bool = False
    resolves: bool = False


READ_ENTRY = "read_entry"
_READER = ToolFact(idempotent=True)


@dataclass(frozen=True, slots=True)
class ToolTable:
    """What the turn has to know of its agent. `strategy` decides its course.

    `bounds` are those of one turn. `parallel` is how many plain calls of one answer may run at once. With `forced_terminal` a reply that never called
    that tool does not end the turn. `secret_hash` gives the hash of the token made for a call, None when calls have no
    tokens. With `hooks` the agent has turn_stopping hooks. `read_output` turns the text of a reply into the agent's output and raises ValueError when it does not fit.
    With `judged` there are rules on who may call what, and no call starts before it was judged; `approval_ms` is how long people are asked
    about one where no rule says it. `tools` may change between two looks,
    `absence` says why a name is not among them.
    """

    tools: Mapping[str, ToolFact] = field(default_factory=dict[str, ToolFact])
    bounds: Bounds = field(default_factory=Bounds)
    parallel: int = 1
    forced_terminal: str | None = None
    secret_hash: Callable[[str], str] | None = None
    read_output: Callable[[str], Any] | None = None
    hooks: bool = False
    judged: bool = False
    approval_ms: int = APPROVAL_MS
    absence: Callable[[str], str] = "there is no tool {!r}".format
    strategy: AnyStrategy = field(default_factory=React)

    def fact(self, name: str) -> ToolFact | None:
        """Return what is known of a tool, None when there is none; every agent has the one that reads shortened entries."""
        return self.tools.get(name) or (_READER if name == READ_ENTRY else None)


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model for the next answer. `key` is the same when the ask is repeated after a crash.

    `note` is added to the system message of this call only; without `tools` none are offered. `fold` says whether the context may be folded first (auto),
    must be (force: the model said that it is too long), or must not be (never: a summary has failed in this turn; least: and the model
    said that it is too long, so that the request is made as short as it can be).
    """

    key: str
    note: str = ""
    tools: bool = True
    fold: Literal["auto", "force", "never", "least"] = "auto"


@dataclass(frozen=True, slots=True)
class Fold:
    """Summarise a stretch of the log, because the next request would not fit: done in place of an `AskModel`.

    `messages` is the request to the summariser. `spans` are the stretches of seqs, ends included, that the summary stands
    for, `count` how many entries that is (summaries among them left out), `at` the seq it stands at, `low` the seq of the
    oldest entry still visible after it. `before` is the size of the whole in tokens, `rest` that of what stays, `replaced`
    that of what the summary stands for. `more` tells that older entries are left, to be folded next. The builder leaves
    `key` to whoever performs the fold.
    """

    key: str
    messages: tuple[dict[str, Any], ...]
    spans: tuple[tuple[int, int], ...]
    at: int
    low: int
    count: int
    before: int
    rest: int
    more: bool = False
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class AskHooks:
    """Ask the agent's turn_stopping hooks whether the turn ends here.

    `reason`: no_calls, step_limit or budget. `steps` are the model calls of the turn so far, `segments` how often hooks went
    on, `budget` what is left of the bounds.
    """

    reason: Literal["no_calls", "step_limit", "budget"]
    steps: int
    segments: int
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the rules say of one call.

    `reason` is shown to whoever is asked, or to the model of a call that is denied, with `guidance` on what to do instead. Of an ask:
    `approvers` may decide (empty: whoever may use the API), within `expires_in_ms` (None: as long as the agent's approvals last);
    with `scope` anyone a newer message of any user takes its place; without `self_approve` the asker may not decide; `remember`
    "session" lets an approver allow the tool for the whole session. `audit` is kept with the result and never shown to the model.
    A denial that is `faulty` is an error of the caller: the arguments do not fit the tool, and the reason names the fault.
    """

    decision: Literal["allow", "ask", "deny"] = "allow"
    reason: str = ""
    guidance: str = ""
    approvers: tuple[str, ...] = ()
    expires_in_ms: int | None = None
    scope: Literal["asker", "anyone"] = "asker"
    self_approve: bool = True
    remember: Literal["session"] | None = None
    audit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    faulty: bool = False


@dataclass(frozen=True, slots=True)
class JudgeCalls:
    """Judge calls that the strategy makes of its own, before they are declared; or once more the `approved` one, before it runs."""

    calls: tuple[AskedCall, ...]
    approved: str | None = None


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run one call, whose STARTED mark is committed. `key` is its idempotency key."""

    row: Row
    name: str
    args: dict[str, Any]
    key: str


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Run these calls at the same time. Each result is committed alone, as that of a `RunTool`."""

    calls: tuple[RunTool, ...]


@dataclass(frozen=True, slots=True)
class NoEffect:
    """Nothing to do outside: only `commit` is due."""

    commit: Commit


Effect = AskModel | Fold | AskHooks | JudgeCalls | RunTool | RunBatch | NoEffect


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The model answered. `cleared` are notices that were over before it was asked; `active_tokens` the size of what it read.

    `asked` is how often it was asked for that: 0 when a layer answered in its place. The usage of `done` is that of all of them.
    `judged` says of each of the calls that the strategy makes of it, in their order, what the rules say; empty: there are none.
    """

    done: Done
    cleared: tuple[str, ...] = ()
    active_tokens: int = 0
    asked: int = 1
    judged: tuple[Judgement, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The stretch is summarised. `after` is the size in tokens of what a model reads from now on."""

    text: str
    after: int
    usage: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What the hooks said: `stop` wins over `texts`, which go on as messages of the user; neither ends the turn, too."""

    stop: bool = False
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The call is done. With `closes` the turn ends once the whole batch is answered, and the model is not asked again.

    `details` is JSON that the log keeps for whoever watches, `audit` what was decided about the call and by whom; the model sees
    neither, None is none. `times` is how often its tool was run for that: 0 when a layer answered in its place.
    `ref` is the file that holds the whole of it, `size` bytes, when `content` does not; `media_type` is set when that is no text.
    """

    content: str
    is_error: bool = False
    closes: bool = False
    times: int = 1
    details: Any = None
    audit: Mapping[str, Any] | None = None
    ref: str | None = None
    size: int | None = None
    media_type: str | None = None

    @property
    def body(self) -> dict[str, Any]:
        """Return it as a log holds it."""
        more = {"details": self.details, "audit": None if self.audit is None else dict(self.audit)}
        more |= {"ref": self.ref, "size": self.size, "media_type": self.media_type}
        return {"content": self.content, "is_error": self.is_error} | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Parked:
    """The call's result will come from outside. `expires_in_ms` None: the time its tool was declared with.

    With `awaited` the turn waits for it. `poll_ms` has its tool look again that much later on its lifted queue, with `request`
    to know where; the deadline gives `ripe` as the result where there is one. `task` says that the body goes on at this worker.
    """

    note: str
    expires_in_ms: int | None = None
    correlation: str | None = None
    awaited: bool = False
    poll_ms: int | None = None
    request: dict[str, Any] | None = None
    ripe: dict[str, Any] | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class AskApproval:
    """The call asked, before it did anything, that people decide first."""

    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rules say of each of the calls, in their order."""

    judgements: tuple[Judgement, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The model, or the summariser, gave no answer, or what the app was asked about it failed.

    `retry_after_ms` is what the server asked for, None when it said nothing. `usage` is what was paid all the same; `answer` is what
    the model reads for the call that it failed on.
    """

    code: str
    message: str
    retryable: bool = False
    ref: str | None = None
    retry_after_ms: int | None = None
    usage: Mapping[str, int] = field(default_factory=dict[str, int])
    answer: str = ""


Result = ModelAnswer | Summary | HookAnswer | ToolResult | Parked | AskApproval | Judged | Failure | None
