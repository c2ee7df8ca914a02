"""What wraps an effect: each layer may look at it, change it, refuse it or do it again, from the outside in.

A layer that does not call `next` refuses: the effect is not done, and nothing of it is counted. One that calls it twice
does the effect twice, and pays twice; it is for model and tool calls only. What a turn does next is not for layers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

from turnyard.engine.effects import Parked, RunTool, ToolResult
from turnyard.errors import ConfigError
from turnyard.ports import Done, ModelRequest
from turnyard.records.commit import TurnView

A = TypeVar("A")
R = TypeVar("R")

Next = Callable[[TurnView, A], Awaitable[R]]
Layer = Callable[[TurnView, A, Next[A, R]], Awaitable[R]]

AskLayer = Layer[ModelRequest, Done]
ToolLayer = Layer[RunTool, ToolResult | Parked]


@dataclass(frozen=True, slots=True)
class Middleware:
    """The layers around the effects of an agent's turns, outermost first.

    `ask` wraps each request to a model, `tool` each call that runs here; a tool layer refuses by returning a result of its own.

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
