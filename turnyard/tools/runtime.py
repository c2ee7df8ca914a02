"""How one tool call is run so that nothing it does can break the turn.

Whatever the body does (raise, hang, exit, return a gigabyte or a lone surrogate) becomes one bounded text for the
model. Only the text of a `ToolError` is shown to the model; other failures get a reference that the log explains.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields, is_dataclass, replace
from threading import Thread
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from turnyard.errors import InvalidInput, SessionClosed, ToolError
from turnyard.text import OUTPUT_BYTES, bound, scrub_tree
from turnyard.tools.approval import ApprovalRequired, Ask
from turnyard.tools.context import ToolContext
from turnyard.tools.detailed import Detailed
from turnyard.tools.park import Park
from turnyard.tools.spill import shown_bytes
from turnyard.tools.tool import Tool

HELD_BYTES = 33_554_432  # how much of a result is looked at, before it is cut for the model and kept whole
DETAILS_BYTES = 16_384
THREAD = "turnyard tool"  # the name of each thread that runs a plain function
# How long a cancelled body may tidy up before the turn goes on without it.
_GRACE_S = 1.0

_log = logging.getLogger("turnyard.tools")


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool brought, not yet cut for the model. `park` is set when the result will come from outside; `content` is then its note.

    With `closes` the tool ends the turn: the model is not asked again once the whole batch is answered. `details` is JSON
    for whoever watches, which the model does not see. With `asks` the body did nothing yet and wants people to decide first.
    `ref` is the file that holds the whole of it, of `size` bytes, when `content` does not; `media_type` is set when that is no text.
    """

    content: str
    is_error: bool = False
    park: Park | None = None
    closes: bool = False
    details: Any = None
    asks: Ask | None = None
    ref: str | None = None
    size: int | None = None
    media_type: str | None = None

    @property
    def body(self) -> dict[str, Any]:
        """Return it as a log holds it."""
        body: dict[str, Any] = {"content": self.content, "is_error": self.is_error}
        more = {"details": self.details, "ref": self.ref, "size": self.size, "media_type": self.media_type}
        return body | {name: value for name, value in more.items() if value is not None}


async def run_tool(tool: Tool[..., Any], arguments: object, ctx: ToolContext[Any], *, keep: bool = False) -> ToolOutcome:
    """Run one call. Never raises, except CancelledError when this task is cancelled, after cancelling the body.

    With `keep` a body that gives a result though it was cancelled is not cancelled for nothing: that result is returned.
    `arguments` is the object the model sent. A body that overruns the tool's `limit` is cancelled and left behind; a
    body that is a plain function runs in a thread, which nothing can stop, and is left behind too.
    """
    try:
        given = tool.arguments.check(arguments)
    except InvalidInput as error:
        refusal = f"{tool.name} was not run: {error}. Correct the arguments and call it again."
        return ToolOutcome(bound(refusal, OUTPUT_BYTES), is_error=True)
    if keep and ctx.cancelled:
        raise asyncio.CancelledError  # it is stopped before it began
    body = asyncio.ensure_future(_guarded(tool, given, ctx))
    try:
        await asyncio.wait({body}, timeout=tool.limit.total_seconds())
    except asyncio.CancelledError:
        await _stop(tool, body, keep=keep)
        if keep and body.done() and not body.cancelled():
            return body.result()
        raise
    if not body.done():
        body.cancel()
        # One turn of the loop lets a well-behaved body close its files; a stubborn one is not waited for.
        await asyncio.wait({body}, timeout=0)
        return ToolOutcome(f"{tool.name} timed out after {tool.limit.total_seconds():g} s; its effect is unknown", is_error=True)
    if body.cancelled():
        return _failure(tool, ctx, asyncio.CancelledError("the body cancelled itself"))
    return body.result()


async def _stop(tool: Tool[..., Any], body: asyncio.Future[ToolOutcome], *, keep: bool) -> None:
    """Cancel a body, and let it tidy up. A thread cannot be cancelled: one that is asked for its result may look whether it is to stop."""
    if keep and tool.takes_context and not tool.is_async:
        await asyncio.wait({body}, timeout=_GRACE_S)
    body.cancel()
    await asyncio.wait({body}, timeout=_GRACE_S)


async def _guarded(tool: Tool[..., Any], given: dict[str, Any], ctx: ToolContext[Any]) -> ToolOutcome:
    try:
        result = await _body(tool, given, ctx)
        return _parked(tool, result) if isinstance(result, Park) else await outcome_of(tool, result, ctx)
    except SessionClosed as end:
        return ToolOutcome(bound(end.result, HELD_BYTES), closes=True)
    except ApprovalRequired as request:
        return _asking(tool, request.ask, ctx)
    except ToolError as error:
        return ToolOutcome(bound(str(error), HELD_BYTES), is_error=True)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a stranger's code ends here: a KeyboardInterrupt would end the process and all its turns
        return _failure(tool, ctx, error)


