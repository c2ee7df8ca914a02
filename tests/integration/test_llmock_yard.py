"""The whole way on an independent model server: plain HTTP in, streamed calls and text, an event stream that is cut and goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.integration.http.conftest import door
from tests.integration.llmock_server import Server, running, server
from tests.processes import ROOT, Roles, roles
from turnyard.records.sse import SSEParser
from turnyard.testing import wait_until

pytest.importorskip("llmock", reason="llmock is not installed: pip install llmock")

pytestmark = pytest.mark.xdist_group("llmock")
__all__ = ["roles", "running", "server"]

TEXT = "In Paris it is 21 °C and sunny, say those who are there: 晴れ 😀."
CUTS = 5


@dataclass(frozen=True)
class Seen:
    """One event of a stream."""

    id: str
    type: str
    data: dict[str, Any]


@pytest.fixture
async def http(server: Server, clean: str, roles: Roles) -> AsyncIterator[httpx.AsyncClient]:
    """Plain HTTP to a yard whose one agent asks llmock."""
    model = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "anything"}
    roles.dispatcher(clean)
    roles.worker(clean, ROOT / "examples" / "llmock_agent.py", env=model)
    _, url = door(roles, clean)
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:

        async def published() -> bool:
            return bool((await client.get("/v1/agents")).json()["data"])

        await wait_until(published, description="the agent to be published", timeout_s=30)
        yield client


async def listen(http: httpx.AsyncClient, session: str, after: str | None, *, until: int | None) -> tuple[list[Seen], bool]:
    """Follow a session after an id; stop in mid-stream after `until` events, else at the end of the turn. True: the turn ended."""
    headers = {"Last-Event-ID": after} if after else {}
    got: list[Seen] = []
    parser = SSEParser()
    async with http.stream("GET", f"/v1/sessions/{session}/events", headers=headers) as answer:
        assert answer.status_code == 200
        async for text in answer.aiter_text():
            for event in parser.feed(text):
                if not event.id:
                    continue
                got.append(Seen(event.id, event.event, json.loads(event.data)))
                if event.event == "turn/end":
                    return got, True
                if until is not None and len(got) >= until:
                    return got, False
    return got, False


async def test_streamed_calls_and_text_reach_a_follower_whose_stream_is_cut_again_and_again(
    http: httpx.AsyncClient, server: Server
) -> None:
    cities = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Paris", "Lyon")]
    server.next({"type": "reply", "tool_calls": cities}, {"type": "reply", "text": TEXT})
    body = {"agent": "weather", "input": "What is the weather in Paris?", "session": "s1"}
    job = await http.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k1"})
    assert job.status_code == 202

    seen: list[Seen] = []
    ended = False
    for cut in range(200):
        more, ended = await listen(http, "s1", seen[-1].id if seen else None, until=2 if cut < CUTS else None)
        seen += more
        if ended:
            break
    assert ended

    durable = [s for s in seen if not s.type.startswith(("message/start", "message/update"))]
    keys = [(s.id, s.type) for s in durable]
    assert len(keys) == len(set(keys)), "an event came twice"
    whole, _ = await listen(http, "s1", None, until=None)
    assert [(s.id, s.type) for s in whole if not s.type.startswith(("message/start", "message/update"))] == keys, "an event is missing"

    calls = [s.data["data"]["args"] for s in durable if s.type == "tool/call"]
    assert calls == [{"city": "Paris"}, {"city": "Lyon"}]
    results = [s.data["data"]["content"] for s in durable if s.type == "tool/result"]
    assert results == ["21 °C and sunny in Paris", "21 °C and sunny in Lyon"]
    assert [s for s in durable if s.type == "message/end"][-1].data["data"]["text"] == TEXT

    found = (await http.get(f"/v1/jobs/{job.json()['id']}", headers={"Prefer": "wait=10"})).json()
    assert (found["state"], found["text"]) == ("succeeded", TEXT)
    assert found["usage"]["output_tokens"] > 0
    assert server.findings() == set()
    asked = server.requests()
    assert len(asked) == 2, "a model call was repeated, or one was not made"


async def test_an_answer_that_breaks_off_is_asked_for_again_and_only_the_whole_one_is_kept(http: httpx.AsyncClient, server: Server) -> None:
    server.next(
        {"type": "stream_fault", "kind": "truncate", "after_chunks": 2},
        {"type": "reply", "text": "Half of it"},
        {"type": "reply", "text": TEXT},
    )
    body = {"agent": "weather", "input": "And tomorrow?", "session": "s2"}
    found = (await http.post("/v1/jobs", json=body, headers={"Prefer": "wait=20"})).json()
    assert (found["state"], found["text"]) == ("succeeded", TEXT)
    entries = (await http.get("/v1/sessions/s2/entries")).json()["data"]
    assert [e["type"] for e in entries].count("assistant/message") == 1
