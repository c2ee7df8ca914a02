"""What is declared of an MCP server, and what is made of what one says, without a server."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from turnyard import MCP, ConfigError, Secret, ToolContext, ToolError, secret
from turnyard.tools.files import Files
from turnyard.tools.mcp.bind import bind_of
from turnyard.tools.mcp.config import read_config
from turnyard.tools.mcp.content import read_result
from turnyard.tools.mcp.followers import FOLLOW_S, MOST_FOLLOWERS, Followers, wanted_of
from turnyard.tools.mcp.link import reason_of
from turnyard.tools.mcp.remote import poll_s
from turnyard.tools.mcp.server import Rules

NAMES = st.text("abc_*", max_size=6)


# -- declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "options", "fault"),
    [
        ("crm.acme.io", {}, "http"),
        ("ftp://crm", {}, "http"),
        ([], {}, "list of words"),
        ("http://a", {"allow": "get_*"}, "is a list"),
        ("http://a", {"timeout": 0}, "more than zero"),
        ("http://a", {"env": {"A": "b"}}, "started with a command"),
        (["x"], {"headers": {"A": "b"}}, "with a URL"),
        (["x"], {"bind": {"headers": {"A": "user"}}}, "with a URL"),
        ("http://a", {"bind": {"env": {"A": "user"}}}, "with a command"),
        (["x"], {"bind": {"env": {"A": "turn"}}}, "cannot have 'turn'"),
        ("http://a", {"bind": {"meta": {"A": "password"}}}, "cannot have 'password'"),
        ("http://a", {"bind": {"query": {"A": "user"}}}, "no place"),
        ("http://a", {"notices": ["everything"]}, "means nothing"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused_where_it_is_written(target: Any, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        MCP(target, **options)


def test_a_server_is_called_by_its_name_its_prefix_its_host_or_its_command() -> None:
    given = [MCP("http://u:pw@a.b/mcp?key=1", name="n"), MCP("http://a.b/", prefix="crm"), MCP("http://a.b/"), MCP(["/usr/bin/uvx", "x"])]
    assert [server.name for server in given] == ["n", "crm", "a.b", "uvx"]
    assert "pw" not in repr(given[0])
    assert "key" not in repr(given[0])


@given(name=NAMES, allow=st.lists(NAMES), deny=st.lists(NAMES))
def test_a_tool_is_offered_when_it_is_allowed_and_not_denied(name: str, allow: list[str], deny: list[str]) -> None:
    rules = Rules(allow=tuple(allow), deny=tuple(deny))
    unbounded, denied = Rules(allow=tuple(allow)), Rules(allow=tuple(deny))
    assert rules.offers(name) == (unbounded.offers(name) and not (deny and denied.offers(name)))


@given(value=st.text(max_size=30))
def test_a_bound_value_can_never_become_a_header_of_its_own(value: str) -> None:
    bind = bind_of({"headers": {"X-User": "user"}}, is_command=False)
    assert not set(bind.headers_of(ToolContext.fake(user=value))["X-User"]) & set("\r\n\0")


def test_nothing_of_a_call_is_told_that_is_not_bound() -> None:
    ctx = ToolContext.fake(metadata={"plan": "gold"})
    bind = bind_of({"meta": {"a": "metadata.plan", "b": "call", "c": "metadata.nothing"}}, is_command=True)
    assert bind.meta_of(ctx) == {"a": "gold", "b": ctx.call_id, "c": ""}
    assert (bind.headers_of(ctx), bind.env_of(ctx)) == ({}, ())


# -- a file with mcpServers -------------------------------------------------------------------------------------------


def test_a_file_with_servers_is_read_as_other_clients_read_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    servers = {
        "crm": {"url": "https://crm.acme.io/mcp", "headers": {"Authorization": "env:CRM_TOKEN", "X-Team": "a"}, "autoApprove": ["x"]},
        "my-fs": {"command": "npx", "args": ["-y", "fs", "/data"], "env": {"KEY": "${FS_KEY}"}, "allow": ["read_*"]},
        "off": {"command": "x", "disabled": True},
    }
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    crm, files = read_config(path)
    assert (crm.target, crm.options["prefix"], crm.options["headers"]) == (
        "https://crm.acme.io/mcp",
        "crm_",
        {"Authorization": Secret("CRM_TOKEN"), "X-Team": "a"},
    )
    assert files.target == ["npx", "-y", "fs", "/data"]
    assert files.options == {"name": "my-fs", "prefix": "my_fs_", "allow": ["read_*"], "env": {"KEY": secret("FS_KEY")}}
    assert [vars(r)["fields"] for r in caplog.records] == ["autoApprove"]
    assert [server.name for server in MCP.from_config(path, deny=["write_*"])] == ["crm", "my-fs"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mcpServers": []}', '{"mcpServers": {"a": 1}}', '{"mcpServers": {"a": {}}}'])
def test_a_file_that_holds_no_servers_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mcp\.json"):
        MCP.from_config(path)


def test_a_transport_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="only streamable HTTP"):
        MCP.from_config({"mcpServers": {"a": {"url": "http://a", "type": "sse"}}})


# -- what servers say -------------------------------------------------------------------------------------------------


def block(**fields: Any) -> types.CallToolResult:
    return types.CallToolResult.model_validate({"content": [fields]})


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (block(type="text", text="hi"), "hi"),
        (block(type="image", data=base64.b64encode(b"12345").decode(), mimeType="image/png"), "[image (image/png, 5 bytes)]"),
        (block(type="audio", data="~", mimeType="audio/wav"), "[audio (audio/wav) that is not base64]"),
        (block(type="resource_link", uri="note://a", name="A"), "[resource A: note://a]"),
        (block(type="resource", resource={"uri": "note://a", "text": "hi"}), "[resource note://a]\nhi"),
        (block(type="resource", resource={"uri": "b://a", "blob": "aGk="}), "[resource b://a (application/octet-stream, 2 bytes)]"),
        (types.CallToolResult(content=[], structured_content={"a": 1}), '{"a":1}'),
        (types.CallToolResult(content=[]), ""),
    ],
)
async def test_whatever_a_server_answers_becomes_text(result: types.CallToolResult, text: str) -> None:
    assert await read_result(result) == text


async def test_a_file_that_can_be_kept_is_spoken_of_by_where_it_is() -> None:
    result = block(type="image", data=base64.b64encode(b"12345").decode(), mimeType="image/png")
    ctx = ToolContext.fake()
    text = str(await read_result(result, ctx.files))
    file = text.removeprefix("[image (image/png, 5 bytes): file ").removesuffix("]")
    assert await ctx.files.get(file) == b"12345"
    assert await read_result(result, Files()) == "[image (image/png, 5 bytes)]"


async def test_a_failure_is_told_with_the_servers_words_whatever_they_are() -> None:
    for result, words in ((block(type="text", text="locked"), "locked"), (types.CallToolResult(content=[]), "nothing more")):
        result.is_error = True
        with pytest.raises(ToolError, match=words):
            await read_result(result)


@given(st.one_of(st.none(), st.integers()))
def test_a_task_is_never_asked_about_in_haste_nor_forgotten(interval_ms: int | None) -> None:
    assert 1 <= poll_s(interval_ms) <= 300


@pytest.mark.parametrize(
    "error",
    [
        MCPError(-1, "Authorization: Bearer sk-1"),
        RuntimeError("sk-1"),
        OSError(2, "no such thing", "/path/sk-1"),
        ExceptionGroup("sk-1", [ValueError("sk-1")]),
        TimeoutError("sk-1"),
    ],
)
def test_why_a_server_is_away_is_told_without_what_may_be_secret(error: Exception) -> None:
    assert "sk-1" not in reason_of(error)


# -- who hears of it --------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, FOLLOW_S)), max_size=40))
def test_a_session_hears_of_a_server_for_an_hour_after_its_last_call(calls: list[tuple[int, float]]) -> None:
    now = 0.0
    followers = Followers(lambda: now)
    last: dict[int, float] = {}
    for session, wait_s in calls:
        now += wait_s
        followers.follow(ToolContext.fake(session=str(session)))
        last[session] = now
        assert len(followers.current()) == sum(1 for at in last.values() if now < at + FOLLOW_S)


def test_only_so_many_sessions_follow_and_the_one_that_called_longest_ago_makes_room() -> None:
    told: list[int] = []

    def of(session: int) -> ToolContext[Any]:
        async def notify(_text: str, _group: str, _key: str) -> None:
            told.append(session)

        return ToolContext.fake(session=str(session), notify=notify)

    followers = Followers(lambda: 0.0)
    for session in range(MOST_FOLLOWERS + 1):
        followers.follow(of(session))

    async def tell() -> None:
        for notify in followers.current():
            await notify("", "", "")

    asyncio.run(tell())
    assert (len(told), 0 in told) == (MOST_FOLLOWERS, False)


def test_what_is_wanted_is_what_was_asked_for() -> None:
    wanted = wanted_of(["messages", "note://a", "notifications/acme/alert"])
    assert (wanted.messages, wanted.resources, wanted.uris, wanted.methods) == (True, False, ("note://a",), ("notifications/acme/alert",))
    assert not wanted_of([])


def test_how_long_a_call_may_take_is_a_timedelta_or_seconds() -> None:
    assert MCP("http://a", timeout=timedelta(minutes=2))._server.timeout_s == MCP("http://a", timeout=120)._server.timeout_s == 120
