"""What a tool is: a Python function, what the model is told of it, and how its calls are to be run.

Everything that can be wrong with a declaration is found where it is written, so a worker that started has good tools.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

from turnyard.errors import ConfigError
from turnyard.ports import ToolSpec
from turnyard.records.commit import CallKind
from turnyard.records.manifest import ToolFacts
from turnyard.tools.approval import ApprovalRule, checked_rule
from turnyard.tools.context import ToolContext
from turnyard.tools.docstring import read_docstring
from turnyard.tools.names import NAME, sanitised
from turnyard.tools.raw_schema import RawArguments, raw_arguments
from turnyard.tools.schema import Arguments, arguments_of, beneath

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN_LIMIT = timedelta(minutes=5)
_LIFT_LIMIT = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class _Options:
    lift: bool = False
    queue: str | None = None
    timeout: timedelta | None = None
    idempotent: bool = False
    wait: bool = False
    park: timedelta | None = None
    alone: bool = False
    approval: ApprovalRule = False
    schema: Mapping[str, Any] | None = None
    lift_after: timedelta | None = None


class Tool(Generic[P, R]):
    """A function that models may call. Calling the tool calls the function.

    `kind` is plain, lift (runs on an arq worker) or callback (may finish outside). `given` is the name as it came, where it
    had to be changed for `name`. `timeout` bounds the body, None means `limit`'s default. `park` is how long a callback may
    take. `wait` makes the turn stop until a lifted call is done. A call that works `alone` never runs beside another.
    `approval` says which calls need approval. `takes_context` tells whether the first parameter is the call's context. The
    body of a call that runs longer than `lift_after` goes on beside the turn. `resolver` reads what a vendor posts to a
    call's callback URL, `poller` looks for the result of a call that was left open, `stopper` stops it; None where nobody does.
    """

    def __init__(self, function: Callable[P, R], options: _Options) -> None:
        inner = beneath(function)
        update_wrapper(self, inner)
        self.function = function
        self.name = self.given = _name_of(function)
        self.kind: CallKind = "lift" if options.lift else "callback" if options.park else "plain"
        self._queue = options.queue or "default"
        self.lift_after = options.lift_after
        self.resolver: Callable[..., Any] | None = None
        self.poller: Callable[..., Any] | None = None
        self.stopper: Callable[..., Any] | None = None
        self.timeout = options.timeout
        self.park = options.park
        self.idempotent = options.idempotent
        self.wait = options.wait
        self.alone = options.alone
        self.approval = checked_rule(self.name, options.approval)
        _check_options(self.name, options)
        context = _context_parameter(function)
        self.takes_context = context is not None
        self.is_async = inspect.iscoroutinefunction(inner)
        self.description, described = read_docstring(inner.__doc__)
        self.arguments: Arguments | RawArguments = (
            arguments_of(function, skip=frozenset({context} if context else ()), described=described)
            if options.schema is None
            else raw_arguments(self.name, options.schema)
        )

    @staticmethod
    def from_schema(name: str, description: str, schema: Mapping[str, Any], handler: Callable[..., Any], **options: Any) -> Tool[..., Any]:
        """Return a tool that somebody else describes: a server, a catalogue, a file.

        Args:
            name: what it is called there; characters that no model API takes become _.
            description: what the model is told of it.
            schema: the JSON Schema of its arguments, an object; needs the package jsonschema.
            handler: called with the arguments as one dict, and before them the call's context if its first parameter is `ctx`.
            options: those of `@tool`.

        Raises:
            ConfigError: the schema cannot be used, or an option cannot.
        """
        made: Tool[..., Any] = tool(schema=schema, **options)(_called_by_name(sanitised(name), handler))
        made.given, made.description = name, description
        return made

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it were no tool."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Return the tool's name and kind."""
        return f"<Tool {self.name} ({self.kind})>"

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return self.arguments.schema

    @property
    def queue(self) -> str | None:
        """Return which lifted workers do what is not done in the turn; None for a tool that does all in it."""
        outside = self.kind == "lift" or self.lift_after or self.resolver or self.poller
        return self._queue if outside else None

    @property
    def limit(self) -> timedelta:
        """Return how long the body may run: the declared time, else 5 minutes, or 4 hours when lifted."""
        return self.timeout or (_LIFT_LIMIT if self.kind == "lift" else _PLAIN_LIMIT)

    def resolve(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let `function(ctx, body)` make a result of what a vendor posts to a call's callback URL.

        `body` is the parsed JSON, or the text of what is no JSON; it is checked against the parameter's type where that says
        more. None is no result yet: the call waits for the next body. It runs on a lifted worker and may run twice.

        Raises:
            ConfigError: the tool is not declared with `park=`, has a resolver already, or `function` takes no body.
        """
        if self.kind != "callback":
            raise ConfigError(f"tool {self.name}: only a tool with park= is called back; declare it so or drop its resolver")
        self.resolver = _only_one(self.name, "resolve", self.resolver, function)
        return function

    def poll(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let `function(ctx, state)` look for the result of a call that returned `Park(poll=..., state=...)`.

        It returns the result; None to look again after the same time; or another `Park(poll=..., state=...)`. It runs on a
        lifted worker and may run twice.

        Raises:
            ConfigError: the tool is lifted, has a poller already, or `function` takes no state.
        """
        if self.kind not in ("plain", "callback") or self.lift_after is not None:
            raise ConfigError(f"tool {self.name}: a call is lifted or polled; drop lift=, lift_after= or its poller")
        self.poller = _only_one(self.name, "poll", self.poller, function)
        return function

    def stop(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let `function(ctx, state)` stop what a polled call left going elsewhere, when the call is cancelled while nobody looks.

        A poller that is looking at that moment is cancelled itself. It runs on a lifted worker and may run twice, or not at all.

        Raises:
            ConfigError: the tool is not polled, has a stopper already, or `function` takes no state.
        """
        if self.poller is None:
            raise ConfigError(f"tool {self.name}: only what is polled is stopped; give it a poller first")
        self.stopper = _only_one(self.name, "stop", self.stopper, function)
        return function

    def spec(self) -> ToolSpec:
        """Return the tool as the model sees it."""
        return ToolSpec(self.name, self.description, self.schema)

    def facts(self) -> ToolFacts:
        """Return the tool as the agent's manifest says it."""
        return ToolFacts(
            self.name, self.schema, kind=self.kind, queue=self.queue, approval=self.approval is not False, idempotent=self.idempotent
        )


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    lift: bool = False,
    queue: str | None = None,
    timeout: timedelta | float | None = None,
    idempotent: bool = False,
    wait: bool = False,
    park: timedelta | float | None = None,
    alone: bool = False,
    approval: ApprovalRule = False,
    schema: Mapping[str, Any] | None = None,
    lift_after: timedelta | float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    lift: bool = False,
    queue: str | None = None,
    timeout: timedelta | float | None = None,
    idempotent: bool = False,
    wait: bool = False,
    park: timedelta | float | None = None,
    alone: bool = False,
    approval: ApprovalRule = False,
    schema: Mapping[str, Any] | None = None,
    lift_after: timedelta | float | None = None,
) -> Any:
    """Make a tool of a function: its name, docstring and types are what the model sees.

    A first parameter called `ctx` is the call's `ToolContext` and not an argument. Durations are timedelta or seconds.

    Args:
        function: the function, when used without parentheses.
        lift: run it on an arq worker, outside the turn; the model goes on unless `wait`.
        queue: which lifted workers run it, resolve or poll it, or repeat it after a crash; None is "default".
        timeout: how long the body may run; then the model is told that it timed out.
        idempotent: running it twice with one idempotency key does no harm, so it is repeated after a crash.
        wait: stop the turn until the result of a lifted call is there.
        park: the call may finish outside, within this time, by returning `Park`.
        alone: never run the call beside another one, though the agent runs calls of one answer together.
        approval: which calls wait until people allow them: True for all, an `Ask` that says more, or a function of (ctx, **arguments)
            that returns True, False or an `Ask`; one that raises, or does not fit the arguments, asks.
        schema: the JSON Schema of the arguments, in place of the one that the types give; they come as plain JSON then.
        lift_after: a body that runs longer than this goes on beside the turn, on the same worker and without a slot; the
            model goes on unless `wait`.

    Raises:
        ConfigError: the function cannot be a tool; the message says which part and what to write instead.
    """
    durations = {"timeout": _duration(timeout), "park": _duration(park), "lift_after": _duration(lift_after)}
    options = _Options(lift=lift, queue=queue, idempotent=idempotent, wait=wait, alone=alone, approval=approval, schema=schema, **durations)

    def make(wrapped: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(wrapped, options)

    return make if function is None else make(function)


def _duration(value: timedelta | float | None) -> timedelta | None:
    return value if value is None or isinstance(value, timedelta) else timedelta(seconds=value)


def _check_options(name: str, options: _Options) -> None:
    if sum((options.lift, options.park is not None, options.lift_after is not None)) > 1:
        raise ConfigError(f"tool {name}: a call is lifted, parked, or lifted after a while; keep one of lift=, park= and lift_after=")
    lifted = options.lift or options.lift_after is not None
    if options.queue is not None and not lifted and options.park is None:
        raise ConfigError(f"tool {name}: queue= is for lifted tools; add lift=True or drop it")
    if options.wait and not lifted:
        raise ConfigError(f"tool {name}: wait= is for lifted tools; a parked call says it with Park(wait=True)")
    for word, value in (("timeout", options.timeout), ("park", options.park), ("lift_after", options.lift_after)):
        if value is not None and value <= timedelta(0):
            raise ConfigError(f"tool {name}: {word}= must be more than zero")


def _only_one(name: str, what: str, before: object, function: Callable[..., Any]) -> Callable[..., Any]:
    if before is not None:
        raise ConfigError(f"tool {name}: it has a function for {what} already; keep one")
    if not takes_payload(function):
        raise ConfigError(f"tool {name}: its function for {what} takes (ctx, what it is given), or that alone")
    return function


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(beneath(function), "__name__", "")
    if not NAME.match(name):
        raise ConfigError(f"a tool needs a function with a name of 1 to 64 letters, digits and _, not {name or function!r}")
    if inspect.isasyncgenfunction(beneath(function)):
        raise ConfigError(f"tool {name}: a tool gives one result; return it, and tell of the way there with ctx.progress")
    return name


def _called_by_name(name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return the handler as a function of arguments by name, whatever their names are."""
    if _context_parameter(handler) is None:

        def taken(_ctx: Any, arguments: dict[str, Any]) -> Any:
            return handler(arguments)

    else:
        taken = handler

    async def soon(ctx: Any, /, **arguments: Any) -> Any:
        return await taken(ctx, arguments)

    def now(ctx: Any, /, **arguments: Any) -> Any:
        return taken(ctx, arguments)

    made: Callable[..., Any] = soon if inspect.iscoroutinefunction(beneath(handler)) else now
    made.__name__ = made.__qualname__ = name
    return made


def takes_payload(function: Callable[..., Any]) -> inspect.Parameter | None:
    """Return the parameter by which a resolver or a poller is given what it works on, None when it has none."""
    skip = _context_parameter(function) is not None
    rest = list(inspect.signature(function).parameters.values())[skip:]
    return rest[0] if rest and all(p.default is not inspect.Parameter.empty for p in rest[1:]) else None


def _context_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of the first parameter when it takes the context, by name or by type."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None:
        return None
    annotation = first.annotation
    typed = annotation is ToolContext or getattr(annotation, "__origin__", None) is ToolContext
    named = isinstance(annotation, str) and annotation.partition("[")[0].rpartition(".")[2] == "ToolContext"
    return first.name if first.name == "ctx" or typed or named else None
