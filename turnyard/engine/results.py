"""What came of a prompt: what was said, which calls were made, and what still waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from turnyard.engine.compaction import Compaction
from turnyard.engine.cutting import compaction_of
from turnyard.engine.memory import MemorySession
from turnyard.engine.messages import Message
from turnyard.engine.options import Settings
from turnyard.engine.texts import text_of
from turnyard.errors import JobCancelled, JobFailed
from turnyard.records.commit import PLACEHOLDER
from turnyard.records.log import ASSISTANT, CALL, COMPACTION, RESULT, LogRecord

RunState = Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class CallMade:
    """A call the model made. `outcome` is None while it has none; a pending one has the outcome placeholder."""

    id: str
    name: str
    args: dict[str, Any]
    content: str | None = None
    outcome: str | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ParkedCall:
    """A call that waits for something outside. `correlation` is set when the tool gave an id of its own.

    `request` is what people are asked, None where nobody is: {"kind": allow_deny or question, "reason", "approvers", "expires_in_ms", ...}.
    """

    call: str
    tool: str
    kind: str
    args: dict[str, Any]
    deadline_ms: int | None = None
    correlation: str | None = None
    request: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LocalState:
    """A session at one moment. The containers are copies, what they hold is shared.

    `settings` are those of the next run. `streaming_message` is what there is of the answer that is being given, None
    between answers. `last_error` is why the last run failed or was aborted, None when it was not.
    """

    settings: Settings
    messages: tuple[Message, ...]
    is_streaming: bool
    streaming_message: Message | None
    pending_tool_calls: frozenset[str]
    last_error: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a prompt.

    `text` is the last text said since the prompt, `texts` are all of them in order, `output` is the typed output, or the
    text where the agent declares none. `silent` tells that the last reply was empty, so that `text` is from an earlier
    round. `error` is set when the state is failed or cancelled: {"code", "message", "retryable", "ref"}; text and calls
    are then the partial result. `usage` counts over the life of the session: model_calls, tool_calls, input_tokens,
    output_tokens and what else the model reported, `total` of input and output together, and `active`, the size of what
    the model read last. `compactions` are those that took place since the prompt.
    """

    state: RunState
    text: str = ""
    output: Any = None
    calls: tuple[CallMade, ...] = ()
    parked: tuple[ParkedCall, ...] = ()
    usage: dict[str, int] = field(default_factory=dict[str, int])
    error: dict[str, Any] | None = None
    silent: bool = False
    cause: str | None = None
    compactions: tuple[Compaction, ...] = ()
    texts: tuple[str, ...] = ()

    def check(self) -> RunResult:
        """Return this result unless it is a failure.

        Raises:
            JobFailed: the turn failed; `code` says why.
            JobCancelled: it was cancelled.
        """
        if self.state == "cancelled":
            raise JobCancelled(self.cause or "user")
        if self.error is not None:
            raise JobFailed(self.error["code"], self.error["message"], ref=self.error.get("ref"))
        return self


def calls_of(records: Iterable[LogRecord]) -> tuple[CallMade, ...]:
    """Return the calls of these records with their latest result."""
    made: dict[str, CallMade] = {}
    for record in records:
        call = record.call or ""
        if record.type == CALL:
            made[call] = CallMade(call, record.body["name"], record.body["args"])
        elif record.type == RESULT and call in made:
            before, body = made[call], record.body
            content = body.get("content") if record.outcome != PLACEHOLDER else text_of(record, before.name)
            made[call] = CallMade(call, before.name, before.args, content, record.outcome, bool(body.get("is_error")))
    return tuple(made.values())


def parked_of(memory: MemorySession) -> tuple[ParkedCall, ...]:
    """Return the calls of a session that wait outside, oldest first."""
    return tuple(
        ParkedCall(r.call, r.name, r.kind, r.args, r.deadline_ms, r.correlation, r.request if r.asks else None) for r in memory.parked()
    )


def result_of(
    memory: MemorySession,
    job: str | None,
    start: int,
    *,
    usage: dict[str, int],
    error: dict[str, Any] | None,
    decode: Callable[[Any], Any],
) -> RunResult:
    """Return what came of a job, None for none, since the record `start`. `error` is why the run ended, None when it just did."""
    records = [r for r in memory.log if r.seq > start]
    said = [r for r in records if r.type == ASSISTANT]
    texts = tuple(r.body["text"] for r in said if r.body.get("text"))
    text = texts[-1] if texts else ""
    output = said[-1].body.get("output") if said else None
    held = memory.jobs[job] if job else None
    state = held.state if held else "failed" if error else "succeeded"
    if memory.state == "parked" and state == "running":
        state = "waiting"
    return RunResult(
        state=state,
        text=text,
        output=decode(output) if output is not None else text,
        calls=calls_of(records),
        parked=parked_of(memory),
        usage=usage,
        error=(held.error if held else None) or (error if state in ("failed", "cancelled") else None),
        silent=bool(said) and not said[-1].body.get("text"),
        cause=held.cause if held else None,
        compactions=tuple(compaction_of(r) for r in records if r.type == COMPACTION),
        texts=texts,
    )
