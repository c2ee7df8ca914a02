"""Do the tools of real MCP servers come, work, change and go, and does a bad server cost no more than its own?"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.mcp.places import SDK, Place, http_server
from turnyard import MCP, secret
from turnyard.app.toolbox import Toolbox
from turnyard.clock import SystemClock
from turnyard.testing import ManualClock, wait_until
from turnyard.tools.context import ToolContext
from turnyard.tools.mcp.link import IDLE_S, ServerAway
from turnyard.tools.runtime import ToolOutcome, run_tool

PATIENCE_S = 30.0


@asynccontextmanager
async def used(target: Any, **options: Any) -> AsyncIterator[MCP]:
    """A server in use, closed at the end."""
    server = MCP(target, **options)
    try:
        yield server
    finally:
        await server.aclose()


async def names_of(server: MCP) -> list[str]:
    return sorted(tool.name for tool in await server.list_tools())


async def run(server: MCP, name: str, _ctx: ToolContext[Any] | None = None, **arguments: Any) -> ToolOutcome:
    tool = next(tool for tool in await server.list_tools() if tool.name == name)
    return await run_tool(tool, arguments, _ctx or ToolContext.fake())


async def test_a_server_over_http_lists_its_tools_and_does_what_they_say(shared: tuple[Place, str]) -> None:
    _, url = shared
    async with used(url, prefix="crm") as server:
        assert await names_of(server) == ["crm_fail", "crm_get_echo", "crm_get_image", "crm_get_json", "crm_get_progress", "crm_set_note"]
        assert await run(server, "crm_get_echo", text="hi") == ToolOutcome("get_echo: hi")
        assert await run(server, "crm_get_json") == ToolOutcome('{"rows":[1,2]}')
        assert await run(server, "crm_get_image") == ToolOutcome("[image (image/png, 8 bytes): file file_1]\na picture")
        assert await run(server, "crm_fail") == ToolOutcome("the order is locked", is_error=True)


async def test_a_command_is_started_spoken_with_and_ended(place: Place) -> None:
    place.has("get_echo")
    async with used([sys.executable, SDK, "stdio"], env=place.env, name="crm") as server:
        assert await run(server, "get_echo", text="hi") == ToolOutcome("get_echo: hi")
        (pid,) = {line["pid"] for line in place.said()}
    await wait_until(lambda: not _runs(pid), description="the process ends")


async def test_progress_of_a_call_reaches_whoever_follows_it(shared: tuple[Place, str]) -> None:
    heard: list[tuple[float, str]] = []

    async def report(fraction: float, note: str) -> None:
        heard.append((fraction, note))

    async with used(shared[1]) as server:
        assert await run(server, "get_progress", ToolContext.fake(report=report)) == ToolOutcome("done")
    assert heard == [(0.25, "a quarter")]


async def test_only_what_is_allowed_and_not_denied_is_offered(shared: tuple[Place, str]) -> None:
    async with used(shared[1], allow=["get_*", "set_*"], deny=["*_image"], approval=["set_*"]) as server:
        tools = {tool.name: tool for tool in await server.list_tools()}
        assert sorted(tools) == ["get_echo", "get_json", "get_progress", "set_note"]
        assert {name for name, tool in tools.items() if tool.approval} == {"set_note"}


async def test_a_read_only_tool_is_repeated_after_a_crash_unless_the_app_says_which_are(shared: tuple[Place, str]) -> None:
    async with used(shared[1]) as server:
        assert {t.name for t in await server.list_tools() if t.idempotent} == {"get_echo", "get_image", "get_json", "get_progress"}
    async with used(shared[1], idempotent=["set_*"]) as server:
        assert {t.name for t in await server.list_tools() if t.idempotent} == {"set_note"}


async def test_a_call_carries_its_key_and_what_is_bound_and_nothing_else_of_who_makes_it(shared: tuple[Place, str]) -> None:
    place, url = shared
    bind = {"headers": {"X-Tenant": "tenant", "X-Plan": "metadata.plan"}, "meta": {"acme/user": "user"}}
    ctx = ToolContext.fake(idempotency_key="key-17", tenant="acme", user="u\nX-Evil: 1", metadata={"plan": "gold"})
    async with used(url, bind=bind) as server:
        await run(server, "set_note", ctx, text="bound")
    async with used(url) as server:
        await run(server, "set_note", ctx, text="unbound")
    bound, unbound = (place.said(arguments={"text": text})[0] for text in ("bound", "unbound"))
    assert bound["headers"] == {"x-tenant": "acme", "x-plan": "gold"}
    assert bound["meta"] == {"turnyard/idempotency-key": "key-17", "acme/user": "u\nX-Evil: 1"}
    assert (unbound["headers"], unbound["meta"]) == ({}, {"turnyard/idempotency-key": "key-17"})


async def test_a_secret_is_read_when_the_connection_is_made_and_is_in_no_text(
    shared: tuple[Place, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place, url = shared
    caplog.set_level(logging.DEBUG)
    server = MCP(url, headers={"Authorization": secret("CRM_TOKEN")})
    with pytest.raises(ServerAway, match="secret CRM_TOKEN is not set"):
        await server.list_tools()
    await server.aclose()
    monkeypatch.setenv("CRM_TOKEN", "sk-hidden-17")
    async with used(url, headers={"Authorization": secret("CRM_TOKEN")}) as server:
        await run(server, "set_note", text="secret")
        texts = [repr(server), server.name, *(repr(vars(tool)) for tool in await server.list_tools())]
    assert place.said(arguments={"text": "secret"})[0]["headers"] == {"authorization": "sk-hidden-17"}
    assert [text for text in [*texts, caplog.text] if "sk-hidden-17" in text] == []


async def test_a_command_has_no_more_of_the_environment_than_it_is_given(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-worker")
    monkeypatch.setenv("CRM_TOKEN", "sk-hidden-17")
    async with used(place.raw("old"), env={**place.env, "TOKEN": secret("CRM_TOKEN")}, bind={"env": {"TENANT": "tenant"}}) as server:
        await run(server, "echo", ToolContext.fake(tenant="acme"), text="a")
        await run(server, "echo", ToolContext.fake(tenant="other"), text="b")
        await run(server, "echo", ToolContext.fake(tenant="acme"), text="c")
    a, b, c = place.said(tool="echo")
    assert [line["env"]["TENANT"] for line in (a, b, c)] == ["acme", "other", "acme"]
    assert a["pid"] == c["pid"] != b["pid"]
    assert (a["env"]["TOKEN"], "OPENAI_API_KEY" in a["env"]) == ("sk-hidden-17", False)


@pytest.mark.parametrize("kind", ["http", "old"])
async def test_a_change_of_the_list_is_heard_and_what_went_says_so(place: Place, kind: str, shared: tuple[Place, str]) -> None:
    files, target, env = (shared[0], shared[1], {}) if kind == "http" else (place, place.raw("old"), place.env)
    before = ["get_echo", "set_note", "fail", "get_image", "get_json", "get_progress"]
    files.has(*before, "change")
    async with used(target, **({"env": env} if env else {})) as server:
        tools = {tool.name: tool for tool in await server.list_tools()}
        seen = server.changed
        files.has(*before[1:], "change", "fresh")
        assert await server.list_tools() == tuple(tools.values()), "nobody said that anything changed"
        await run_tool(tools["change"], {}, ToolContext.fake())
        await wait_until(lambda: server.changed != seen, description="the change is heard")
        assert "fresh" in await names_of(server)
        outcome = await run_tool(tools["get_echo"], {"text": "late"}, ToolContext.fake())
        assert (outcome.is_error, "has no tool get_echo any more" in outcome.content) == (True, True)
        assert files.said(arguments={"text": "late"}) == []
    files.has(*before)


async def test_a_server_that_cannot_tell_of_changes_is_asked_again_after_a_while(place: Place) -> None:
    clock = ManualClock()
    place.has("echo")
    async with used(place.raw("mute"), env=place.env, clock=clock) as server:
        seen = server.changed
        assert await names_of(server) == ["echo"]
        opened = await server.opened()
        opened._links[()].hears = False
        await clock.advance(61)
        assert server.changed != seen
        place.has("echo", "more")
        assert await names_of(server) == ["echo", "more"]


async def test_a_process_that_died_is_started_anew_for_the_next_call_and_the_call_it_died_in_is_unknown(place: Place) -> None:
    place.has("die", "echo")
    async with used(place.raw("old"), env=place.env, name="crm") as server:
        assert await run(server, "die") == ToolOutcome(
            "the connection to crm was lost during the call; whether die took effect is not known", is_error=True
        )
        assert await run(server, "echo", text="back") == ToolOutcome("echo: back")
        os.kill(place.said(tool="echo")[-1]["pid"], 9)
        await wait_until(lambda: not _runs(place.said(tool="echo")[-1]["pid"]), description="the process ends")
        await wait_until(lambda: server.changed > 1, description="its end is noticed")
        assert await run(server, "echo", text="again") == ToolOutcome("echo: again")


async def test_an_idle_connection_is_closed_and_the_list_asked_for_again(place: Place) -> None:
    clock = ManualClock()
    async with used(place.raw("old"), env=place.env, clock=clock) as server:
        await run(server, "echo")
        pid, seen = place.said(tool="echo")[0]["pid"], server.changed
        await clock.advance(IDLE_S - 1)
        assert _runs(pid)
        await clock.advance(2)
        await wait_until(lambda: not _runs(pid), description="the process ends")
        await wait_until(lambda: server.changed != seen, description="the change is heard")
        await run(server, "echo")
        assert place.said(tool="echo")[-1]["pid"] != pid


async def test_a_server_that_talks_nonsense_is_done_with_at_once_and_one_that_stays_is_ended(place: Place) -> None:
    async with used(place.raw("garbage"), name="crm") as server:
        with pytest.raises(ServerAway, match="it closed the connection"):
            await server.list_tools()
    async with used(place.raw("deaf"), env=place.env) as server:
        await run(server, "echo")
        (pid,) = {line["pid"] for line in place.said(tool="echo")}
    assert not _runs(pid)


@pytest.mark.parametrize("mode", ["hang", "garbage"])
async def test_a_server_that_never_answers_costs_nobody_else_more_than_the_patience(place: Place, mode: str) -> None:
    good, bad = MCP(place.raw("old"), env=place.env, prefix="good"), MCP(place.raw(mode), prefix="bad")
    box = Toolbox((), [good, bad], clock=SystemClock(), patience_s=1.0)
    async with asyncio.timeout(PATIENCE_S), box.opened():
        assert list(box.tools) == ["good_echo"]
        before = asyncio.get_running_loop().time()
        await box.offer()
        assert asyncio.get_running_loop().time() - before < 1.0, "it is left alone for a while"


async def test_a_call_that_is_not_answered_ends_in_time_and_the_connection_lives_on(place: Place) -> None:
    place.has("mute", "echo")
    async with used(place.raw("old"), env=place.env, name="crm", timeout=0.3) as server:
        outcome = await run(server, "mute")
        assert outcome.is_error
        assert "timed out" in outcome.content or "did not answer" in outcome.content


async def test_of_ten_thousand_tools_as_many_are_taken_as_a_model_could_read(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with used(place.raw("huge"), prefix="big") as server:
        assert len(await server.list_tools()) == 512
    assert [r.message for r in caplog.records if r.name == "turnyard.tools"] == ["a tool of a server is left out"]


async def test_what_is_too_large_is_cut_or_left_out(place: Place) -> None:
    async with used(place.raw("heavy")) as server:
        tools = {tool.name: tool for tool in await server.list_tools()}
        assert sorted(tools) == ["good", "wordy"]
        assert len(tools["wordy"].description.encode()) <= 4_096


async def test_odd_names_and_schemas_cost_only_the_tools_that_have_them(place: Place) -> None:
    async with used(place.raw("odd")) as server:
        found = [tool.name for tool in await server.list_tools()]
    assert {"good", "a_b"} <= set(found)
    assert "bad_ref" not in found
    assert all(1 <= len(name) <= 64 for name in found)


async def test_what_a_server_says_becomes_news_for_the_sessions_that_called_it(place: Place) -> None:
    clock = ManualClock()
    place.has("alert", "echo")
    news: list[tuple[str, ...]] = []

    def of(session: str) -> ToolContext[Any]:
        async def notify(text: str, group: str, key: str) -> None:
            news.append((session, group, key, text))

        return ToolContext.fake(session=session, notify=notify)

    async with used(place.raw("old"), env=place.env, name="crm", clock=clock, notices=["messages", "notifications/acme/alert"]) as server:
        await run(server, "echo", of("s1"))
        for text in ("one", "two"):
            await run(server, "alert", of("s2"), text=text)
        opened = await server.opened()
        await wait_until(lambda: len(opened._news._waiting) == 2, description="both are heard")
        await clock.advance(1)
        await wait_until(lambda: len(news) == 4, description="both sessions are told")
    assert sorted(news) == sorted(
        (session, "mcp:crm", key, text)
        for session in ("s1", "s2")
        for key, text in (
            ("notifications/acme/alert", 'crm: notifications/acme/alert {"what":"two"}'),
            ("messages/disk", "crm: [warning] nearly full"),
        )
    )


async def test_a_server_that_cannot_be_reached_is_tried_less_and_less_often_and_whoever_asks_is_told_at_once(tmp_path: Path) -> None:
    clock, trace = ManualClock(), tmp_path / "trace"
    command = ["sh", "-c", f"echo started >> {trace}; exit 3"]
    async with used(command, name="crm", clock=clock) as server:
        for pause_s, starts in ((0.0, 1), (0.4, 1), (0.6, 2), (0.9, 2), (2.0, 3)):
            await clock.advance(pause_s)
            with pytest.raises(ServerAway, match="crm cannot be reached: it closed the connection"):
                await server.list_tools()
            assert trace.read_text().count("started") == starts


async def test_a_resource_that_is_watched_is_told_of_when_it_changes(place: Place) -> None:
    clock = ManualClock()
    place.has("touch")
    news: list[tuple[str, str, str]] = []

    async def notify(text: str, group: str, key: str) -> None:
        news.append((text, group, key))

    with http_server(place) as url:
        async with used(url, name="crm", clock=clock, notices=["note://one"]) as server:
            assert await run(server, "touch", ToolContext.fake(notify=notify)) == ToolOutcome("touched")
            opened = await server.opened()
            await wait_until(lambda: opened._news._waiting != {}, description="the change to be heard")
            await clock.advance(1)
            await wait_until(lambda: news != [], description="the session to be told")
    assert news == [("crm: resource note://one has changed", "mcp:crm", "note://one")]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
