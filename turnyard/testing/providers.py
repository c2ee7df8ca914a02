"""What every model provider must do, as tests that a provider's own test class inherits.

A subclass says how to make a provider that gives one certain answer; the tests then hold it to the port.
"""

# ruff: noqa: D102 - the name of a test is its rule

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest

from turnyard.errors import ModelError
from turnyard.ports import Delta, Done, ModelRequest, Provider, ToolSpec
from turnyard.testing.models import ModelCall, call

USER = {"role": "user", "content": "a broken \udc97 character"}
TOOLS = (ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}}),)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The answer a provider is to give. With `cut` it breaks off after the text; `refused` fails before it."""

    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    cut: bool = False
    refused: bool = False


class ProviderConformance(ABC):
    """Tests of the provider port."""

    @abstractmethod
    def provider(self, wanted: Wanted) -> Provider:
        """Return a provider whose model gives this answer to each request."""

    async def test_the_text_arrives_in_pieces_and_whole_at_the_end(self) -> None:
        deltas, done = await _ask(self.provider(Wanted("Grüße, 世界 😀")))
        assert done.text == "Grüße, 世界 😀"
        assert "".join(d.text for d in deltas if d.kind == "text") == done.text
        assert all(d.text for d in deltas)
        assert (done.calls, done.finish) == ((), "stop")

    async def test_calls_arrive_complete_and_in_order(self) -> None:
        _, done = await _ask(self.provider(Wanted(calls=(call("add", a=1), call("add", a=2)))))
        assert [(c.name, json.loads(c.arguments)) for c in done.calls] == [("add", {"a": 1}), ("add", {"a": 2})]
        assert len({c.id for c in done.calls}) == 2
        assert done.finish == "tool_calls"

    async def test_usage_is_counted_in_whole_tokens_or_not_at_all(self) -> None:
        _, done = await _ask(self.provider(Wanted("x")))
        assert done.usage is None or all(isinstance(count, int) and count >= 0 for count in done.usage.values())

    async def test_the_same_request_may_be_sent_again(self) -> None:
        async with aclosing(self.provider(Wanted("again"))) as provider:
            texts = [(await _read(provider))[1].text for _ in range(2)]
        assert texts == ["again", "again"]

    @pytest.mark.parametrize("wanted", [Wanted("half", cut=True), Wanted("half", (call("add", a=1),), cut=True), Wanted(refused=True)])
    async def test_an_answer_that_is_not_whole_is_an_error_that_may_be_tried_again(self, wanted: Wanted) -> None:
        with pytest.raises(ModelError) as caught:
            await _ask(self.provider(wanted))
        assert caught.value.retryable

    async def test_a_reader_may_leave_in_the_middle(self) -> None:
        async with aclosing(self.provider(Wanted("left alone"))) as provider:
            stream: Any = provider.stream(ModelRequest("m", [USER], TOOLS))
            await anext(stream)
            if hasattr(stream, "aclose"):
                await stream.aclose()
            assert (await _read(provider))[1].text == "left alone"


async def _ask(provider: Provider) -> tuple[Sequence[Delta], Done]:
    async with aclosing(provider):
        return await _read(provider)


async def _read(provider: Provider) -> tuple[Sequence[Delta], Done]:
    items = [item async for item in provider.stream(ModelRequest("m", [USER], TOOLS))]
    assert [isinstance(item, Done) for item in items] == [False] * (len(items) - 1) + [True]
    done = items[-1]
    assert isinstance(done, Done)
    return [item for item in items if isinstance(item, Delta)], done
