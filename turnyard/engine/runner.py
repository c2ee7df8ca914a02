"""How the effects of one turn are performed: the model is asked, tools are run.

Whatever stores the turn, the same `Performer` does its effects. It keeps the calls of a parallel batch running while
their results are committed one by one, and stops them all when the turn is cancelled or let go.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnyard.engine.effects import (
    AskHooks,
    AskModel,
    Effect,
    Failure,
    HookAnswer,
    ModelAnswer,
    Parked,
    Result,
    RunBatch,
    RunTool,
    ToolResult,
)
from turnyard.engine.notices import without
from turnyard.engine.render import render
from turnyard.errors import ModelError
from turnyard.ports import Delta, Done, ModelRequest, Provider, ToolSpec
from turnyard.records.commit import TurnView
from turnyard.records.log import LogRecord

Run = Callable[[TurnView, RunTool], Awaitable[ToolResult | Parked]]
Instruct = Callable[[TurnView], Awaitable[str]]
Prepare = Callable[[TurnView], Awaitable[Sequence[str]]]
Spawn = Callable[[TurnView, RunTool], Awaitable[tuple[str, dict[str, Any]]]]
StopHooks = Callable[[TurnView, AskHooks, Sequence[dict[str, Any]]], Awaitable[HookAnswer | Failure]]
Show = Callable[[Sequence[LogRecord]], Sequence[LogRecord]]


@dataclass(frozen=True, slots=True)
class Model:
    """A provider and the name of the model behind it."""

    provider: Provider
    name: str


@dataclass(frozen=True, slots=True)
class Means:
    """What an agent's turns are done with.

    `models` are tried in order: the next one when the one before failed. `run` runs one call and never raises.
    `instruct` gives the system message and is asked once per turn. `on_delta` is told of every streamed piece; it
    must not block. `prepare` is asked each time before the model is: it returns the pairs (group_key) of the notices that
    are over, which are taken out of the log with the answer. `show` says what of the log the model is shown; None: all of it.
    `spawn` has the agent that a call of kind child asks do its work, and returns the call's outcome and body; it never raises.
    None where that is done elsewhere. `stopping` asks the agent's turn_stopping hooks about a turn, shown the messages so far; it never raises.
    """

    models: Sequence[Model]
    run: Run
    instruct: Instruct
    tools: Sequence[ToolSpec] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    on_delta: Callable[[TurnView, Delta], None] | None = None
    prepare: Prepare | None = None
    show: Show | None = None
    spawn: Spawn | None = None
    stopping: StopHooks | None = None


class Performer:
    """Does the effects of the turns that one worker runs on a session; `on_request` is told whenever a model is about to be asked."""

    def __init__(self, means: Means, *, on_request: Callable[[], None] | None = None) -> None:
        self._means = means
        self._on_request = on_request
        self._system: tuple[str, str] | None = None
        self._running: dict[str, asyncio.Task[ToolResult | Parked]] = {}

    @property
    def busy(self) -> bool:
        """Tell whether calls of a batch still run."""
        return bool(self._running)

    async def perform(self, view: TurnView, effect: Effect) -> tuple[Effect, Result]:
        """Do `effect`; return it and what came of it, or, for a batch, the call that finished first and its result."""
        if isinstance(effect, AskModel):
            return effect, await self._ask(view, effect)
        if isinstance(effect, RunTool):
            return effect, await self._means.run(view, effect)
        if isinstance(effect, AskHooks):
            return effect, await self._hooks(view, effect)
        if isinstance(effect, RunBatch):
            return await self._first_of(view, effect)
        return effect, None

    async def aclose(self) -> None:
        """Stop the calls that still run."""
        tasks = list(self._running.values())
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the model ----------------------------------------------------------------------------------------------------

    async def _ask(self, view: TurnView, effect: AskModel) -> ModelAnswer | Failure:
        means = self._means
        cleared = tuple(await means.prepare(view)) if means.prepare else ()
        entries = without(view.entries, cleared)
        system = "\n\n".join(part for part in (await self._instructions(view), effect.note) if part)
        messages = render(means.show(entries) if means.show else entries, system=system)
        failure = Failure("model_error", "the agent has no model")
        for model in self._means.models:
            # a provider may change what it is given; the caller's settings stay as they are
            settings = copy.deepcopy(dict(self._means.settings))
            request = ModelRequest(model.name, messages, self._means.tools, settings, effect.key)
            try:
                return ModelAnswer(await self._answer(view, model, request), cleared)
            except ModelError as error:
                after_ms = None if error.retry_after_s is None else round(error.retry_after_s * 1000)
                failure = Failure(error.code, str(error), retryable=error.retryable, retry_after_ms=after_ms)
        return failure

    async def _hooks(self, view: TurnView, effect: AskHooks) -> HookAnswer | Failure:
        if self._means.stopping is None:
            return HookAnswer()
        return await self._means.stopping(view, effect, render(view.entries))

    async def _answer(self, view: TurnView, model: Model, request: ModelRequest) -> Done:
        if self._on_request is not None:
            self._on_request()
        async for item in model.provider.stream(request):
            if isinstance(item, Done):
                return item
            if self._means.on_delta is not None:
                self._means.on_delta(view, item)
        raise ModelError(f"the stream of {model.name} ended before its answer was complete", retryable=True)

    async def _instructions(self, view: TurnView) -> str:
        """Return the system message, evaluated once per turn so that prompt caches hold."""
        if self._system is None or self._system[0] != view.turn:
            self._system = (view.turn, await self._means.instruct(view))
        return self._system[1]

    # -- a parallel batch ---------------------------------------------------------------------------------------------

    async def _first_of(self, view: TurnView, batch: RunBatch) -> tuple[Effect, Result]:
        for call in batch.calls:
            if call.row.call not in self._running:
                self._running[call.row.call] = asyncio.ensure_future(self._means.run(view, call))
        try:
            await asyncio.wait([self._running[c.row.call] for c in batch.calls], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.aclose()
            raise
        done = next(c for c in batch.calls if self._running[c.row.call].done())
        return done, self._running.pop(done.row.call).result()
