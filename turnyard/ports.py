"""The seams: what Turnyard asks of a platform, a model provider, a store, a clock.

A port with more than one implementation has a conformance suite in `turnyard.testing`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Clock(Protocol):
    """Time, so that tests can hold it."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since 1970; for showing, never for leases."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long, at least."""
        ...


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `messages` are rendered and valid: OpenAI's chat shape (role, content, tool_calls, tool_call_id).

    `model` is the name behind the provider prefix. `key` stays the same when the call is repeated after a crash.
    """

    model: str
    messages: Sequence[dict[str, Any]]
    tools: Sequence[ToolSpec] = ()
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    key: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the answer. `kind`: text, thinking or toolcall; `index` counts the content blocks."""

    kind: str
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A complete tool call of the model. `arguments` is the JSON text exactly as it came."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Done:
    """The last thing a stream yields; a stream that ends without it was cut.

    `usage` has input_tokens, output_tokens and, where known, cached_tokens; None when the server reported none.
    `finish` is stop, tool_calls, length, refusal or content_filter.
    """

    text: str
    calls: tuple[AskedCall, ...] = ()
    usage: dict[str, int] | None = None
    finish: str = "stop"
    model: str = ""


class Provider(Protocol):
    """A way to reach models."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer one request as a stream that ends with `Done`.

        Raises:
            ModelError: the answer failed, was cut, empty or malformed; `retryable` says whether again may help.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
