"""How the events of a session look at a terminal, and when following is over.

A session is settled when nothing of it runs and nothing waits to run; following ends when it has been settled and
silent for a moment, because what somebody just sent may still be on its way through the dispatcher.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from turnyard.cli.approvals import prompt_of
from turnyard.cli.output import one_line, say, write, write_json

if TYPE_CHECKING:
    from turnyard.client import FeedEvent

QUIET_S = 1.0
WIDTH = 100

Event = Mapping[str, Any]


async def envelopes(events: AsyncIterator[FeedEvent]) -> AsyncGenerator[Event]:
    """Yield what the events say, each with its id, from which following may go on later."""
    async for event in events:
        yield {**event.data, "id": event.id}


class Printer:
    """Writes events for people: the agent's words to stdout, what it does to stderr.

    Pieces of a message may be lost on the way and its end holds all of it, so the end completes what was shown.
    """

    def __init__(self) -> None:
        self._shown = ""

    def show(self, event: Event) -> None:
        """Write one event."""
        kind = str(event["type"])
        data: Event = event.get("data") or {}
        if kind == "message/update":
            self._piece(data)
        elif kind == "message/end":
            self._complete(str(data.get("text") or ""))
        elif kind == "message/start":
            self._break()
        elif (line := note(kind, data)) is not None:
            self._break()
            say(line)

    def _piece(self, data: Event) -> None:
        if data.get("kind", "text") == "text":
            text = str(data.get("delta") or "")
            write(text, end="")
            self._shown += text

    def _complete(self, text: str) -> None:
        if not text.startswith(self._shown):
            self._break()
        write(text[len(self._shown) :], end="")
        self._shown = text
        self._break()

    def _break(self) -> None:
        if self._shown:
            write("")
            self._shown = ""


def note(kind: str, data: Event) -> str | None:
    """Return the line that tells what happened, None for what people need not see."""
    tell = _NOTES.get(kind)
    return tell(data) if tell else None


def _call(data: Event) -> str:
    return f"→ {data.get('name')}({one_line(_arguments(data.get('args')), WIDTH)})"


def _result(data: Event) -> str:
    return f"{'✗' if data.get('is_error') else '←'} {data.get('name') or data.get('call')}: {one_line(str(data.get('content')), WIDTH)}"


def _progress(data: Event) -> str:
    share = data.get("fraction")
    return f"… {data.get('note') or ''}" + ("" if share is None else f" {share:.0%}")


def _parked(data: Event) -> str | None:
    if data.get("kind") in ("approval", "question"):
        return None  # what is asked has been told
    return f"parked on {data.get('kind')} until {data.get('expires_at')}"


def _resolved(data: Event) -> str:
    return f"resolved: {data.get('outcome')}" + (f" by {data['by']}" if data.get("by") else "")


def _asked(data: Event) -> str:
    until = f" until {data['expires_at']}" if data.get("expires_at") else ""
    why = f": {one_line(str(data['reason']), WIDTH)}" if data.get("reason") else ""
    if data.get("kind") == "question":
        labels = " ".join(f"[{n}] {one_line(str(label), WIDTH)}" for n, label in enumerate(data.get("options") or (), 1))
        asked = one_line(prompt_of(data), WIDTH)
        return f"? {asked} {labels}".rstrip() + f" (waits{until})" + f"\n  turnyard approvals answer {data.get('id')} ANSWER"
    call = f"{data.get('tool')}({one_line(_arguments(data.get('args')), WIDTH)})"
    return f"? {call} waits to be allowed{until}{why}\n  turnyard approvals allow {data.get('id')}   or deny"


def _decided(data: Event) -> str:
    words = {
        "allow": "allowed",
        "deny": "denied",
        "timeout": "not decided in time",
        "superseded": "dropped: a newer message took its place",
    }
    outcome = words.get(str(data.get("outcome")), str(data.get("outcome")))
    by = f" by {data['by']}" if data.get("by") and data.get("outcome") in ("allow", "deny", "answered") else ""
    return f"{'✓' if data.get('allow') or data.get('outcome') == 'answered' else '✗'} {outcome}{by}" + (
        f": {one_line(str(data['reason']), WIDTH)}" if data.get("reason") else ""
    )


def _sent(data: Event) -> str:
    return f"» {one_line(str(data.get('text')), 10 * WIDTH)}"


def _recovery(data: Event) -> str:
    return f"! taken up again: {one_line(str(dict(data)), WIDTH)}"


def _retry(data: Event) -> str:
    most = data.get("max_attempts")
    number = f"retry {data.get('attempt')}" + ("" if most is None else f" of {most}")
    return f"! the model is asked again in {(data.get('delay_ms') or 0) / 1000:.1f} s ({number}): {one_line(str(data.get('error_message')), WIDTH)}"


def _too_long(data: Event) -> str | None:
    if data.get("applied"):
        return f"! the request was too long and is sent again, shortened: {one_line(str(data.get('error')), WIDTH)}"
    return None  # the turn's end says it


def _compaction(data: Event) -> str:
    return f"… {data.get('count')} older entries are summarised from here on"


def _gap(data: Event) -> str:
    return f"(events {data.get('from')} to {data.get('to')} were lost)"


def _arguments(args: Any) -> str:
    if not isinstance(args, dict):
        return str(args)
    return ", ".join(f"{name}={value!r}" for name, value in cast("dict[str, Any]", args).items())


def _ending(data: Event) -> str | None:
    error = data.get("error")
    if isinstance(error, dict):
        return f"turn failed: {error.get('code')}: {error.get('message')}"
    reason = data.get("stop_reason")
    return None if reason in (None, "stop", "finish", "finished", "end_turn") else f"turn ended: {reason}"


_NOTES: dict[str, Callable[[Event], str | None]] = {
    "tool/call": _call,
    "tool/result": _result,
    "tool/progress": _progress,
    "call/parked": _parked,
    "call/resolved": _resolved,
    "permission/request": _asked,
    "permission/resolved": _decided,
    "message/sent": _sent,
    "session/recovery": _recovery,
    "retry/start": _retry,
    "summarization/retry/start": _retry,
    "overflow/recovery": _too_long,
    "session/compaction": _compaction,
    "gap": _gap,
    "turn/end": _ending,
}


async def show_until_quiet(events: AsyncIterator[Event], settled: Callable[[], Awaitable[bool]], *, as_json: bool, forever: bool) -> None:
    """Write events until the session is settled and silent, or for as long as they come."""
    printer = Printer()
    async with contextlib.AsyncExitStack() as stack:
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        pump = asyncio.create_task(_pump(events, queue))
        stack.push_async_callback(_end, pump)
        while True:
            try:
                async with asyncio.timeout(None if forever else QUIET_S):
                    event = await queue.get()
            except TimeoutError:
                if await settled() and queue.empty():
                    return None
                continue
            if event is None:
                return await pump
            if as_json:
                write_json(event)
            else:
                printer.show(event)


async def _pump(events: AsyncIterator[Event], queue: asyncio.Queue[Event | None]) -> None:
    try:
        async for event in events:
            queue.put_nowait(event)
    finally:
        queue.put_nowait(None)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