async def outcome_of(tool: Tool[..., Any], result: object, ctx: ToolContext[Any]) -> ToolOutcome:
    """Return what a model is told of the result that a body gave; it may raise what the result raises as it is read."""
    if isinstance(result, Detailed):
        return replace(await _given(tool, result.content, ctx), details=_details(tool, result.details))
    return await _given(tool, result, ctx)


def _body(tool: Tool[..., Any], given: dict[str, Any], ctx: ToolContext[Any]) -> Coroutine[Any, Any, Any]:
    first = (ctx,) if tool.takes_context else ()
    if tool.is_async:
        return tool.function(*first, **given)
    return in_thread(tool.function, *first, **given)


async def in_thread(function: Callable[..., Any], /, *args: Any, **given: Any) -> Any:
    """Run a plain function in a thread of its own, and whatever awaitable it returns here.

    A pool would be full once enough bodies that nothing can stop were left behind in it.
    """
    scope = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def call() -> None:
        # A future cannot carry StopIteration, so what is raised travels as a value.
        try:
            outcome = scope.run(function, *args, **given), None
        except BaseException as error:  # noqa: BLE001 - raised again on the loop's side
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            loop.call_soon_threadsafe(_settle, ended, outcome)

    Thread(target=call, name=THREAD, daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return await result if asyncio.iscoroutine(result) else result


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


async def _given(tool: Tool[..., Any], result: object, ctx: ToolContext[Any]) -> ToolOutcome:
    """Return a result: its text, or the file that holds what is no text."""
    if isinstance(result, bytes | bytearray):
        data = bytes(result)
        if (text := _decoded(data)) is None:
            shown = await shown_bytes(data, ctx.files, name=f"{tool.name}-{ctx.call_id}")
            return ToolOutcome(shown.content, ref=shown.ref, size=shown.size, media_type=shown.media_type)
        result = text
    return ToolOutcome(bound(_text(result), HELD_BYTES))


def _decoded(data: bytes) -> str | None:
    """Return bytes as the text that they are; None when they are none."""
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _parked(tool: Tool[..., Any], park: Park) -> ToolOutcome:
    if park.poll is not None and tool.poller is None:
        raise RuntimeError(f"tool {tool.name} returned Park(poll=...) and nobody polls it: give it a function by @{tool.name}.poll")
    if park.poll is None and park.ripe is None and tool.kind != "callback":
        raise RuntimeError(f"tool {tool.name} returned Park but is not declared with @tool(park=...)")
    if park.poll is not None:
        _ = park.request  # what cannot be kept is an error of the tool, now
    return ToolOutcome(bound(park.note, OUTPUT_BYTES), park=park)


def _asking(tool: Tool[..., Any], ask: Ask, ctx: ToolContext[Any]) -> ToolOutcome:
    """Return the outcome of a body that asks for approval; where nobody can be asked any more it is an error that says what to change."""
    if tool.kind == "lift":
        text = f"{tool.name} asks for approval while it runs outside the turn, where nobody can be asked: declare it with approval="
    elif ctx.approved:
        text = f"{tool.name} was approved and asks for approval again; not executed: it is to look at ctx.approved"
    else:
        return ToolOutcome(bound(ask.reason, OUTPUT_BYTES), asks=ask)
    return ToolOutcome(text, is_error=True)


def _text(result: object) -> str:
    """Return a result as text: a string as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    try:
        return to_json(result, inf_nan_mode="null").decode()
    except PydanticSerializationError:
        # pydantic refuses a lone surrogate wherever it stands; the standard library carries it as an escape.
        return to_json(scrub_tree(json.loads(json.dumps(result, default=_plain))), inf_nan_mode="null").decode()


def _details(tool: Tool[..., Any], details: object) -> Any:
    """Return details as JSON; what is too large for the log is an error of the tool."""
    raw = _text(details) if not isinstance(details, str) else json.dumps(details)
    if len(raw.encode()) > DETAILS_BYTES:
        raise RuntimeError(f"tool {tool.name}: its details are over {DETAILS_BYTES:,} bytes as JSON; keep what is large in a file")
    return scrub_tree(json.loads(raw))


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    return to_jsonable_python(value)


def logged(tool: Tool[..., Any], what: str, ctx: ToolContext[Any], error: BaseException) -> str:
    """Log that `what` of a tool failed; return the reference by which the log is searched."""
    ref = secrets.token_hex(4)
    extra = {"tool": tool.name, "ref": ref, "tenant": ctx.tenant, "session": ctx.session, "turn": ctx.turn, "call": ctx.call_id}
    _log.error("%s %s failed (ref %s)", what, tool.name, ref, exc_info=error, extra=extra)
    return ref


def _failure(tool: Tool[..., Any], ctx: ToolContext[Any], error: BaseException) -> ToolOutcome:
    ref = logged(tool, "tool", ctx, error)
    return ToolOutcome(f"{tool.name}: tool failed (ref {ref})", is_error=True)
