"""What the Chat Completions provider makes of a real server on a real socket, and what that server thinks of it.

`llmock` speaks the wire, breaks it on demand and judges its client.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.llmock_server import Server, running, server
from turnyard.clock import SystemClock
from turnyard.errors import ModelError
from turnyard.ports import Delta, Done, ModelRequest, ToolSpec
from turnyard.providers import open_provider
from turnyard.providers.openai_chat import OpenAIChat
from turnyard.tools import ToolContext, run_tool, tool

pytest.importorskip("llmock", reason="llmock is not installed: pip install llmock")

pytestmark = pytest.mark.xdist_group("llmock")
__all__ = ["running", "server"]


@tool
async def get_weather(city: str, days: int = 1) -> str:
    """Get the weather of a city.

    Args:
        city: the city's name.
        days: how many days ahead.
    """
    return f"sunny in {city} for {days} days"


@pytest.fixture
async def model(server: Server) -> AsyncIterator[OpenAIChat]:
    settings = {"base_url": f"{server.url}/v1", "api_key": "anything", "stall_timeout_s": 1.0}
    provider, name = open_provider("openai:gpt-4o", base_dir=Path(), settings=settings, clock=SystemClock())
    assert isinstance(provider, OpenAIChat)
    assert name == "gpt-4o"
    yield provider
    await provider.aclose()


def request(text: str = "What is the weather in Paris?", *more: dict[str, Any], tools: bool = True) -> ModelRequest:
    return ModelRequest("gpt-4o", [{"role": "user", "content": text}, *more], [get_weather.spec()] if tools else [])


async def ask(model: OpenAIChat, asked: ModelRequest) -> tuple[list[Delta], Done]:
    *deltas, done = [item async for item in model.stream(asked)]
    assert isinstance(done, Done)
    return [d for d in deltas if isinstance(d, Delta)], done


async def test_a_streamed_text_arrives_whole_with_its_usage(server: Server, model: OpenAIChat) -> None:
    server.next({"type": "reply", "text": "The sky is blue — 青い 😀."})
    deltas, done = await ask(model, request(tools=False))
    assert done.text == "The sky is blue — 青い 😀." == "".join(d.text for d in deltas)
    assert len(deltas) > 2
    assert done.finish == "stop"
    assert done.usage is not None
    assert done.usage["output_tokens"] > 0
    assert server.findings() == set()


async def test_streamed_calls_arrive_whole(server: Server, model: OpenAIChat) -> None:
    asked = [{"name": "get_weather", "arguments": {"city": f"Town number {i} by the sea", "days": i}} for i in (1, 2)]
    server.next({"type": "reply", "tool_calls": asked})
    deltas, done = await ask(model, request())
    assert [{"name": c.name, "arguments": json.loads(c.arguments)} for c in done.calls] == asked
    assert len({c.id for c in done.calls}) == 2
    assert done.finish == "tool_calls"
    assert "".join(d.text for d in deltas if d.index == 0) == done.calls[0].arguments
    assert len([d for d in deltas if d.index == 0]) > 1


async def test_a_model_that_reads_our_schema_makes_calls_our_tool_accepts(server: Server, model: OpenAIChat) -> None:
    _, done = await ask(model, request())
    (call,) = done.calls
    outcome = await run_tool(get_weather, json.loads(call.arguments), ToolContext.fake())
    assert not outcome.is_error
    said = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}],
    }
    _, last = await ask(
        model, request("What is the weather in Paris?", said, {"role": "tool", "tool_call_id": call.id, "content": outcome.content})
    )
    assert last.text
    assert last.calls == ()
    assert server.findings() == set()


async def test_a_connection_is_used_again(server: Server, model: OpenAIChat) -> None:
    for _ in range(3):
        await ask(model, request(tools=False))
    assert len(server.requests()) == 3
    pool = model._client._transport._pool  # type: ignore[attr-defined]
    assert len(pool.connections) == 1


@pytest.mark.parametrize(
    ("behaviour", "named", "wait_s"),
    [
        ({"type": "fail", "status": 429, "retry_after": 3}, "429", 3.0),
        ({"type": "fail", "status": 503, "retry_after": 1}, "503", 1.0),
        ({"type": "fail", "status": 401}, "credential", None),
        ({"type": "fail", "status": 400}, "400", None),
        ({"type": "stream_fault", "kind": "truncate", "after_chunks": 2}, "before the answer was complete", None),
        ({"type": "stream_fault", "kind": "disconnect", "after_chunks": 2}, "broke off", None),
        ({"type": "stream_fault", "kind": "malformed", "after_chunks": 2}, "not JSON", None),
        ({"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 5}, "fell silent", None),
    ],
)
@pytest.mark.parametrize("tools", [False, True], ids=["text", "call"])
async def test_a_broken_answer_is_an_error_and_nothing_of_it_is_an_answer(
    server: Server, model: OpenAIChat, behaviour: dict[str, Any], named: str, wait_s: float | None, tools: bool
) -> None:
    server.next(behaviour)
    with pytest.raises(ModelError, match=named) as caught:
        await ask(model, request(tools=tools))
    assert caught.value.retryable is (behaviour.get("status") not in (400, 401))
    assert caught.value.retry_after_s == wait_s
    _, again = await ask(model, request(tools=tools))
    assert again.text or again.calls
    # llmock calls a cut stream accepted when no second attempt follows it.
    assert "truncated_stream_accepted" not in server.findings()


@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
async def test_a_call_that_makes_no_sense_is_handed_on_as_it_came(server: Server, model: OpenAIChat, kind: str) -> None:
    server.next({"type": "tool_fault", "kind": kind})
    _, done = await ask(model, request())
    (call,) = done.calls
    if kind == "unknown_tool":
        assert call.name != "get_weather"
    else:
        with pytest.raises(json.JSONDecodeError):
            json.loads(call.arguments)


def test_the_tool_is_offered_as_the_wire_wants_it() -> None:
    assert get_weather.spec() == ToolSpec(
        "get_weather",
        "Get the weather of a city.",
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["city"],
            "properties": {
                "city": {"type": "string", "description": "the city's name."},
                "days": {"type": "integer", "description": "how many days ahead.", "default": 1},
            },
        },
    )
