"""A session that runs in this process: prompt it, steer it, answer what it waits for, look at what came of it.

It is the same engine as on the workers, on a store that forgets: use it in tests, scripts and notebooks. One run at a
time: a second prompt is refused, what steers or is published joins the run. Each run works with the settings it began
with, and tells of what happens on the session's bus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from turnyard.engine.bus import Compacted, EventBus
from turnyard.engine.compaction import Compaction, FileOps
from turnyard.engine.cutting import compaction_of, cut
from turnyard.engine.driver import Run, take
from turnyard.engine.local_agent import LocalAgent
from turnyard.engine.memory import MemorySession
from turnyard.engine.messages import ASSISTANT, Image, Message, body_of, messages_of
from turnyard.engine.narration import Narration
from turnyard.engine.options import Options, told
from turnyard.engine.outcomes import decide, give_outcome, give_raw
from turnyard.engine.outside import outstanding
from turnyard.engine.queues import MessageQueue
from turnyard.engine.registry import Converter, Registry
from turnyard.engine.results import CallMade, LocalState, ParkedCall, RunResult, parked_of, result_of
from turnyard.engine.wiring import Shared
from turnyard.errors import Conflict, SessionBusy
from turnyard.records.approvals import Decision
from turnyard.records.input import notice_body
from turnyard.records.log import LogRecord

__all__ = ["CallMade", "LocalAgent", "LocalSession", "LocalState", "ParkedCall", "RunResult"]

Content = str | Sequence[dict[str, Any]] | Message


class LocalSession:
    """One conversation with an agent. `memory` is what the store would hold of it."""

    def __init__(
        self, agent: LocalAgent, memory: MemorySession, *, options: Options | None = None, roles: Mapping[str, Converter] | None = None
    ) -> None:
        options = options or Options()
        self.bus = EventBus()
        self.registry = Registry(roles)
        queues = MessageQueue(options.steering), MessageQueue(options.follow_ups)
        self._shared = Shared(memory, options, self.bus, Narration(self.bus), self.registry, *queues)
        self._agent = agent
        self._settings = agent.settings
        self._run: Run | None = None
        self._last_error: dict[str, Any] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    # -- what it holds ------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> MemorySession:
        """Return what the store would hold of the session."""
        return self._shared.memory

    @property
    def entries(self) -> tuple[LogRecord, ...]:
        """Return the log's entries that a model may see, in reading order."""
        return self.memory.entries

    @property
    def messages(self) -> list[Message]:
        """Return the transcript."""
        return messages_of(self.entries, {call: row.name for call, row in self.memory.rows.items()})

    @property
    def parked(self) -> tuple[ParkedCall, ...]:
        """Return the calls that wait outside, oldest first."""
        return parked_of(self.memory)

    @property
    def waiting(self) -> int:
        """Return how many items wait in the inbox."""
        return len(self.memory.inbox)

    @property
    def has_queued(self) -> bool:
        """Tell whether a steering message or a follow-up waits."""
        return bool(len(self._shared.steering) or len(self._shared.follow_ups))

    def state(self) -> LocalState:
        """Return the session as it is at this moment."""
        narration = self._shared.narration
        pending, error = frozenset(narration.pending), dict(self._last_error) if self._last_error else None
        return LocalState(self._settings, tuple(self.messages), self._run is not None, narration.streaming, pending, error)

    # -- what runs turns ----------------------------------------------------------------------------------------------

    async def prompt(self, content: Content, *images: Image) -> RunResult:
        """Send a user message and run until nothing is left to do, or everything left waits outside.

        Raises:
            SessionBusy: a run is under way; nothing was queued or changed. Use `steer` or `follow_up` meanwhile.
            InvalidInput: the message has no text.
        """
        self._check_idle()
        body = body_of(content, *images)
        return await self._answer(lambda: self.memory.accept(body))

    async def resume(self) -> RunResult:
        """Go on without a new message: after a failure or a stop, or with what waits in the queues.

        When the last message is an answer, the steering messages that are due are sent, or else the follow-ups.
        Otherwise the model is asked once more.

        Raises:
            SessionBusy: a run is under way.
            Conflict: there is no message yet, the last one is an answer and nothing is queued, or a call is waited for.
        """
        self._check_idle()
        if self.memory.state == "ready":
            return await self._answer(lambda: None)
        messages = self.messages
        if not messages:
            raise Conflict("there is nothing to continue: the session has no message yet; prompt it")
        if self.memory.state == "parked":
            raise Conflict(f"the turn waits for {', '.join(p.tool for p in self.parked) or 'a call'}: resolve it, or prompt the session")
        if messages[-1].role != ASSISTANT:
            return await self._answer(self.memory.again, ask=True)
        if not self.has_queued:
            raise Conflict("there is nothing to continue: the last message is an answer and no message is queued; prompt the session")
        queue = self._shared.steering if len(self._shared.steering) else self._shared.follow_ups
        return await self._answer(lambda: take(queue, self.memory), poll=False)

    async def run(self) -> None:
        """Run turns and lifted calls until nothing is left to do here.

        Raises:
            SessionBusy: a run is under way.
        """
        self._check_idle()
        if self.memory.state == "ready" or self.has_queued or outstanding(self.memory):
            await self._go(lambda: None)

    async def resolve(self, which: ParkedCall | str, value: Any = None, *, error: str | None = None, raw: Any = None) -> RunResult:
        """Give a parked call its result, or its error, and run what that wakes; a run that is under way takes it up.

        `which` is the parked call, its id, or the correlation id that its tool gave. `value` is shown to the model as
        text, or as JSON when it is not a string. `raw` is what comes to the call's callback URL: text, or JSON, which the tool's
        resolver reads, if it has one.

        Raises:
            NotFound: no such call.
            AlreadyDecided: the call has another outcome; the first one stands. The same one again changes nothing.
        """
        start = self.memory.last_seq
        fact = self._agent.table.fact
        row, new = give_outcome(self.memory, which, value, error) if raw is None else give_raw(self.memory, which, raw, fact)
        if new:
            await self._settle()
        return self._result(row.jobs[-1] if row.jobs else None, start)

    async def approve(
        self,
        which: ParkedCall | str,
        *,
        allow: bool = True,
        by: str = "",
        input: dict[str, Any] | None = None,  # noqa: A002 - as in the API
        reason: str | None = None,
        scope: Literal["once", "session"] = "once",
    ) -> RunResult:
        """Allow a call that waits for approval, or deny it, and run what that wakes.

        `by` is who decides; "" is whoever holds the session, who always may. `input` takes the place of the model's arguments, `reason` is
        told to the model of a denial. With `scope` "session" the tool is allowed for the whole session, where that was offered.
        It raises what `answer` raises.
        """
        return await self._decide(which, Decision(decision="allow" if allow else "deny", by=by, input=input, reason=reason, scope=scope))

    async def answer(self, which: ParkedCall | str, answer: Any, *, by: str = "") -> RunResult:
        """Answer a question that a turn waits for, in words or by its options, and run what that wakes.

        Raises:
            NotFound: no such call, or it does not wait for people.
            NotApprover: `by` may not answer.
            AlreadyDecided: it was answered, or came to its end.
            InvalidInput: the answer is empty, or it is an approval.
        """
        return await self._decide(which, Decision(decision="answer", by=by, answer=answer))

    async def _decide(self, which: ParkedCall | str, decision: Decision) -> RunResult:
        start = self.memory.last_seq
        row = decide(self.memory, which, decision)
        await self._settle()
        return self._result(row.jobs[-1] if row.jobs else None, start)

    async def expire(self) -> list[str]:
        """Give up the calls whose time is over, run what that wakes, and return their ids."""
        due = self.memory.expire()
        await self._settle()
        return due

    def abort(self) -> None:
        """Stop the run: the answer that is being given, and the calls that run. Return at once; no run, no effect.

        What was said so far is kept as an aborted answer, which the model is not shown; calls that were stopped are answered
        as cancelled; the queues stay as they are. `wait_for_idle` tells when the run has ended.
        """
        if self._run is not None:
            self._run.abort()

    async def wait_for_idle(self) -> None:
        """Wait until no run is under way and the end of the last one was told."""
        await self._idle.wait()

    # -- what only arrives --------------------------------------------------------------------------------------------

    def steer(self, content: Content, *images: Image) -> None:
        """Say something to the run before it asks the model the next time; with no run, to the next one.

        Raises:
            InvalidInput: the message has no text.
        """
        self._shared.steering.enqueue(body_of(content, *images))

    def follow_up(self, content: Content, *images: Image) -> None:
        """Say something once the run would end.

        Raises:
            InvalidInput: the message has no text.
        """
        self._shared.follow_ups.enqueue(body_of(content, *images))

    def clear_steering(self) -> None:
        """Drop the steering messages that wait."""
        self._shared.steering.clear()

    def clear_follow_ups(self) -> None:
        """Drop the follow-ups that wait."""
        self._shared.follow_ups.clear()

    def clear_queues(self) -> None:
        """Drop whatever waits in both queues."""
        self.clear_steering()
        self.clear_follow_ups()

    def publish(self, content: Content) -> str:
        """Leave a user message that wakes the session when it next runs; return the id of its job.

        Raises:
            InvalidInput: the message has no text.
        """
        return self.memory.accept(body_of(content))

    def inject(self, text: str, *, tag: str = "", origin: str = "") -> None:
        """Add context that the next model call sees; by itself it starts no turn.

        Raises:
            InvalidInput: there is no text, or a tag or origin that cannot be taken.
        """
        self.memory.inject(notice_body(text, tag=tag, origin=origin))

    def notice(
        self, text: str, *, group: str, key: str, tag: str = "", origin: str = "", supersede: bool = True, ttl: timedelta | None = None
    ) -> None:
        """Leave a notice, which starts no turn; with `supersede` it replaces an unshown one of the same group and key.

        After `ttl` it does not matter any more; None: until it is cleared.

        Raises:
            InvalidInput: there is no text, or a tag or origin that cannot be taken.
        """
        ttl_ms = None if ttl is None else int(ttl.total_seconds() * 1000)
        self.memory.notice(notice_body(text, tag=tag, origin=origin), group=group, key=key, supersede=supersede, ttl_ms=ttl_ms)

    def clear(self, *, group: str, key: str) -> None:
        """Remove the notices of this group and key, shown or not."""
        self.memory.clear(group=group, key=key)

    def cancel(self) -> bool:
        """Ask the open turn to end after its step; False when there is none."""
        asked = self.memory.request_cancel()
        if self._run is not None:
            self._run.hurry()
        return asked

    # -- what changes it ----------------------------------------------------------------------------------------------

    def set_model(self, model: Any) -> None:
        """Ask this model, or these, from the next run on."""
        self._settings = replace(self._settings, model=model)

    def set_instructions(self, instructions: Any) -> None:
        """Give this system message from the next run on."""
        self._settings = replace(self._settings, instructions=instructions)

    def set_tools(self, tools: Sequence[Any]) -> None:
        """Offer these tools from the next run on."""
        self._settings = replace(self._settings, tools=tuple(tools))

    def set_thinking_level(self, level: str | None) -> None:
        """Think this much from the next run on. None is what the model's settings say, "off" not at all."""
        self._settings = replace(self._settings, thinking_level=level)

    def reset(self) -> None:
        """Forget the transcript, what waits and the last error; settings, listeners and roles stay.

        Raises:
            SessionBusy: a run is under way.
        """
        self._check_idle()
        self.clear_queues()
        self.memory.forget()
        self._shared.narration = Narration(self.bus)
        self._shared.active = 0
        self._last_error = None

    def compact(
        self, summary: str, first_kept: int, *, before: int | None = None, after: int | None = None, file_ops: FileOps | None = None
    ) -> Compaction:
        """Put a summary in the place of the messages before index `first_kept`.

        `before` and `after` are the sizes in tokens, estimated when None. `file_ops` None collects the files that the
        calls among those messages touched, and those of the summaries before.

        Raises:
            SessionBusy: a run is under way, which works on the transcript.
            InvalidInput: there is no such index, or a result after it belongs to a call before it. Nothing is changed.
        """
        self._check_idle()
        record = cut(self.memory, self.messages, summary, first_kept, before=before, after=after, file_ops=file_ops)
        done = compaction_of(record)
        told(self._shared.options.on_compaction, done)
        self.bus.emit(Compacted(done))
        return done

    async def compact_now(self) -> Compaction | None:
        """Have the model summarise the older messages now; None when that would gain nothing, or was aborted.

        Messages that steer or follow are held meanwhile.

        Raises:
            SessionBusy: a run is under way, which works on the transcript.
            ModelError: there is no summary; nothing is changed.
        """
        self._check_idle()
        with self._held() as run:
            return await run.condense()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        if self._run is not None:
            raise SessionBusy("the session has a run under way: wait_for_idle, or use steer or follow_up")

    async def _answer(self, enter: Callable[[], Any], *, poll: bool = True, ask: bool = False) -> RunResult:
        start = self.memory.last_seq
        jobs: list[str] = []

        def entering() -> None:
            job = enter()
            if isinstance(job, str):
                jobs.append(job)

        await self._go(entering, poll=poll, ask=ask)
        return self._result(jobs[0] if jobs else None, start)

    async def _go(self, enter: Callable[[], None], *, poll: bool = True, ask: bool = False) -> None:
        self._last_error = None
        with self._held() as run:
            try:
                await run.go(enter, poll=poll, ask=ask)
            finally:
                self._last_error = run.error

    @contextmanager
    def _held(self) -> Generator[Run]:
        """Hold the session for one run, or for a summary."""
        run = self._run = Run(self._shared, self._agent, self._settings)
        self._idle.clear()
        try:
            yield run
        finally:
            self._run = None
            self._idle.set()

    async def _settle(self) -> None:
        """Have run what is ready, by the run that is under way or one of our own."""
        if self._run is not None:
            self._run.hurry()
        while self._run is not None or self.memory.state == "ready" or any(row.raw for row in self.memory.parked()):
            if self._run is not None:
                await self.wait_for_idle()
            else:
                await self.run()

    def _result(self, job: str | None, start: int) -> RunResult:
        return result_of(self.memory, job, start, usage=self._shared.usage(), error=self._last_error, decode=self._agent.decode)
