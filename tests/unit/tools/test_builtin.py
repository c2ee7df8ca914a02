"""The tools that come along: a model calls servers, waits, says something and asks, and gets no further than it may."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import orjson
import pytest

from tests.unit.tools.http_server import Asked, Server, response, running
from turnyard import App, Ask, ConfigError, ToolContext, secret
from turnyard.app.calls import read_outcome
from turnyard.fence import MemoryGate, read_claim
from turnyard.records.log import RESULT, SENT
from turnyard.testing import ManualClock, ScriptedModel, call
from turnyard.tools import Tool, run_tool
from turnyard.tools.builtin import ask_user, http_request, send_message, sleep
from turnyard.tools.builtin.asking import asking


def caller(server: Server, **options: Any) -> Tool[..., Any]:
    """A tool that may call this server."""
    declared: dict[str, Any] = {"methods": ("GET", "POST"), "rules": server.rules} | options
    return http_request(["127.0.0.1"], **declared)


async def outcome(one: Tool[..., Any], ctx: Any = None, **arguments: Any) -> tuple[str, bool]:
    """What the model is told, and whether as an error."""
    done = await run_tool(one, arguments, ctx or ToolContext.fake())
    return done.content, done.is_error


# -- http_request


async def test_an_answer_is_told_with_its_status_and_what_matters_of_its_headers() -> None:
    async def answer(asked: Asked) -> bytes:
        return response(200, "gr\xfc\xdfe".encode("latin-1"), Content_Type="text/plain; charset=latin-1", Server="x", ETag='"1"')

    async with running(answer) as server:
        told = await outcome(caller(server), method="GET", url=server.url("/a?b=c"), headers={"Accept": "text/plain"})
    assert told == ('HTTP 200\ncontent-type: text/plain; charset=latin-1\netag: "1"\n\ngrüße', False)
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.headers["accept"]) == ("GET", "/a?b=c", "text/plain")
    assert "idempotency-key" not in asked.headers


@pytest.mark.parametrize(
    ("body", "sent", "kind"), [({"a": 1}, b'{"a":1}', "application/json"), ("plain", b"plain", None), ([1], b"[1]", "application/json")]
)
async def test_what_changes_something_carries_the_key_and_the_fence_of_its_call(body: Any, sent: bytes, kind: str | None) -> None:
    async with running() as server:
        ctx = ToolContext.fake(idempotency_key="k1", fence=7)
        assert await outcome(caller(server), ctx, method="POST", url=server.url(), body=body) == ("HTTP 200\n\nyes", False)
    (asked,) = server.asked
    assert (asked.body, asked.headers.get("content-type")) == (sent, kind)
    claim = read_claim(asked.headers)
    assert (claim.key, claim.fence) == ("k1", 7)


async def test_a_server_with_a_gate_refuses_an_attempt_that_was_left_behind() -> None:
    gate, effects = MemoryGate(), list[int]()

    async def answer(asked: Asked) -> bytes:
        claim = read_claim(asked.headers)
        if not await gate.enter(claim):
            return response(409, b"a newer attempt has taken over")
        effects.append(claim.fence)
        return response(201, b"done")

    async with running(answer) as server:
        post = caller(server)
        told = [
            await outcome(post, ToolContext.fake(idempotency_key="k", fence=fence), method="POST", url=server.url()) for fence in (1, 2, 1)
        ]
    assert effects == [1, 2]
    assert told[2] == ("HTTP 409\n\na newer attempt has taken over", True)


@pytest.mark.spec("S7")
async def test_only_hosts_that_the_author_names_are_called_whatever_the_model_says() -> None:
    async def answer(_asked: Asked) -> bytes:
        return response(302, Location="http://169.254.169.254/latest/meta-data/")

    async with running(answer) as server:
        one = caller(server)
        content, _ = await outcome(one, method="GET", url=f"http://localhost:{server.port}/")
        assert content == "not sent: localhost is not among the hosts that may be called: 127.0.0.1"
        for url in (
            "http://localhost/",
            "https://example.com/",
            "http://169.254.169.254/",
            "http://2130706433/",
            "file:///etc/passwd",
            "x" * 3000,
        ):
            content, is_error = await outcome(one, method="GET", url=url)
            assert content.startswith("not sent: "), url
            assert is_error
            assert len(content) < 1000
        assert "location: http://169.254.169.254/latest/meta-data/" in (await outcome(one, method="GET", url=server.url()))[0]
        assert len(server.asked) == 1
        closed = http_request(["127.0.0.1"])
        assert (await outcome(closed, method="GET", url=f"https://127.0.0.1:{server.port}/"))[0].startswith("not sent: port")
        assert (await outcome(closed, method="GET", url="https://127.0.0.1/"))[0].startswith(
            "not sent: the host has an address that is not public"
        )


@pytest.mark.parametrize(
    "header", ["Host", "Idempotency-Key", "turnyard-fence", "Content-Length", "Transfer-Encoding", "X-Token", "x-token", "A\r\nB", ""]
)
async def test_a_model_cannot_say_what_is_not_its_to_say(header: str) -> None:
    async with running() as server:
        content, _ = await outcome(caller(server, headers={"X-Token": "t"}), method="GET", url=server.url(), headers={header: "x"})
        assert content.startswith("not sent: the header")
        content, _ = await outcome(caller(server), method="GET", url=server.url(), headers={"A": "x\r\nHost: inside"})
        assert content.startswith("not sent: the header")
    assert server.asked == []


async def test_a_secret_reaches_the_server_and_not_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    async def echo(asked: Asked) -> bytes:
        return response(200, orjson.dumps(asked.headers))

    monkeypatch.setenv("CRM_TOKEN", "Bearer hush-hush")
    async with running(echo) as server:
        one = caller(server, headers={"Authorization": secret("CRM_TOKEN")})
        content, _ = await outcome(one, method="GET", url=server.url())
    assert server.asked[0].headers["authorization"] == "Bearer hush-hush"
    assert "(secret('CRM_TOKEN'))" in content
    assert "hush-hush" not in content + repr(one) + str(one.schema) + one.description


async def test_answers_are_bounded_and_bytes_are_not_shown() -> None:
    answers = [response(200, b"x" * 5000), response(200, b"\x89PNG\0\0\0")]

    async def answer(_asked: Asked) -> bytes:
        return answers.pop(0)

    async with running(answer) as server:
        rules = type(server.rules)(http=True, networks=("127.0.0.0/8",), ports=frozenset({server.port}), most_bytes=100)
        one = http_request(["127.0.0.1"], rules=rules)
        assert (await outcome(one, method="GET", url=server.url()))[0] == f"HTTP 200\n\n{'x' * 100}\n(cut: the answer goes on)"
        assert (await outcome(one, method="GET", url=server.url()))[0] == "HTTP 200\n\n(7 bytes that are no text)"


async def test_a_write_without_an_answer_says_that_its_effect_is_unknown() -> None:
    async def hang_up(_asked: Asked) -> bytes:
        return b""

    async with running(hang_up) as server:
        content, is_error = await outcome(caller(server), method="POST", url=server.url())
        assert (content.endswith("; whether it had its effect is unknown"), is_error) == (True, True)
        assert "effect" not in (await outcome(caller(server), method="GET", url=server.url()))[0]


def test_what_can_only_read_may_be_repeated_after_a_crash() -> None:
    assert http_request(["*"]).idempotent
    assert not http_request(["*"], methods=["GET", "POST"]).idempotent
    assert http_request(["*"], methods=["POST"], idempotent=True).idempotent


@pytest.mark.parametrize(
    ("hosts", "options", "why"),
    [
        ([], {}, "hosts= is a list"),
        ("api.acme.io", {}, "hosts= is a list"),
        (["*"], {"methods": ["TRACE"]}, "not TRACE"),
        (["*"], {"methods": []}, "not none"),
        (["*"], {"headers": {"Host": "x"}}, "'Host' cannot be given"),
        (["*"], {"name": "a b"}, "letters, digits and _"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(hosts: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        http_request(hosts, **options)


# -- sleep, send_message, ask_user


async def test_a_model_sleeps_without_anybody_waiting_with_it() -> None:
    parked: Any = read_outcome(await run_tool(sleep, {"seconds": 90}, ToolContext.fake()))
    assert (parked.note, parked.expires_in_ms, parked.awaited) == ("sleeping for 0:01:30", 90_000, True)
    assert parked.ripe == {"content": "0:01:30 are over", "is_error": False}
    for wrong in (0, -1, 7 * 86_400 + 1, "soon"):
        assert (await outcome(sleep, seconds=wrong))[1]


async def test_a_model_sleeps_until_its_time_is_over() -> None:
    clock = ManualClock()
    talk = App().agent("a", model=ScriptedModel([[call("sleep", seconds=90)], "awake"]), tools=[sleep]).local(clock=clock)
    running = asyncio.ensure_future(talk.prompt("wait a little"))
    await clock.advance(89)
    assert [parked.tool for parked in talk.parked] == ["sleep"]
    await clock.advance(1)
    result = await running
    assert (result.state, result.text, result.calls[0].content) == ("succeeded", "awake", "0:01:30 are over")


async def test_what_was_said_stands_in_the_session_and_the_model_does_not_read_it() -> None:
    model = ScriptedModel([[call("send_message", text="on it")], "done"])
    talk = App().agent("a", model=model, tools=[send_message]).local()
    await talk.prompt("go")
    assert [record.body["text"] for record in talk.memory.log if record.type == SENT] == ["on it"]
    assert "on it" not in [message.get("content") for message in model.requests[-1].messages]


async def test_a_message_is_said_while_the_work_goes_on() -> None:
    ctx = ToolContext.fake()
    assert await outcome(send_message, ctx, text="on it") == ("sent", False)
    assert ctx.sent == ["on it"]


async def test_a_question_waits_for_the_user_and_its_answer_is_the_calls_result() -> None:
    model = ScriptedModel([[call("ask_user", prompt="Which?", options=["red", "blue"])], "red it is"])
    talk = App().agent("a", model=model, tools=[ask_user]).local()
    result = await talk.prompt("paint it")
    (parked,) = result.parked
    assert (result.state, parked.kind, parked.args["options"]) == ("waiting", "question", ["red", "blue"])
    result = await talk.resolve(parked, "red")
    assert (result.state, result.text) == ("succeeded", "red it is")
    assert [entry.body["content"] for entry in talk.entries if entry.type == RESULT] == ["red"]


async def test_a_question_that_is_none_is_refused_and_nobody_is_asked_whether_somebody_may_be_asked() -> None:
    app = App()

    @app.policy
    async def ask_always(ctx: Any, call: Any) -> Ask:
        del ctx, call
        return Ask("out of hours")

    model = ScriptedModel([[call("ask_user", prompt="", options=[])], [call("ask_user", prompt="Which?")], "red it is"])
    talk = app.agent("a", model=model, tools=[asking(expires_in=60)]).local()
    result = await talk.prompt("paint it")
    assert [(parked.kind, parked.args) for parked in result.parked] == [("question", {"prompt": "Which?"})]
    assert (result.calls[0].content or "").startswith("ask_user was not run: prompt: String should have at least 1 character")
    (row,) = [row for row in talk.memory.rows.values() if row.kind == "question" and row.request]
    assert row.request is not None
    assert (row.request["reason"], row.request["expires_in_ms"]) == ("Which?", 60_000)
    assert (await talk.resolve(result.parked[0], "red")).text == "red it is"


def test_a_question_stands_as_long_as_the_author_says() -> None:
    agent = App().agent("a", model="openai:x", tools=[asking(expires_in=timedelta(minutes=5))])
    fact = agent.table().tools["ask_user"]
    assert (fact.kind, fact.awaited, fact.timeout_ms) == ("question", True, 300_000)
