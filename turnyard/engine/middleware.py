"""What wraps an effect: each layer may look at it, change it, refuse it or do it again, from the outside in.

A layer that does not call `next` refuses: the effect is not done, and nothing of it is counted. One that calls it twice
does the effect twice, and pays twice. What a turn does next is not for layers: they see what is done, not what is decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

from turnyard.engine.effects import AskApproval, Failure, Parked, RunTool, ToolResult
from turnyard.errors import ConfigError, HookFailed, ToolError
from turnyard.ports import Done, ModelRequest
from turnyard.records.commit import TurnView

A = TypeVar("A")
R = TypeVar("R")

Next = Callable[[TurnView, A], Awaitable[R]]
Layer = Callable[[TurnView, A, Next[A, R]], Awaitable[R]]

AskLayer = Layer[ModelRequest, Done]
Ran = ToolResult | Parked | AskApproval | Failure
ToolLayer = Layer[RunTool, Ran]


@dataclass(frozen=True, slots=True)
class Middleware:
    """The layers around the effects of an agent's turns, outermost first.

    `ask` wraps each request to a model, `tool` each call that runs here; a tool layer refuses by
    returning a result of its own, or with a ToolError, whose text the model reads.

    Raises:
        ConfigError: a layer is None or cannot be called.
    """

    ask: tuple[AskLayer, ...] = ()
    tool: tuple[ToolLayer, ...] = ()

    def __post_init__(self) -> None:
        for what, layers in (("ask", self.ask), ("tool", self.tool)):
            for layer in layers:
                if not callable(layer):
                    raise ConfigError(f"middleware: a layer around {what} is {layer!r}; give a function of (view, what, next)")


def wrapped(layers: Sequence[Layer[A, R]], inner: Next[A, R]) -> Next[A, R]:
    """Return `inner` inside the layers, the first one outermost."""

    def around(next_: Next[A, R], layer: Layer[A, R]) -> Next[A, R]:
        async def call(view: TurnView, what: A) -> R:
            return await layer(view, what, next_)

        return call

    return reduce(around, reversed(layers), inner)


def ask_within(layers: Sequence[AskLayer], inner: Next[ModelRequest, Done]) -> Next[ModelRequest, tuple[Done, int]]:
    """Return what asks a model within the layers: its answer, with the usage of all asks, and how many there were."""

    async def ask(view: TurnView, request: ModelRequest) -> tuple[Done, int]:
        heard: list[Done] = []

        async def counted(view: TurnView, request: ModelRequest) -> Done:
            heard.append(await inner(view, request))
            return heard[-1]

        done = await wrapped(layers, counted)(view, request)
        return (done if len(heard) == 1 and done is heard[0] else replace(done, usage=_usage_of(heard))), len(heard)

    return ask


def run_within(layers: Sequence[ToolLayer], inner: Next[RunTool, Ran]) -> Next[RunTool, Ran]:
    """Return what runs a call within the layers; its result says how often it was run. A hook that raises is a failure of the turn."""
    if not layers:
        return inner

    async def run(view: TurnView, call: RunTool) -> Ran:
        times = 0

        async def counted(view: TurnView, call: RunTool) -> Ran:
            nonlocal times
            times += 1
            return await inner(view, call)

        try:
            result = await wrapped(layers, counted)(view, call)
        except ToolError as error:
            result = ToolResult(f"ERROR: {error}", is_error=True)
        except HookFailed as error:
            return Failure(error.code, str(error), ref=error.ref, answer=error.answer)
        return replace(result, times=times) if isinstance(result, ToolResult) else result

    return run


def _usage_of(answers: Sequence[Done]) -> dict[str, int] | None:
    """Return the counts of all these answers together; None when none of them has any."""
    total: dict[str, int] = {}
    for done in answers:
        for name, n in (done.usage or {}).items():
            total[name] = total.get(name, 0) + n
    return total or None
