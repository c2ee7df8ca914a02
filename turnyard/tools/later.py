"""How a call that was left open is finished: its tool reads what a vendor said, or looks for the result itself.

Either is done on a lifted worker, maybe twice, and never fails the call by an accident: what raises is tried again, and
then the call waits on, until its own time is over. Only a `ToolError` ends it, as it would have from the body.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import TypeAdapter

from turnyard.errors import ToolError
from turnyard.text import bound, scrub
from turnyard.tools.context import ToolContext
from turnyard.tools.park import Park
from turnyard.tools.runtime import OUTPUT_BYTES, ToolOutcome, in_thread, logged, outcome_of
from turnyard.tools.tool import Tool, takes_payload

LIMIT_S = 300.0  # how long one look may take
_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class NotYet:
    """There is no result yet. `again` says when and how to look next, and `request` is what is kept for that; None: as before.

    With `failed` that is because it could not be found out, for the reason that the log has under this reference.
    """

    again: Park | None = None
    failed: str | None = None
    request: dict[str, Any] | None = None


async def read_body(tool: Tool[..., Any], raw: str | bytes, ctx: ToolContext[Any]) -> ToolOutcome | NotYet:
    """Return what a tool's resolver makes of a body that came to the call's callback URL; a tool without one takes it as it is.

    Never raises, except CancelledError.
    """
    text = scrub(raw if isinstance(raw, str) else raw.decode("utf-8", "replace"))
    if tool.resolver is None:
        return ToolOutcome(bound(text, OUTPUT_BYTES))
    as_text = _wanted(tool.resolver, takes_payload(tool.resolver)) is str
    return await _finish(tool, "the resolver of", tool.resolver, text if as_text else _parsed(text), ctx)


async def look(tool: Tool[..., Any], state: Any, ctx: ToolContext[Any]) -> ToolOutcome | NotYet:
    """Return what a tool's poller finds; never raises, except CancelledError."""
    if tool.poller is None:
        return ToolOutcome(f"{tool.name}: nobody looks for its results any more; the effect of the call is unknown", is_error=True)
    return await _finish(tool, "the poller of", tool.poller, state, ctx)


async def call_off(tool: Tool[..., Any], state: Any, ctx: ToolContext[Any]) -> None:
    """Have a tool stop what a call of it left going elsewhere; what fails is logged. Never raises, except CancelledError."""
    if tool.stopper is not None:
        await _finish(tool, "the stopper of", tool.stopper, state, ctx)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


async def _finish(tool: Tool[..., Any], what: str, function: Callable[..., Any], given: Any, ctx: ToolContext[Any]) -> ToolOutcome | NotYet:
    body = asyncio.ensure_future(_found(tool, what, function, given, ctx))
    try:
        await asyncio.wait({body}, timeout=LIMIT_S)
    except asyncio.CancelledError:
        body.cancel()
        await asyncio.wait({body}, timeout=_GRACE_S)
        raise
    if not body.done():
        body.cancel()
        await asyncio.wait({body}, timeout=0)
        return NotYet(failed=logged(tool, what, ctx, TimeoutError(f"it took longer than {LIMIT_S:g} s")))
    return body.result()


async def _found(tool: Tool[..., Any], what: str, function: Callable[..., Any], given: Any, ctx: ToolContext[Any]) -> ToolOutcome | NotYet:
    try:
        result = await _called(function, given, ctx)
        if result is None:
            return NotYet()
        if isinstance(result, Park):
            return NotYet(result, request=result.request)
        return await outcome_of(tool, result, ctx)
    except ToolError as error:
        return ToolOutcome(bound(str(error), OUTPUT_BYTES), is_error=True)
    except (asyncio.CancelledError, GeneratorExit) as error:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return NotYet(failed=logged(tool, what, ctx, error))
    except BaseException as error:  # noqa: BLE001 - a stranger's code ends here
        return NotYet(failed=logged(tool, what, ctx, error))


async def _called(function: Callable[..., Any], given: Any, ctx: ToolContext[Any]) -> Any:
    parameter = takes_payload(function)
    wanted = _wanted(function, parameter)
    if wanted is not None:
        given = TypeAdapter(wanted).validate_python(given)
    first = () if parameter is None or parameter.name == next(iter(inspect.signature(function).parameters)) else (ctx,)
    if inspect.iscoroutinefunction(inspect.unwrap(function)):
        return await function(*first, given)
    return await in_thread(function, *first, given)


def _wanted(function: Callable[..., Any], parameter: inspect.Parameter | None) -> Any:
    """Return the type that a resolver's or poller's parameter declares, None when it takes anything."""
    if parameter is None or parameter.annotation in (inspect.Parameter.empty, Any):
        return None
    try:
        return inspect.signature(function, eval_str=True).parameters[parameter.name].annotation
    except NameError:  # a name that only a type checker knows
        return None
