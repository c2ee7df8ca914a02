"""What becomes of an answer of a Chat Completions server, good and bad ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.errors import ModelError
from turnyard.ports import AskedCall, Delta, Done, ModelRequest, ToolSpec
from turnyard.providers.openai_chat import OpenAIChat, OpenAISettings
from turnyard.testing import ManualClock

REQUEST = ModelRequest("m", [{"role": "user", "content": "hi"}])
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}
KEY = "sk-canary"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"


def part(index: int | None, *, call: str | None = None, name: str | None = None, arguments: str | None = None) -> dict[str, Any]:
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    return {k: v for k, v in (("index", index), ("id", call), ("function", function)) if v is not None}


def calls(*parts: dict[str, Any]) -> bytes:
    return chunk({"tool_calls": list(parts)})


STOP = chunk({}, "stop")
CALLED = chunk({}, "tool_calls")
END = b"data: [DONE]\n\n"


class Body(httpx.AsyncByteStream):
    """A body that arrives in these pieces; an exception among them is raised in its place."""

    def __init__(self, pieces: Sequence[bytes | Exception]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Server:
    """A server that gives this answer and remembers what it was asked."""

    def __init__(self, *pieces: bytes | Exception, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
        self.clock = ManualClock()
        self.asked: list[httpx.Request] = []
        named = {"content-type": kind} | {k.replace("_", "-"): v for k, v in headers.items()}

        def answer(request: httpx.Request) -> httpx.Response:
            self.asked.append(request)
            return httpx.Response(status, headers=named, stream=Body(pieces))

        settings = OpenAISettings("http://model.test/v1", KEY)
        self.provider = OpenAIChat(settings, clock=self.clock, transport=httpx.MockTransport(answer))

    async def ask(self, request: ModelRequest = REQUEST) -> tuple[list[Delta], Done]:
        items = [item async for item in self.provider.stream(request)]
        *deltas, done = items
        assert isinstance(done, Done)
        return [d for d in deltas if isinstance(d, Delta)], done

    async def fault(self) -> ModelError:
        handed_on: list[Done] = []

        async def collect() -> None:
            async for item in self.provider.stream(REQUEST):
                handed_on.extend([item] if isinstance(item, Done) else [])

        with pytest.raises(ModelError) as caught:
            await collect()
        assert handed_on == []
        assert KEY not in str(caught.value)
        return caught.value


async def test_text_arrives_in_pieces_and_as_a_whole_with_its_usage() -> None:
    server = Server(
        chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"}), STOP, chunk(usage=USAGE), END
    )
    deltas, done = await server.ask()
    assert deltas == [Delta("text", 0, "Hel"), Delta("text", 0, "lo")]
    assert done == Done("Hello", (), {"input_tokens": 5, "output_tokens": 7, "cached_tokens": 3}, "stop", "m")


async def test_counts_of_tokens_that_cannot_be_are_left_out() -> None:
    usage = {"prompt_tokens": -5, "completion_tokens": 10**30, "prompt_tokens_details": {"cached_tokens": 7}}
    assert (await Server(chunk({"content": "x"}), chunk(usage=usage), STOP, END).ask())[1].usage == {"cached_tokens": 7}


@pytest.mark.parametrize(("cost", "told"), [(0.0125, 12_500), (2, 2_000_000), (-1, None), (1e9, None), (True, None), ("3", None)])
async def test_what_an_answer_cost_is_counted_in_millionths_where_a_server_reports_it(cost: Any, told: int | None) -> None:
    usage = (await Server(chunk({"content": "x"}), chunk(usage={**USAGE, "cost": cost}), STOP, END).ask())[1].usage or {}
    assert usage.get("cost_micros") == told


async def test_the_request_says_what_the_protocol_needs_whatever_the_settings_say() -> None:
    server = Server(chunk({"content": "x"}), STOP, END)
    tools = [ToolSpec("add", "Add.", {"type": "object"})]
    await server.ask(ModelRequest("m", REQUEST.messages, tools, {"temperature": 0, "stream": False, "model": "other"}))
    (asked,) = server.asked
    assert (asked.url, asked.headers["authorization"]) == ("http://model.test/v1/chat/completions", f"Bearer {KEY}")
    assert json.loads(asked.content) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "tools": [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}],
    }


@pytest.mark.spec("L48")
async def test_a_broken_character_in_a_message_does_not_spoil_the_request() -> None:
    server = Server(chunk({"content": "x"}), STOP, END)
    await server.ask(ModelRequest("m", [{"role": "tool", "tool_call_id": "c", "content": "a\udc97b"}]))
    assert json.loads(server.asked[0].content)["messages"][0]["content"] == "a\ufffdb"


async def test_calls_are_put_together_by_their_index() -> None:
    server = Server(
        chunk({"content": "I will."}),
        calls(part(0, call="c1", name="add", arguments="")),
        calls(part(1, call="c2", name="mul", arguments='{"x"')),
        calls(part(0, arguments='{"a":'), part(1, arguments=":2}")),
        calls(part(0, arguments="1}")),
        CALLED,
        END,
    )
    deltas, done = await server.ask()
    assert done.calls == (AskedCall("c1", "add", '{"a":1}'), AskedCall("c2", "mul", '{"x":2}'))
    assert (done.text, done.finish, done.usage) == ("I will.", "tool_calls", None)
    assert [(d.kind, d.index, d.text) for d in deltas] == [
        ("text", 0, "I will."),
        ("toolcall", 2, '{"x"'),
        ("toolcall", 1, '{"a":'),
        ("toolcall", 2, ":2}"),
        ("toolcall", 1, "1}"),
    ]


@pytest.mark.parametrize("index", [0, None])
async def test_whole_calls_that_share_an_index_or_have_none_stay_apart(index: int | None) -> None:
    server = Server(*(calls(part(index, call=f"c{i}", name="add", arguments=f'{{"a":{i}}}')) for i in range(3)), STOP, END)
    _, done = await server.ask()
    assert [(c.id, c.arguments) for c in done.calls] == [(f"c{i}", f'{{"a":{i}}}') for i in range(3)]
    assert done.finish == "tool_calls"


async def test_parts_that_name_their_call_find_it_whatever_their_index_says() -> None:
    pieces = [("c0", '{"a"'), ("c1", '{"b"'), ("c0", ":0}"), ("c1", ":1}")]
    server = Server(*(calls(part(0, call=c, name="add", arguments=a)) for c, a in pieces), STOP, END)
    assert [(c.id, c.arguments) for c in (await server.ask())[1].calls] == [("c0", '{"a":0}'), ("c1", '{"b":1}')]


async def test_only_the_first_choice_is_the_answer() -> None:
    other = b'data: {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "length"}]}\n\n'
    done = (await Server(chunk({"content": "first"}), STOP, other, END).ask())[1]
    assert (done.text, done.finish) == ("first", "stop")


async def test_thoughts_are_streamed_and_are_no_part_of_the_text() -> None:
    server = Server(chunk({"reasoning_content": "hm"}), chunk({"content": "yes"}), STOP, END)
    deltas, done = await server.ask()
    assert deltas == [Delta("thinking", 0, "hm"), Delta("text", 1, "yes")]
    assert done.text == "yes"


async def test_a_refusal_is_an_answer_that_says_it_refuses() -> None:
    _, done = await Server(chunk({"refusal": "I will not."}), STOP, END).ask()
    assert (done.text, done.finish) == ("I will not.", "refusal")


async def test_halves_of_a_character_in_two_pieces_become_one_in_the_text() -> None:
    server = Server(chunk({"content": "\ud83d"}), chunk({"content": "\ude00"}), STOP, END)
    deltas, done = await server.ask()
    assert done.text == "😀"
    assert [d.text for d in deltas] == ["\ufffd", "\ufffd"]


@given(st.data())
async def test_a_stream_cut_into_any_pieces_says_the_same(data: st.DataObject) -> None:
    raw = (
        b": ping\r\n\r\n" + b"data: " + json.dumps({"choices": [{"delta": {"content": "é😀"}}]}, ensure_ascii=False).encode() + b"\r\n\r\n"
    )
    raw += calls(part(0, call="c", name="add", arguments="{}")) + CALLED + chunk(usage=USAGE) + END
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    deltas, done = await Server(*(raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True))).ask()
    assert (done.text, done.calls) == ("é😀", (AskedCall("c", "add", "{}"),))
    assert "".join(d.text for d in deltas if d.kind == "text") == done.text
    assert done.usage


async def test_an_answer_without_the_end_mark_is_whole_once_the_server_said_why_it_finished() -> None:
    assert (await Server(chunk({"content": "x"}), STOP).ask())[1].text == "x"
    assert (await Server(chunk({"content": "x"}), STOP, httpx.RemoteProtocolError("gone")).ask())[1].text == "x"
    assert (await Server(chunk({"content": "x"}), STOP.rstrip()).ask())[1].text == "x"


TEXT = chunk({"content": "half"})
HALF = calls(part(0, call="c", name="pay", arguments='{"amount": 1'))


@pytest.mark.parametrize(
    ("pieces", "named", "retryable"),
    [
        ([TEXT], "before the answer was complete", True),
        ([TEXT, END], "before the answer was complete", True),
        ([HALF], "before the answer was complete", True),
        ([HALF, END], "before the answer was complete", True),
        ([TEXT, httpx.RemoteProtocolError("gone")], "broke off", True),
        ([TEXT, httpx.ReadTimeout("slow")], "fell silent", True),
        ([], "before the answer was complete", True),
        ([TEXT, b"data: {broken\n\n", STOP, END], "not JSON", True),
        ([TEXT, b"data: [1]\n\n", STOP, END], "not a JSON object", True),
        ([TEXT, b'data: {"choices": [5]}\n\n', STOP, END], "unknown shape", True),
        ([TEXT, chunk({"content": ["x"]}), STOP, END], "unknown shape", True),
        ([calls({"index": 0, "id": "c", "function": {"name": 7}}), CALLED, END], "unknown shape", True),
        ([TEXT, b'data: {"choices":', STOP.rstrip()], "not JSON", True),
        ([STOP, END], "empty answer", True),
        ([chunk({}, "length"), END], "used up its tokens", False),
        ([HALF, chunk({}, "length"), END], "inside a call of pay", False),
        ([calls(part(0, call="c", arguments="{}")), CALLED, END], "without a tool name", True),
        ([TEXT, chunk({}, "error"), END], "gave up", True),
        ([TEXT, chunk(error={"type": "overloaded_error", "message": "busy"}), STOP, END], "overloaded_error inside its answer: busy", True),
        ([TEXT, chunk(error={"code": "invalid_prompt", "message": "no"}), END], "invalid_prompt", False),
        ([TEXT, chunk(error="boom")], "boom", True),
        ([*[chunk({"content": "x" * 500_000})] * 9, STOP, END], "has no end", False),
        ([*[chunk({"reasoning": "x" * 500_000})] * 9, STOP, END], "has no end", False),
        ([calls(*(part(i, call=f"c{i}", name="pay", arguments="{}") for i in range(5_000))), CALLED, END], "has no end", False),
    ],
)
async def test_an_answer_that_is_not_whole_is_an_error_and_its_calls_are_not_handed_on(
    pieces: list[bytes | Exception], named: str, retryable: bool
) -> None:
    error = await Server(*pieces).fault()
    assert named in str(error)
    assert error.retryable is retryable


@pytest.mark.parametrize(
    ("status", "headers", "body", "retryable", "wait_s", "code"),
    [
        (400, {}, {"error": {"code": "context_length_exceeded", "message": "too long"}}, False, None, "context_overflow"),
        (401, {}, {"error": {"message": f"bad key {KEY}"}}, False, None, "model_error"),
        (403, {}, {}, False, None, "model_error"),
        (404, {}, {"error": {"message": f"no model for {KEY}"}}, False, None, "model_error"),
        (408, {}, {}, True, None, "model_error"),
        (422, {"retry_after": "1"}, {"detail": [{"msg": "x"}]}, False, None, "model_error"),
        (429, {"retry_after": "2.5"}, {"error": {"code": "rate_limit_exceeded"}}, True, 2.5, "rate_limited"),
        (429, {"retry_after_ms": "1500", "retry_after": "9"}, {}, True, 1.5, "rate_limited"),
        (429, {"retry_after": "Tue, 14 Nov 2023 22:13:30 GMT"}, {}, True, 10.0, "rate_limited"),
        (429, {"retry_after": "soon"}, {}, True, None, "rate_limited"),
        (429, {"retry_after": "nan"}, {}, True, None, "rate_limited"),
        (429, {"retry_after": "-3"}, {}, True, 0.0, "rate_limited"),
        (429, {}, {"error": {"code": "insufficient_quota"}}, False, None, "rate_limited"),
        (500, {}, "<html>", True, None, "model_error"),
        (503, {"retry_after": "1"}, {"error": {"type": "invalid_but_down"}}, True, 1.0, "model_overloaded"),
        (529, {}, {}, True, None, "model_overloaded"),
        (302, {"location": "http://elsewhere/"}, "", False, None, "model_error"),
    ],
)
async def test_a_status_says_whether_to_try_again_and_when(
    status: int, headers: dict[str, str], body: Any, retryable: bool, wait_s: float | None, code: str
) -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = await Server(raw, status=status, kind="application/json", **headers).fault()
    assert str(status) in str(error)
    assert (error.retryable, error.retry_after_s, error.code) == (retryable, wait_s, code)


async def test_a_200_that_is_no_stream_is_an_error() -> None:
    assert "instead of a stream" in str(await Server(b"<html>", kind="text/html").fault())
    error = await Server(b'{"error": {"type": "server_error", "message": "down"}}', kind="application/json").fault()
    assert (error.retryable, "down" in str(error)) == (True, True)


async def test_a_refusal_without_end_is_read_only_so_far() -> None:
    class Flood(httpx.AsyncByteStream):
        sent = 0

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                self.sent += 1
                yield b"x" * 10_000

    flood = Flood()
    transport = httpx.MockTransport(lambda _: httpx.Response(500, stream=flood))
    provider = OpenAIChat(OpenAISettings("http://model.test"), clock=ManualClock(), transport=transport)
    with pytest.raises(ModelError, match="500"):
        await anext(aiter(provider.stream(REQUEST)))
    assert flood.sent < 20


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (httpx.ConnectError("refused"), "no connection"),
        (httpx.ConnectTimeout("slow"), "no connection"),
        (httpx.ReadTimeout("slow"), "fell silent"),
        (httpx.WriteError("gone"), "broke off"),
    ],
)
async def test_a_connection_that_fails_may_be_tried_again(raised: Exception, named: str) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise raised

    provider = OpenAIChat(OpenAISettings("http://user:secret@model.test/v1"), clock=ManualClock(), transport=httpx.MockTransport(fail))
    with pytest.raises(ModelError, match=named) as caught:
        await anext(aiter(provider.stream(REQUEST)))
    assert caught.value.retryable
    assert "secret" not in str(caught.value)
    await provider.aclose()


async def test_keep_alives_alone_do_not_keep_a_call_for_ever() -> None:
    server = Server()
    advance: Callable[[float], Any] = server.clock.advance

    class Pings(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await advance(100)
                yield b": ping\n\n"

    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pings()))
    provider = OpenAIChat(OpenAISettings("http://model.test"), clock=server.clock, transport=transport)
    async with asyncio.timeout(10):
        with pytest.raises(ModelError, match="keep-alives"):
            await anext(aiter(provider.stream(REQUEST)))
