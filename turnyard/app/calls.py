"""How the calls of an agent's tools are run: each with the context of its turn, never with what the model says of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from turnyard.app.hooks import Hooks, after_tool, before_tool
from turnyard.app.policies import ToolCall
from turnyard.app.toolbox import Toolbox
from turnyard.engine.beside import Detached, NotYet
from turnyard.engine.effects import READ_ENTRY, AskApproval, Failure, Parked, RunTool, ToolResult
from turnyard.engine.middleware import Ran
from turnyard.engine.stubs import Stretch, read_arguments, read_entry
from turnyard.errors import HookFailed, NotFound, TurnyardError
from turnyard.fence import turn_fence
from turnyard.ports import Blobs
from turnyard.records.commit import Row, TurnView
from turnyard.records.log import RESULT, USER, LogRecord
from turnyard.text import OUTPUT_BYTES, both_ends, bound
from turnyard.tools.context import CallUrls, ToolContext
from turnyard.tools.files import Files
from turnyard.tools.later import NotYet as LookAgain
from turnyard.tools.later import look, read_body
from turnyard.tools.policy import judgement_of
from turnyard.tools.runtime import ToolOutcome, run_tool
from turnyard.tools.spill import Shown, shown_text
from turnyard.tools.tool import Tool

log = logging.getLogger("turnyard.app")

_TELLS_MS = 5000  # a body whose time is over tells so itself, before the call's deadline does

AnyTool = Tool[..., Any]
Report = Callable[[str, float, str], Awaitable[None]]
Say = Callable[[Mapping[str, str], str, str, str, str], Awaitable[None]]
Finish = Callable[[AnyTool, ToolContext[Any]], Awaitable[ToolOutcome | LookAgain]]
Notify = Callable[[Mapping[str, str], str, str, str], Awaitable[None]]


async def _unsaid(_head: Mapping[str, str], _turn: str, _call: str, _event: str, _text: str) -> None:
    """Drop a message: nobody reads along."""


async def _unheard(_call: str, _fraction: float, _note: str) -> None:
    """Drop a progress report: nobody follows."""


def _no_urls(_call: str) -> CallUrls:
    return CallUrls("http://localhost.invalid/callback", "http://localhost.invalid/outcome")


def _never() -> bool:
    return False


async def _untold(_head: Mapping[str, str], _text: str, _group: str, _key: str) -> None:
    """Drop news for later: nobody keeps the session."""


async def _nothing_older(_view: TurnView, _seq: int) -> LogRecord | None:
    """Return no entry: what the turn shows is all there is."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a call may reach beyond its arguments, wherever it runs.

    `urls` gives the URLs at which a parked call is answered, by call id; `report` passes progress on to followers;
    `say` tells the user something now (head, turn, call, event id, text), once however often the event comes;
    `older` reads an entry of the session's log that the turn does not show any more, None when there is none.
    `notify` leaves a notice in the session of a head, also when the call is over.
    With `keeps` what a call still gives when it is stopped is its result. `detach` keeps a body running that its turn waits for
    no longer, and returns the name of its task; None where a turn waits as long as it takes. `blobs` keeps files, None where nothing does; a result
    over `output_bytes` is shown cut and kept whole there.
    """

    version: str = ""
    urls: Callable[[str], CallUrls] = _no_urls
    report: Report = _unheard
    say: Say = _unsaid
    cancelled: Callable[[], bool] = _never
    older: Callable[[TurnView, int], Awaitable[LogRecord | None]] = _nothing_older
    notify: Notify = _untold
    keeps: bool = False
    detach: Callable[[Detached], str] | None = None
    blobs: Blobs | None = None
    output_bytes: int = OUTPUT_BYTES


@dataclass(frozen=True, slots=True)
class Hands:
    """Run the calls of one agent's turns. `deps` is what the app's lifespan yielded, `hooks` are the app's."""

    agent: str
    toolbox: Toolbox
    deps: Any
    around: Surroundings = field(default_factory=Surroundings)
    hooks: Hooks = field(default_factory=Hooks)

    async def run(self, view: TurnView, effect: RunTool) -> Ran:
        """Run one call; never raises, except CancelledError when this task is cancelled, and it gives no result."""
        tool = self.toolbox.get(effect.name)
        if tool is None and effect.name == READ_ENTRY:
            return await self._read(view, effect)
        if tool is None:  # it went between the decision to run it and now
            return ToolResult(f"{self.toolbox.absence(effect.name)}; not executed.", is_error=True)
        ctx = self.context(view, effect.row, effect.key, tool)
        if tool.lift_after is not None and self.around.detach is not None:
            return await self._for_a_while(view, effect, tool, ctx)
        return await self._outcome(tool, effect, ctx)

    async def _for_a_while(self, view: TurnView, effect: RunTool, tool: AnyTool, ctx: ToolContext[Any]) -> Ran:
        """Run one call; a body that takes longer than its tool says goes on without the turn, and is not run twice."""
        one = Detached(effect.row.call, effect.name, effect.row.attempt)
        ctx = replace(ctx, cancel_requested=lambda: one.stopping or self.around.cancelled())
        after_s = tool.lift_after.total_seconds() if tool.lift_after else 0.0
        body = one.body = asyncio.ensure_future(self._outcome(tool, effect, ctx))
        try:
            await asyncio.wait({body}, timeout=after_s)
        except asyncio.CancelledError:
            body.cancel()
            await asyncio.wait({body})
            if body.cancelled():
                raise
        if body.done() or self.around.detach is None:
            return await body
        one.body = asyncio.ensure_future(self._bounded_later(view, effect, body))
        left_ms = max(0, int((tool.limit.total_seconds() - after_s) * 1000)) + _TELLS_MS
        return Parked("", left_ms, awaited=tool.wait, task=self.around.detach(one))

    async def _outcome(self, tool: AnyTool, effect: RunTool, ctx: ToolContext[Any]) -> Ran:
        call = ToolCall(tool.name, effect.args, tool, ctx.call_id)
        try:
            given = await before_tool(self.hooks, ctx, call)
            outcome = await run_tool(tool, given, ctx, keep=self.around.keeps)
            return read_outcome(await after_tool(self.hooks, ctx, call, outcome))
        except HookFailed as error:
            return Failure(error.code, str(error), ref=error.ref, answer=error.answer)

    async def _bounded_later(self, view: TurnView, effect: RunTool, body: asyncio.Future[Ran]) -> Ran:
        result = await body
        return await self.bounded(view, effect, result) if isinstance(result, ToolResult) else result

    async def look(self, view: TurnView, effect: RunTool, request: Mapping[str, Any]) -> ToolResult | NotYet:
        """Look for the result of a call that was left open; never raises, except CancelledError."""
        return await self._finish(view, effect, lambda tool, ctx: look(tool, request.get("state"), ctx), request.get("poll_ms"))

    async def read(self, view: TurnView, effect: RunTool, raw: str) -> ToolResult | NotYet:
        """Read what came to the callback URL of a call; never raises, except CancelledError."""
        return await self._finish(view, effect, lambda tool, ctx: read_body(tool, raw, ctx), None)

    async def _finish(self, view: TurnView, effect: RunTool, doing: Finish, again_ms: int | None) -> ToolResult | NotYet:
        tool = self.toolbox.get(effect.name)
        if tool is None:
            return ToolResult(f"{self.toolbox.absence(effect.name)}; the effect of the call is unknown", is_error=True)
        ctx = self.context(view, effect.row, effect.key)
        done = await doing(tool, ctx)
        if isinstance(done, LookAgain):
            return NotYet(again_ms if done.again is None else done.again.poll_ms, done.request)
        try:
            done = await after_tool(self.hooks, ctx, ToolCall(tool.name, effect.args, tool, ctx.call_id), done)
        except HookFailed as error:
            return ToolResult(error.answer, is_error=True)
        return await self.bounded(view, effect, _result(done))

    async def _read(self, view: TurnView, effect: RunTool) -> ToolResult:
        """Read an entry that the model was shown shortened, or that a summary stands for."""
        seq, offset, length = read_arguments(effect.args)
        entries: Sequence[LogRecord] = view.entries
        if all(entry.seq != seq for entry in entries):
            older = await self.around.older(view, seq)
            entries = () if older is None else (older,)
        cut = next((e for e in entries if e.seq == seq and e.type == RESULT and e.body.get("ref")), None)
        return ToolResult(read_entry(entries, seq, offset, length)) if cut is None else await self._part(view, cut, offset, length)

    async def _part(self, view: TurnView, cut: LogRecord, offset: int, length: int) -> ToolResult:
        """Read a part of the file that holds the whole of a result."""
        ref, size, kind = cut.body["ref"], int(cut.body.get("size") or 0), cut.body.get("media_type")
        if kind:
            return ToolResult(f"Entry {cut.seq} is the file {ref}: {size:,} bytes of {kind}, and no text.")
        stretch = Stretch.of(size, offset, length)
        try:
            files = self.files(view.head.get("tenant", ""))
            return ToolResult(stretch.text(cut.seq, await files.get(ref, offset=stretch.low, length=stretch.high - stretch.low)))
        except NotFound:
            return ToolResult(f"The whole of entry {cut.seq} is not kept any more; what was shown of it is all there is.", is_error=True)
        except TurnyardError as error:
            log.warning("a file could not be read", extra={"file": ref, "reason": str(error)})
            return ToolResult(f"The whole of entry {cut.seq} cannot be read now; try again later.", is_error=True)

    async def bounded(self, view: TurnView, effect: RunTool, result: ToolResult) -> ToolResult:
        """Return a result as the log is to hold it: one that is too long is cut, and kept whole as a file. Never raises."""
        if effect.name == READ_ENTRY and self.toolbox.get(READ_ENTRY) is None:
            return result
        if result.ref is not None:  # it names a file already; what a hook made of its words is cut all the same
            return replace(result, content=both_ends(result.content, self.around.output_bytes, lost=True))
        shown = await self._shown(view.head.get("tenant", ""), effect.name, effect.row.call, result.content)
        return replace(result, content=shown.content, ref=shown.ref, size=shown.size)

    async def shown(self, tenant: str, name: str, call: str, outcome: ToolOutcome) -> ToolOutcome:
        """Return an outcome that comes from outside a turn as the log is to hold it, like `bounded`. Never raises."""
        if outcome.ref is not None:
            return replace(outcome, content=both_ends(outcome.content, self.around.output_bytes, lost=True))
        shown = await self._shown(tenant, name, call, outcome.content)
        return replace(outcome, content=shown.content, ref=shown.ref, size=shown.size)

    async def _shown(self, tenant: str, name: str, call: str, content: str) -> Shown:
        return await shown_text(content, self.files(tenant), name=f"{name}-{call}.txt", limit_bytes=self.around.output_bytes)

    def files(self, tenant: str) -> Files:
        """Return the files of a tenant."""
        return Files(self.around.blobs, tenant)

    def context(self, view: TurnView, row: Row, key: str, tool: AnyTool | None = None) -> ToolContext[Any]:
        """Return the context of a call; with its `tool` that has the call's URLs."""
        head, around, call = view.head, self.around, row.call

        async def report(fraction: float, note: str) -> None:
            await around.report(call, fraction, note)

        async def say(event: str, text: str) -> None:
            await around.say(head, view.turn, call, event, text)

        async def notify(text: str, group: str, key: str) -> None:
            await around.notify(head, text, group, key)

        return ToolContext(
            deps=self.deps,
            tenant=head.get("tenant", ""),
            session=head.get("session", ""),
            agent=self.agent,
            turn=view.turn,
            call_id=call,
            idempotency_key=key,
            user=head.get("user", ""),
            agent_version=around.version,
            attempt=row.attempt,
            fence=turn_fence(view.epoch),
            approved=row.decision == "allow",
            metadata=_metadata(view),
            platform=head.get("platform") or "http",
            expires_at=time_of(view.now_ms) + tool.park if tool is not None and tool.park else None,
            urls=around.urls(call) if tool is not None and tool.kind == "callback" else None,
            files=self.files(head.get("tenant", "")),
            report=report,
            say=say,
            cancel_requested=around.cancelled,
            notify=notify,
        )


def time_of(at_ms: int) -> datetime:
    """Return a moment of the store's clock as a time."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def read_outcome(outcome: ToolOutcome) -> Ran:
    """Return what the engine has to know of what a tool brought."""
    if outcome.asks is not None:
        return AskApproval(judgement_of(outcome.asks))
    if outcome.park is None:
        return _result(outcome)
    park = outcome.park
    request = park.request if park.poll is not None else None
    ripe = None if park.ripe is None else {"content": bound(park.ripe, OUTPUT_BYTES), "is_error": False}
    return Parked(outcome.content, park.expires_in_ms, awaited=park.wait, poll_ms=park.poll_ms, request=request, ripe=ripe)


def _result(outcome: ToolOutcome) -> ToolResult:
    whole: dict[str, Any] = {"ref": outcome.ref, "size": outcome.size, "media_type": outcome.media_type}
    return ToolResult(outcome.content, outcome.is_error, outcome.closes, details=outcome.details, **whole)


def _metadata(view: TurnView) -> dict[str, str]:
    """Return the metadata of the latest message of the turn."""
    for entry in reversed(view.entries):
        if entry.turn != view.turn:
            break
        if entry.type == USER:
            return cast("dict[str, str]", entry.body.get("metadata") or {})
    return {}
