"""What the owner of a session in this process may watch and decide on the way.

Each of these may be left out. Where a function is asked, it may be a plain one or a coroutine. None of them can break
a turn: what one raises is logged. A check that raises before a call keeps the call from running; any other changes nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from turnyard.engine.compaction import Compaction
from turnyard.engine.effects import RunTool, ToolResult
from turnyard.engine.messages import Message
from turnyard.engine.middleware import Ran
from turnyard.engine.queues import Drain
from turnyard.engine.runner import Run
from turnyard.ports import Delta
from turnyard.records.commit import TurnView

if TYPE_CHECKING:
    from turnyard.engine.results import ParkedCall
    from turnyard.records.approvals import Decision

T = TypeVar("T")
Answer = T | Awaitable[T]

SKIPPED = "not executed: the user wrote something new meanwhile; read that first"

_log = logging.getLogger("turnyard.engine")


@dataclass(frozen=True, slots=True)
class CallContext:
    """A call that is about to run, or has run."""

    call: str
    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Do not run the call; the model reads the reason."""

    reason: str = "it was blocked"


@dataclass(frozen=True, slots=True)
class Replace:
    """What to change of a result, field by field; None keeps it. `terminate` True ends the run once the batch is answered.

    `details` are for whoever watches; the model does not see them.
    """

    content: str | None = None
    details: Any = None
    is_error: bool | None = None
    terminate: bool | None = None


@dataclass(frozen=True, slots=True)
class TurnDone:
    """A turn of the run that made calls is over: its answer and their results."""

    message: Message | None
    results: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is done with, fixed when it begins. `thinking_level` None is what the model's settings say, "off" none.

    What the others may be is the agent's business; None is the agent's own.
    """

    model: Any = None
    instructions: Any = None
    tools: tuple[Any, ...] | None = None
    thinking_level: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The functions and choices of one session.

    `on_delta` is told of every piece of an answer, `on_usage` once per answer of the counts so far, `on_compaction` of
    every compaction. `before_tool_call` may block a call, `after_tool_call` change its result. After a turn that made
    calls `should_stop_after_turn` may end the run, and `prepare_next_turn` change what the rest of it is done with.
    With `skip_remaining_on_steer` calls that have not begun are not run once a steering message waits. `convert` says in place
    of all roles' converters what the model sees of each message, None for nothing.
    """

    steering: Drain = "one"
    follow_ups: Drain = "one"
    skip_remaining_on_steer: bool = False
    convert: Callable[[Message], Message | None] | None = None
    on_delta: Callable[[Delta], None] | None = None
    on_usage: Callable[[dict[str, int]], None] | None = None
    on_compaction: Callable[[Compaction], None] | None = None
    before_tool_call: Callable[[CallContext], Answer[Block | None]] | None = None
    after_tool_call: Callable[[CallContext, ToolResult], Answer[Replace | None]] | None = None
    should_stop_after_turn: Callable[[TurnDone], Answer[bool]] | None = None
    prepare_next_turn: Callable[[TurnDone, Settings], Answer[Settings | None]] | None = None
    on_approval: Callable[[ParkedCall], Answer[bool | Decision | None]] | None = None


class LocalOptions(TypedDict, total=False):
    """The fields of `Options`, for a call that gives some of them by name."""

    steering: Drain
    follow_ups: Drain
    skip_remaining_on_steer: bool
    convert: Callable[[Message], Message | None] | None
    on_delta: Callable[[Delta], None] | None
    on_usage: Callable[[dict[str, int]], None] | None
    on_compaction: Callable[[Compaction], None] | None
    before_tool_call: Callable[[CallContext], Answer[Block | None]] | None
    after_tool_call: Callable[[CallContext, ToolResult], Answer[Replace | None]] | None
    should_stop_after_turn: Callable[[TurnDone], Answer[bool]] | None
    prepare_next_turn: Callable[[TurnDone, Settings], Answer[Settings | None]] | None
    on_approval: Callable[[ParkedCall], Answer[bool | Decision | None]] | None


def told(listener: Callable[[T], None] | None, what: T) -> None:
    """Tell a function of something, if there is one."""
    if listener is None:
        return
    try:
        listener(what)
    except Exception:  # noqa: BLE001 - a stranger's code: who only watches stops nothing
        _log.exception("a callback failed on %s", type(what).__name__)


async def asked(question: Callable[[], Answer[T]], otherwise: T) -> T:
    """Return what the owner says, plainly or by a coroutine; `otherwise` when that fails."""
    try:
        return await _answered(question())
    except Exception:  # noqa: BLE001 - a stranger's code: the run goes on as if it had said nothing
        _log.exception("a question to the session's owner failed")
        return otherwise


async def _answered(value: Answer[T]) -> T:
    return await cast("Awaitable[T]", value) if inspect.isawaitable(value) else cast("T", value)


def guarded(run: Run, options: Options, *, steered: Callable[[], bool]) -> Run:
    """Return `run` with what the options say about calls around it; `steered` tells whether a steering message waits."""
    if not (options.before_tool_call or options.after_tool_call or options.skip_remaining_on_steer):
        return run

    async def guard(view: TurnView, effect: RunTool) -> Ran:
        if options.skip_remaining_on_steer and steered():
            return ToolResult(f"ERROR: {SKIPPED}", is_error=True)
        context = CallContext(effect.row.call, effect.name, effect.args)
        block = await _before(options, context)
        if block is not None:
            return ToolResult(f"ERROR: {effect.name} was not executed: {block.reason}", is_error=True)
        result = await run(view, effect)
        return await _after(options, context, result) if isinstance(result, ToolResult) else result

    return guard


async def _before(options: Options, context: CallContext) -> Block | None:
    if options.before_tool_call is None:
        return None
    try:
        return await _answered(options.before_tool_call(context))
    except Exception:  # noqa: BLE001 - a stranger's code: a check that fails must not let the call pass
        _log.exception("before_tool_call failed on %s", context.tool)
        return Block("the check before it failed")


async def _after(options: Options, context: CallContext, result: ToolResult) -> ToolResult:
    if options.after_tool_call is None:
        return result
    after = options.after_tool_call
    change = await asked(lambda: after(context, result), None)
    if change is None:
        return result
    given = {"content": change.content, "details": change.details, "is_error": change.is_error, "closes": change.terminate}
    return replace(result, **{name: value for name, value in given.items() if value is not None})
