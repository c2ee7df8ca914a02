"""Messages, notices, controls and outcomes over HTTP, and what operators ask for."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import orjson
import pytest

from tests.unit.http.fake_edge import FakeEdge
from turnyard.records import log
from turnyard.records.ids import new_call_token

JSON = {"content-type": "application/json"}


async def test_a_message_goes_to_the_session_s_agent(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.session("s1")
    response = await http.post("/v1/sessions/s1/messages", json={"input": "hi", "user": "u7"})
    assert (response.status_code, response.json()["agent"], response.json()["session"]) == (202, "hello", "s1")
    assert [(m.session, m.agent, m.user) for m in edge.messages] == [("s1", "hello", "u7")]


async def test_a_message_that_names_an_agent_may_open_the_session(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    assert (await http.post("/v1/sessions/new/messages", json={"input": "hi", "agent": "hello"})).status_code == 202
    assert [m.session for m in edge.messages] == ["new"]


async def test_a_notice_has_a_group_and_a_key_and_no_job(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.session("s1")
    body = {"kind": "notice", "group": "stock", "key": "ACME", "input": "42 \x00", "tag": "t"}
    response = await http.post("/v1/sessions/s1/messages", json=body)
    assert (response.status_code, response.json()["object"]) == (202, "notice")
    (notice,) = edge.notices
    assert (notice["session"], notice["agent"], notice["group"], notice["key"], notice["clear"]) == ("s1", "hello", "stock", "ACME", False)
    assert notice["body"] == {"text": "42 \ufffd", "group": "stock", "key": "ACME", "tag": "t"}
    assert edge.messages == []


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({}, "/input"),
        ({"input": ""}, "/input"),
        ({"input": "x", "clear": True}, "/input"),
        ({"input": "x", "group": ""}, "/group"),
        ({"input": "x", "mode": "steer"}, "/mode"),
    ],
)
async def test_a_notice_that_says_nothing_or_too_much_is_refused(
    http: httpx.AsyncClient, edge: FakeEdge, more: dict[str, Any], pointer: str
) -> None:
    edge.session("s1")
    response = await http.post("/v1/sessions/s1/messages", json={"kind": "notice", "group": "g", "key": "k"} | more)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, pointer)
    assert edge.notices == []


async def test_a_notice_may_say_where_it_comes_from_how_long_it_matters_and_that_it_stands_beside_another(
    http: httpx.AsyncClient, edge: FakeEdge
) -> None:
    edge.session("s1")
    body = {"kind": "notice", "group": "stock", "key": "ACME", "input": "42", "origin": "feed/7", "metadata": {"lot": "3"}}
    response = await http.post("/v1/sessions/s1/messages", json=body | {"ttl_s": 1.5, "supersede": False})
    assert response.status_code == 202
    (notice,) = edge.notices
    assert notice["body"] == {"text": "42", "origin": "feed/7", "metadata": {"lot": "3"}, "group": "stock", "key": "ACME"}
    assert (notice["ttl_ms"], notice["supersede"]) == (1500, False)
    assert (await http.post("/v1/sessions/s1/messages", json=body | {"ttl_s": 0})).status_code == 422


async def test_a_notice_can_be_cleared(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.session("s1")
    response = await http.post("/v1/sessions/s1/messages", json={"kind": "notice", "group": "g", "key": "k", "clear": True})
    assert (response.status_code, edge.notices[0]["clear"]) == (202, True)


async def test_what_was_said_is_read_back_without_calls_and_events(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.session("s1")
    edge.write("s1", log.ACCEPTED, jobs=("job_1",))
    edge.write("s1", log.USER, turn="t", jobs=("job_1",), body={"text": "hi"})
    edge.write("s1", log.CALL, turn="t", call="call_1", body={"name": "add", "args": {}})
    edge.write("s1", log.ASSISTANT, turn="t", body={"text": "hello"})
    edge.write("s1", log.TURN_END, turn="t", jobs=("job_1",))
    said = (await http.get("/v1/sessions/s1/messages")).json()
    assert [(m["role"], m["content"][0]["text"], m["seq"]) for m in said["data"]] == [("user", "hi", 2), ("assistant", "hello", 4)]
    entries = (await http.get("/v1/sessions/s1/entries")).json()
    assert [e["type"] for e in entries["data"]] == [log.USER, log.CALL, log.ASSISTANT]
    assert entries["next"] is None
    page = (await http.get("/v1/sessions/s1/entries?limit=2")).json()
    assert ([e["seq"] for e in page["data"]], page["next"]) == ([2], "2")
    rest = (await http.get(f"/v1/sessions/s1/entries?after={page['next']}")).json()
    assert [e["seq"] for e in rest["data"]] == [3, 4]


async def test_a_cancel_names_the_turn_or_means_the_open_one(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.session("s1", turn="turn_1")
    response = await http.post("/v1/sessions/s1/cancel")
    assert (response.status_code, response.json()["cancel_requested"], response.json()["turn"]) == (202, True, "turn_1")
    await http.post("/v1/sessions/s1/cancel", json={"turn": "turn_0"})
    assert [(c["control"], c["turn"]) for c in edge.controls] == [("cancel", None), ("cancel", "turn_0")]
    edge.answers = ["late"]
    late = await http.post("/v1/sessions/s1/cancel")
    assert (late.status_code, late.json()["code"]) == (409, "already-finished")


async def test_a_control_that_is_repeated_with_its_key_is_the_same_event(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.session("s1")
    edge.session("s2")
    for session in ("s1", "s1", "s2"):
        assert (await http.post(f"/v1/sessions/{session}/new", headers={"idempotency-key": "k"})).status_code == 202
    await http.post("/v1/sessions/s1/new")
    events = [c["event"] for c in edge.controls]
    assert events[0] == events[1]
    assert len(set(events)) == 3


async def test_a_session_explains_itself(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.session("s1")
    answer = (await http.get("/v1/sessions/s1/explain")).json()
    assert answer == {
        "session": "s1",
        "object": "explanation",
        "code": "idle",
        "detail": "nothing waits for it",
        "fix": "send a message",
        "holder": None,
        "age_ms": None,
        "facts": {},
        "also": [],
    }


TOKEN, SECRET_HASH = new_call_token(0, "abc.0", "call_7")


@pytest.mark.spec("S6")
@pytest.mark.parametrize("body", [b'{"id": 12345678901234567890123, "data": {"a": [1]}}', b"plain text", b"", b"\xff\x00"])
async def test_a_callback_takes_any_body_as_the_result(http: httpx.AsyncClient, edge: FakeEdge, body: bytes) -> None:
    response = await http.post(f"/v1/calls/{TOKEN}", content=body)
    assert response.status_code == 200
    (outcome,) = edge.outcomes
    assert (outcome["shard"], outcome["store"], outcome["call"], outcome["secret_hash"]) == (0, "abc.0", "call_7", SECRET_HASH)
    assert (outcome["outcome"], response.json()["outcome"]) == ("raw", "result")
    assert outcome["body"] == {"content": body.decode("utf-8", "replace").replace("\0", "\ufffd"), "is_error": False}


@pytest.mark.parametrize(
    ("body", "outcome", "content"),
    [
        ({"result": "done"}, "result", "done"),
        ({"result": {"a": [1, "ü"]}}, "result", '{"a":[1,"ü"]}'),
        ({"result": None}, "result", "null"),
        ({"error": "out of stock"}, "error", "out of stock"),
    ],
)
async def test_an_outcome_is_a_result_or_an_error(http: httpx.AsyncClient, edge: FakeEdge, body: Any, outcome: str, content: str) -> None:
    response = await http.post(f"/v1/outcomes/{TOKEN}", json=body)
    assert (response.status_code, response.json()["outcome"]) == (200, outcome)
    assert (edge.outcomes[0]["outcome"], edge.outcomes[0]["body"]) == (outcome, {"content": content, "is_error": outcome == "error"})


@pytest.mark.parametrize("body", [{}, {"result": 1, "error": "x"}, {"error": ""}, {"error": 3}, {"status": "ok"}, []])
async def test_an_outcome_that_is_neither_or_both_is_refused(http: httpx.AsyncClient, edge: FakeEdge, body: Any) -> None:
    response = await http.post(f"/v1/outcomes/{TOKEN}", json=body)
    assert (response.status_code, response.json()["code"]) == (422, "invalid-input")
    assert edge.outcomes == []


@pytest.mark.spec("S6")
async def test_a_wrong_token_and_no_token_look_alike(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    answers: list[Any] = []
    for token in ("garbage", "x" * 3000, TOKEN[:-3], "%00", TOKEN):
        edge.answers = ["gone"]
        response = await http.post(f"/v1/calls/{token}", content=b"x")
        answers.append({k: v for k, v in response.json().items() if k != "ref"})
    assert [a["status"] for a in answers] == [404] * 5
    assert all(a == answers[0] for a in answers)


@pytest.mark.spec("S6")
@pytest.mark.parametrize(("code", "status"), [("duplicate", 200), ("conflict", 409), ("expired", 410)])
async def test_a_second_outcome_is_told_what_became_of_the_first(http: httpx.AsyncClient, edge: FakeEdge, code: str, status: int) -> None:
    edge.answers = [code]
    assert (await http.post(f"/v1/calls/{TOKEN}", content=b"x")).status_code == status


@pytest.mark.spec("S6")
async def test_a_token_is_neither_logged_nor_repeated(http: httpx.AsyncClient, edge: FakeEdge, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="turnyard")
    edge.broken = RuntimeError("boom")
    edge.answers = []
    responses = [await http.post(f"/v1/{route}/{TOKEN}", content=b'{"result": 1}', headers=JSON) for route in ("calls", "outcomes")]
    edge.broken = None
    edge.answers = ["conflict"]
    responses.append(await http.post(f"/v1/calls/{TOKEN}", content=b"x"))
    assert not [r for r in responses if TOKEN in r.text]
    ours = [r for r in caplog.records if r.name.startswith("turnyard")]
    assert not [r for r in ours if TOKEN in caplog.handler.format(r) or TOKEN in str(vars(r))]


async def test_agents_are_listed_as_published(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    (agent,) = (await http.get("/v1/agents")).json()["data"]
    assert (agent["object"], agent["name"], agent["version"], agent["mode"]) == ("agent", "hello", "abc123", "steer")
    assert (await http.get("/v1/agents/hello")).json() == agent


async def test_operators_see_workers_and_demand(http: httpx.AsyncClient) -> None:
    (worker,) = (await http.get("/v1/workers")).json()["data"]
    assert {"worker", "pid", "supervisor_pid", "host", "role", "pools", "running", "capacity", "agents", "beat_age_s"} <= set(worker)
    assert (await http.get("/v1/scale/default")).json() == {
        "pool": "default",
        "ready": 1,
        "running": 0,
        "oldest_ready_s": 0.5,
        "desired_turns": 1,
    }


async def test_alive_and_ready_are_two_questions(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    assert (await http.get("/healthz")).status_code == 200
    assert (await http.get("/readyz")).status_code == 200
    edge.down = True
    assert (await http.get("/healthz")).status_code == 200
    assert (await http.get("/readyz")).status_code == 503


async def test_the_api_describes_itself(http: httpx.AsyncClient) -> None:
    described = (await http.get("/openapi.json")).json()
    body = described["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"agent", "input"} == set(body["required"])
    assert body["additionalProperties"] is False
    job = described["components"]["schemas"]["JobShape"]
    assert "waiting_for" in job["properties"]
    orjson.dumps(described)
    undescribed = [f"{m} {p}" for p, routes in described["paths"].items() for m, route in routes.items() if not route.get("description")]
    assert undescribed == []


@pytest.mark.parametrize(("state", "holder"), [("running", "w1"), ("idle", None), ("ready", None), ("parked", None)])
async def test_only_a_running_session_has_a_holder(http: httpx.AsyncClient, edge: FakeEdge, state: str, holder: str | None) -> None:
    edge.session("s1", state=state, holder="w1")
    assert (await http.get("/v1/sessions/s1")).json()["holder"] == holder
