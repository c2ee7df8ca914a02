"""A session that runs in this process: prompt it, answer what it waits for, look at what came of it.

It is the same engine as on the workers, on a store that forgets: use it in tests, scripts and notebooks. One
coroutine at a time drives a session; what arrives meanwhile (`publish`, `inject`, `notice`) joins the running turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from turnyard.backoff import Backoff
from turnyard.engine import transitions
from turnyard.engine.effects import Effect, Failure, Parked, Result, RunTool, ToolResult, ToolTable
from turnyard.engine.memory import CallRow, MemorySession, Settled
from turnyard.engine.runner import Means, Performer
from turnyard.engine.strategy import Strategy
from turnyard.errors import AlreadyDecided, Conflict, JobCancelled, JobFailed, NotFound
from turnyard.records import ids
from turnyard.records.commit import TurnView
from turnyard.records.input import message_body
from turnyard.records.log import ASSISTANT, CALL, RESULT, LogRecord

_RETRY_FIRST_S = 1.0
_RETRY_MOST_S = 15.0

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
    """A call that waits for something outside. `correlation` is set when the tool gave an id of its own."""

    call: str
    tool: str
    kind: str
    args: dict[str, Any]
    deadline_ms: int | None = None
    correlation: str | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a prompt.

    `text` is the last text said since the prompt, `output` the typed output, or the text where the agent declares
    none. `silent` tells that the last reply was empty, so that `text` is from an earlier round. `error` is set when
    the state is failed: {"code", "message", "retryable", "ref"}; text and calls are then the partial result.
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

    def check(self) -> RunResult:
        """Return this result unless it is a failure.

        Raises:
            JobFailed: the turn failed; `code` says why.
            JobCancelled: it was cancelled.
        """
        if self.error is not None:
            raise JobFailed(self.error["code"], self.error["message"], ref=self.error.get("ref"))
        if self.state == "cancelled":
            raise JobCancelled(self.cause or "user")
        return self


Scope = Callable[[], AbstractAsyncContextManager[Means]]


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """What a local session needs of its agent.

    `scope` opens the means for as long as something is running; `decode` makes the typed output of a stored one;
    `attempts` is how often one step may ask the model when the failure may pass.
    """

    table: ToolTable
    strategy: Strategy
    scope: Scope
    decode: Callable[[Any], Any]
    attempts: int = 1


class LocalSession:
    """One conversation with an agent. `memory` is what the store would hold of it."""

    def __init__(self, agent: LocalAgent, memory: MemorySession) -> None:
        self._agent = agent
        self.memory = memory

    @property
    def entries(self) -> tuple[LogRecord, ...]:
        """Return the log's entries, oldest first."""
        return tuple(r for r in self.memory.log if r.is_entry)

    @property
    def parked(self) -> tuple[ParkedCall, ...]:
        """Return the calls that wait outside, oldest first."""
        return tuple(_parked(row) for row in self.memory.parked())

    @property
    def waiting(self) -> int:
        """Return how many items wait in the inbox."""
        return len(self.memory.inbox)

    # -- what runs turns ----------------------------------------------------------------------------------------------

    async def prompt(self, content: str | Sequence[dict[str, Any]]) -> RunResult:
        """Send a user message and run until nothing is left to do, or everything left waits outside.

        Raises:
            InvalidInput: the message has no text.
        """
        start = len(self.memory.log)
        job = self.publish(content)
        await self.run()
        return self._result(job, start)

    async def resolve(self, which: ParkedCall | str, value: Any = None, *, error: str | None = None) -> RunResult:
        """Give a parked call its result, or its error, and run what that wakes.

        `which` is the parked call, its id, or the correlation id that its tool gave. `value` is shown to the model as
        text, or as JSON when it is not a string.

        Raises:
            NotFound: no such call.
            AlreadyDecided: the call has another outcome; the first one stands. The same one again changes nothing.
        """
        row = self._find(which)
        body = {"content": _text(value) if error is None else error, "is_error": error is not None}
        start = len(self.memory.log)
        settled = self.memory.outcome(row.call, "result" if error is None else "error", body)
        _check(settled, row)
        if settled == "accepted":
            await self.run()
        return self._result(row.jobs[-1] if row.jobs else None, start)

    async def run(self) -> None:
        """Run turns and lifted calls until nothing is left to do here."""
        async with self._agent.scope() as means:
            performer = Performer(means)
            try:
                await self._drive(performer)
                while lifts := [r for r in self.memory.parked() if r.kind == "lift"]:
                    for row in lifts:
                        await self._lifted(means, row)
                    await self._drive(performer)
            finally:
                await performer.aclose()

    async def expire(self) -> list[str]:
        """Give up the calls whose time is over, run what that wakes, and return their ids."""
        due = self.memory.expire()
        await self.run()
        return due

    # -- what only arrives --------------------------------------------------------------------------------------------

    def publish(self, content: str | Sequence[dict[str, Any]]) -> str:
        """Leave a user message that wakes the session when it next runs; return the id of its job.

        Raises:
            InvalidInput: the message has no text.
        """
        return self.memory.accept(message_body(content))

    def inject(self, text: str, *, tag: str = "") -> None:
        """Add context that the next model call sees; by itself it starts no turn."""
        self.memory.inject({"text": text, "tag": tag})

    def notice(self, text: str, *, group: str, key: str, tag: str = "") -> None:
        """Leave a notice; it replaces an unshown one of the same group and key, and starts no turn."""
        self.memory.notice({"text": text, "group": group, "key": key, "tag": tag}, group=group, key=key)

    def clear(self, *, group: str, key: str) -> None:
        """Remove the notices of this group and key, shown or not."""
        self.memory.clear(group=group, key=key)

    def cancel(self) -> bool:
        """Ask the open turn to end; False when there is none."""
        return self.memory.request_cancel()

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _drive(self, performer: Performer) -> None:
        view = transitions.begin(self.memory)
        while view is not None:
            strategy, table = self._agent.strategy, self._agent.table
            while not view.ended:
                effect, result = await self._step(performer, view)
                change = strategy.commit_after(view, effect, result=result, facts=table)
                view = transitions.commit(self.memory, view, change)
            view = transitions.begin(self.memory)

    async def _step(self, performer: Performer, view: TurnView) -> tuple[Effect, Result]:
        backoff = Backoff(first_s=_RETRY_FIRST_S, most_s=_RETRY_MOST_S)
        try:
            effect = self._agent.strategy.next_effect(view, self._agent.table)
            for _ in range(self._agent.attempts - 1):
                done, result = await performer.perform(view, effect)
                if not isinstance(result, Failure) or not result.retryable:
                    return done, result
                await self.memory.clock.sleep(backoff.next_s())
            return await performer.perform(view, effect)
        except BaseException:
            # the caller has the exception; the session must not stay in the hands of nobody
            self.memory.state = "ready"
            raise

    async def _lifted(self, means: Means, row: CallRow) -> None:
        """Run a lifted call here, where no other worker would."""
        head = self.memory.head
        key = ids.idempotency_key(head["tenant"], head["session"], row.turn, row.call)
        view = TurnView("OK", "local", self.memory.store, row.turn, self.memory.epoch, self.memory.rev, self.entries, head=head)
        result = await means.run(view, RunTool(row.row(), row.name, row.args, key))
        if isinstance(result, Parked):
            result = ToolResult(f"{row.name} is lifted and cannot park", is_error=True)
        outcome = "error" if result.is_error else "result"
        self.memory.outcome(row.call, outcome, {"content": result.content, "is_error": result.is_error})

    def _find(self, which: ParkedCall | str) -> CallRow:
        wanted = which if isinstance(which, str) else which.call
        found = self.memory.rows.get(wanted)
        found = found or next((r for r in self.memory.rows.values() if r.correlation == wanted), None)
        if found is None:
            raise NotFound(f"no call {wanted!r} in this session")
        return found

    def _result(self, job: str | None, start: int) -> RunResult:
        memory = self.memory
        records = memory.log[start:]
        said = [r for r in records if r.type == ASSISTANT]
        text = next((r.body["text"] for r in reversed(said) if r.body.get("text")), "")
        held = memory.jobs[job] if job else None
        output = said[-1].body.get("output") if said else None
        return RunResult(
            state=held.state if held else "succeeded",
            text=text,
            output=self._agent.decode(output) if output is not None else text,
            calls=tuple(_calls(records)),
            parked=self.parked,
            usage=dict(memory.usage),
            error=held.error if held else None,
            silent=bool(said) and not said[-1].body.get("text"),
            cause=held.cause if held else None,
        )


def _parked(row: CallRow) -> ParkedCall:
    return ParkedCall(row.call, row.name, row.kind, row.args, row.deadline_ms, row.correlation)


def _calls(records: Sequence[LogRecord]) -> list[CallMade]:
    """Return the calls of these records with their latest result."""
    made: dict[str, CallMade] = {}
    for record in records:
        call = record.call or ""
        if record.type == CALL:
            made[call] = CallMade(call, record.body["name"], record.body["args"])
        elif record.type == RESULT and call in made:
            before, body = made[call], record.body
            made[call] = CallMade(call, before.name, before.args, body.get("content"), record.outcome, bool(body.get("is_error")))
    return list(made.values())


def _check(settled: Settled, row: CallRow) -> None:
    if settled == "conflict":
        raise AlreadyDecided(f"call {row.call} of {row.name} has the outcome {row.outcome}; the first one stands")
    if settled == "gone":
        raise Conflict(f"call {row.call} of {row.name} takes no outcome")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    dump = getattr(value, "model_dump", None)
    return orjson.dumps(dump(mode="json") if dump else value, default=str).decode()
