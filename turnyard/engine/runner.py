"""How the effects of one turn are performed: the model is asked, stretches are summarised, tools are run.

Whatever stores the turn, the same `Performer` does its effects. It keeps the calls of a parallel batch running while
their results are committed one by one, and stops them all when the turn is cancelled or let go.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from turnyard.engine.beside import Detached, NotYet
from turnyard.engine.decide import calls_of
from turnyard.engine.effects import (
    AskHooks,
    AskModel,
    Effect,
    Failure,
    Fold,
    HookAnswer,
    JudgeCalls,
    Judged,
    Judgement,
    ModelAnswer,
    Result,
    RunBatch,
    RunTool,
    Summary,
    ToolResult,
)
from turnyard.engine.guards import REPETITION, Heard
from turnyard.engine.middleware import Middleware, Ran, ask_within, run_within
from turnyard.engine.notices import without
from turnyard.engine.react import React
from turnyard.engine.render import render
from turnyard.engine.reply import LENGTH, paid
from turnyard.engine.shaper import Built, ContextBuilder, Shaper
from turnyard.engine.strategy import AnyStrategy
from turnyard.errors import HookFailed, ModelError, TurnyardError
from turnyard.ports import AskedCall, Delta, Done, ModelRequest, Provider, ToolSpec, Tracer
from turnyard.records.commit import TurnView
from turnyard.records.log import CALL, COMPACTION, RESULT, LogRecord

Run = Callable[[TurnView, RunTool], Awaitable[Ran]]
Instruct = Callable[[TurnView], Awaitable[str]]
Prepare = Callable[[TurnView], Awaitable[Sequence[str]]]
Spawn = Callable[[TurnView, RunTool], Awaitable[tuple[str, dict[str, Any]]]]
Judge = Callable[[TurnView, Sequence[AskedCall]], Awaitable[tuple[Judgement, ...] | Failure]]
Bounded = Callable[[TurnView, RunTool, ToolResult], Awaitable[ToolResult]]
StopHooks = Callable[[TurnView, AskHooks, Sequence[dict[str, Any]]], Awaitable[HookAnswer | Failure]]
Look = Callable[[TurnView, RunTool, Mapping[str, Any]], Awaitable[ToolResult | NotYet]]
Read = Callable[[TurnView, RunTool, str], Awaitable[ToolResult | NotYet]]
Show = Callable[[Sequence[LogRecord]], Sequence[LogRecord]]
Offer = Callable[[], Awaitable[Sequence[ToolSpec]]]
LookUp = Callable[[Sequence[str]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Model:
    """A provider and the name of the model behind it."""

    provider: Provider
    name: str


@dataclass(frozen=True, slots=True)
class Means:
    """What an agent's turns are done with.

    `models` are tried in order: the next one when the one before failed; `summarisers` likewise for summaries, none
    meaning the same models. `run` runs one call and never raises. `instruct` gives the system message and is asked once
    per turn. `on_delta` is told of every streamed piece; it must not block. `prepare` is asked each time before the
    model is: it returns the pairs (group_key) of the notices that are over, which are taken out of the log with the
    answer. `show` says what of the log the model is shown; None: all of it. `builder` makes what fits a request of one
    turn's log. `spawn` has the agent that a call of kind child asks do its work, and returns the call's outcome and body;
    it never raises; None where that is done elsewhere. `stopping` asks the agent's turn_stopping hooks about a turn, shown
    the messages so far; it never raises. With `cuts_repetition` an answer that only repeats itself is not read to its end. `reader` is offered once something is shown shortened. `layers` wrap model and tool calls.
    `bounded` is asked last of all about a result: what it returns is what the log holds; it never raises; None: all of it.
    `judge` says what the agent's rules say of calls; it never raises; None: there are no rules. `strategy` says which calls are made of
    an answer, and is that of the agent.
    `tools` are what the model is offered, or what says that anew for each request. `look_up` is told the names of calls before it is
    decided how they are run, so that tools which come and go are those of now; neither raises. `look` looks for the result of a call
    that was left open, `read` reads what came to its callback URL; neither raises; None where that is done elsewhere. `beside`
    are the bodies that go on beside their turns, by call, where nobody else sees to them.
    """

    models: Sequence[Model]
    run: Run
    instruct: Instruct
    tools: Sequence[ToolSpec] | Offer = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    on_delta: Callable[[TurnView, Delta], None] | None = None
    prepare: Prepare | None = None
    show: Show | None = None
    spawn: Spawn | None = None
    stopping: StopHooks | None = None
    cuts_repetition: bool = True
    builder: Callable[[], ContextBuilder] = Shaper
    reader: ToolSpec | None = None
    summarisers: Sequence[Model] = ()
    layers: Middleware = field(default_factory=Middleware)
    tracer: Tracer | None = None
    judge: Judge | None = None
    strategy: AnyStrategy = field(default_factory=React)
    look_up: LookUp | None = None
    bounded: Bounded | None = None
    look: Look | None = None
    read: Read | None = None
    beside: dict[str, Detached] = field(default_factory=dict[str, Detached])

    @property
    def run_call(self) -> Run:
        """Return what runs a call within the layers and bounds what it gives."""
        run, bounded = run_within(self.layers.tool, self.run), self.bounded
        if bounded is None:
            return run

        async def within(view: TurnView, call: RunTool) -> Ran:
            result = await run(view, call)
            return await bounded(view, call, result) if isinstance(result, ToolResult) else result

        return within


class Performer:
    """Does the effects of the turns that one worker runs on a session; `on_request` is told whenever a model is about to be asked."""

    def __init__(self, means: Means, *, on_request: Callable[[], None] | None = None) -> None:
        self._means = means
        self._on_request = on_request
        self._builder = means.builder()
        self._run = means.run_call
        self._system: tuple[str, str] | None = None
        self._folded: bool | None = None  # looked up once: after that only this performer's own folds can change it
        self._cut_until = 0  # up to which record it is known that no result was cut; -1: one was
        self._running: dict[str, asyncio.Task[Ran]] = {}
        self.stopped: dict[str, Ran] = {}  # what calls of a batch still gave when they were stopped

    @property
    def busy(self) -> bool:
        """Tell whether calls of a batch still run."""
        return bool(self._running)

    async def perform(self, view: TurnView, effect: Effect) -> tuple[Effect, Result]:
        """Do `effect`; return what was done and what came of it.

        Of a batch that is the call that finished first. In place of a model call it is a fold, when one must come first.
        """
        if isinstance(effect, AskModel):
            return await self._ask(view, effect)
        if isinstance(effect, RunTool):
            with self.span("tool", tool=effect.name, call=effect.row.call):
                return effect, await self._run(view, effect)
        if isinstance(effect, AskHooks):
            return effect, await self._hooks(view, effect)
        if isinstance(effect, JudgeCalls):
            return effect, await self._judge(view, effect)
        if isinstance(effect, RunBatch):
            return await self._first_of(view, effect)
        return effect, None

    async def resume(self, view: TurnView) -> None:
        """See which tools there are for the calls that were open when this worker took the turn."""
        left = {row.call for row in view.rows}
        if left:
            await self._look_up([str(e.body.get("name", "")) for e in view.entries if e.type == CALL and e.call in left])

    async def aclose(self) -> None:
        """Stop the calls that still run."""
        running = dict(self._running)
        self._running.clear()
        for task in running.values():
            task.cancel()
        ended = await asyncio.gather(*running.values(), return_exceptions=True)
        self.stopped |= {call: result for call, result in zip(running, ended, strict=True) if not isinstance(result, BaseException)}

    def span(self, name: str, **attributes: str) -> AbstractContextManager[object]:
        """Return what tells the tracer, if there is one, that a piece of work begins and ends."""
        return nullcontext() if self._means.tracer is None else self._means.tracer.span(name, attributes)

    # -- the model ----------------------------------------------------------------------------------------------------

    async def _ask(self, view: TurnView, effect: AskModel) -> tuple[Effect, Result]:
        means = self._means
        cleared = tuple(await means.prepare(view)) if means.prepare else ()
        system = "\n\n".join(part for part in (await self._instructions(view), effect.note) if part)
        offered = await self._offered(view) if effect.tools else ()
        try:
            with self.span("build"):
                entries = without(view.entries, cleared)
                shown = means.show(entries) if means.show else entries
                built = self._builder.build(shown, system=system, tools=offered, fold=effect.fold)
        except TurnyardError as error:  # it cannot be made to fit
            return effect, Failure(error.code, str(error))
        if isinstance(built, Fold):
            fold = replace(built, key=f"{effect.key}:fold")
            return fold, await self._summarise(view, fold)
        if built.nothing_to_fold:
            return effect, Failure("context_overflow", "nothing of it can be summarised")
        offered = self._with_reader(offered, built) if effect.tools else ()
        result = await self._answer(view, means.models, ModelRequest("", built.messages, offered, {}, effect.key))
        return effect, result if isinstance(result, Failure) else await self._judged(
            view, ModelAnswer(result[0], cleared, built.tokens, result[1])
        )

    async def _judged(self, view: TurnView, answer: ModelAnswer) -> ModelAnswer | Failure:
        """Return the answer with what the rules say of the calls that are made of it."""
        done, judge = answer.done, self._means.judge
        if judge is None:
            await self._look_up([call.name for call in done.calls])
            return answer
        cut = done.finish in (LENGTH, REPETITION)  # none of its calls is run
        calls = () if cut else calls_of(view, self._means.strategy, done)
        await self._look_up([call.name for call in calls])
        said = await judge(view, calls) if calls else ()
        return replace(said, usage=paid(answer)) if isinstance(said, Failure) else replace(answer, judged=said)

    async def _judge(self, view: TurnView, effect: JudgeCalls) -> Judged | Failure:
        await self._look_up([call.name for call in effect.calls])
        if self._means.judge is None:
            return Judged(tuple(Judgement() for _ in effect.calls))
        said = await self._means.judge(view, effect.calls)
        return said if isinstance(said, Failure) else Judged(said)

    async def condense(self, view: TurnView) -> tuple[Fold, Summary | Failure] | None:
        """Summarise what is older than the newest messages, whatever the size; None when that would gain nothing.

        Raises:
            ContextOverflow: what stays is too long for a request.
        """
        shown = self._means.show(view.entries) if self._means.show else view.entries
        built = self._builder.build(shown, system="", tools=await self._tools(), fold="force")
        return (built, await self._summarise(view, built)) if isinstance(built, Fold) else None

    async def _look_up(self, names: Sequence[str]) -> None:
        if names and self._means.look_up is not None:
            await self._means.look_up(names)

    async def _tools(self) -> Sequence[ToolSpec]:
        given = self._means.tools
        return await given() if callable(given) else given

    async def _offered(self, view: TurnView) -> Sequence[ToolSpec]:
        """Return the tools of a request. The reader of what is shortened joins them, last, once there is a summary or a cut result."""
        tools, reader = await self._tools(), self._means.reader
        if reader is None:
            return tools
        if self._folded is None:
            self._folded = any(e.type == COMPACTION for e in view.entries)
        return (*tools, reader) if self._folded or self._cut(view) else tools

    def _cut(self, view: TurnView) -> bool:
        """Tell whether a result of the log is shown cut, its whole being a file."""
        if self._cut_until >= 0 and view.entries:
            known, self._cut_until = self._cut_until, view.entries[-1].seq
            for entry in reversed(view.entries):
                if entry.seq <= known:
                    break
                if entry.type == RESULT and entry.body.get("ref"):
                    self._cut_until = -1
                    break
        return self._cut_until < 0

    def _with_reader(self, offered: Sequence[ToolSpec], built: Built) -> Sequence[ToolSpec]:
        reader = self._means.reader
        return (*offered, reader) if reader is not None and built.stubbed and reader not in offered else offered

    async def _summarise(self, view: TurnView, fold: Fold) -> Summary | Failure:
        means = self._means
        result = await self._answer(view, means.summarisers or means.models, ModelRequest("", fold.messages, (), {}, fold.key), aside=True)
        if isinstance(result, Failure):
            return result
        summary = self._builder.summary_of(fold, result[0].text, usage=result[0].usage)
        self._folded = self._folded or isinstance(summary, Summary)
        return summary

    async def _hooks(self, view: TurnView, effect: AskHooks) -> HookAnswer | Failure:
        if self._means.stopping is None:
            return HookAnswer()
        return await self._means.stopping(view, effect, render(view.entries, asks=False))

    async def _answer(
        self, view: TurnView, models: Sequence[Model], request: ModelRequest, *, aside: bool = False
    ) -> tuple[Done, int] | Failure:
        """Ask one model after the other until one answers, how often it was asked goes along. `aside`: what it says is nobody's reply."""
        failure = Failure("model_error", "the agent has no model")
        for model in models:
            # a provider may change what it is given; the caller's settings stay as they are
            settings = {} if aside else copy.deepcopy(dict(self._means.settings))
            ask = ask_within(self._means.layers.ask, self._streamed(model, aside=aside))
            try:
                with self.span("stream_chat", model=model.name):
                    return await ask(view, replace(request, model=model.name, settings=settings))
            except HookFailed as error:  # another model would not mend it
                return Failure(error.code, str(error), ref=error.ref)
            except ModelError as error:
                after_ms = None if error.retry_after_s is None else round(error.retry_after_s * 1000)
                failure = Failure(error.code, str(error), retryable=error.retryable, retry_after_ms=after_ms)
        return failure

    def _streamed(self, model: Model, *, aside: bool) -> Callable[[TurnView, ModelRequest], Awaitable[Done]]:
        means = self._means

        async def stream(view: TurnView, request: ModelRequest) -> Done:
            if self._on_request is not None:
                self._on_request()
            heard = Heard()
            async for item in model.provider.stream(request):
                if isinstance(item, Done):
                    return item
                if means.cuts_repetition and not aside and item.kind == "text" and heard.repeats(item.text):
                    return Done(heard.text, finish=REPETITION, model=model.name)
                if means.on_delta is not None and not aside:
                    means.on_delta(view, item)
            raise ModelError(f"the stream of {model.name} ended before its answer was complete", retryable=True)

        return stream

    async def _instructions(self, view: TurnView) -> str:
        """Return the system message, evaluated once per turn so that prompt caches hold."""
        if self._system is None or self._system[0] != view.turn:
            self._system = (view.turn, await self._means.instruct(view))
        return self._system[1]

    # -- a parallel batch ---------------------------------------------------------------------------------------------

    async def _first_of(self, view: TurnView, batch: RunBatch) -> tuple[Effect, Result]:
        for call in batch.calls:
            if call.row.call not in self._running:
                self._running[call.row.call] = asyncio.ensure_future(self._run(view, call))
        try:
            await asyncio.wait([self._running[c.row.call] for c in batch.calls], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.aclose()
            raise
        done = next(c for c in batch.calls if self._running[c.row.call].done())
        return done, self._running.pop(done.row.call).result()
