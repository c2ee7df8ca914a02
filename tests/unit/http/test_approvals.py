"""Approvals over HTTP: what waits for people, and deciding it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.unit.http.fake_edge import NOW_MS, FakeEdge
from turnyard.records.manifest import Manifest, ToolFacts
from turnyard.state.sessions import ParkedCall

ALLOW = {"decision": "allow", "user": "ann"}
SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}, "kind": {"enum": ["full", "part"]}},
    "required": ["order_id", "amount"],
    "additionalProperties": False,
}


async def decide(http: httpx.AsyncClient, approval: str, **body: Any) -> httpx.Response:
    return await http.post(f"/v1/approvals/{approval}", json=body)


async def test_what_waits_is_listed_page_by_page_with_all_that_a_person_needs_to_decide(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    first = edge.ask(reason="over 100", approvers=("ann", "fin-*"), self_approve=False, remember="session")
    second = edge.ask("call_2")
    edge.ask("call_3", tenant="other")
    edge.ask("call_4", state="allowed")
    page = (await http.get("/v1/approvals", params={"limit": 1})).json()
    (shown,) = page["data"]
    assert shown == {
        "id": first.id,
        "object": "approval",
        "kind": "allow_deny",
        "state": "pending",
        "session": "s1",
        "agent": "hello",
        "user": "u7",
        "turn": "turn_1",
        "call": "call_1",
        "tool": "refund",
        "args": {"order_id": "7", "amount": 120.0},
        "reason": "over 100",
        "approvers": ["ann", "fin-*"],
        "self_approve": False,
        "superseded_by": "asker",
        "remember": "session",
        "options": [],
        "multi_select": False,
        "created_at": "2026-09-21T14:13:20.000Z",
        "expires_at": "2026-09-21T14:28:20.000Z",
        "decided": None,
        "links": {"self": f"/v1/approvals/{first.id}", "session": "/v1/sessions/s1"},
    }
    page = (await http.get("/v1/approvals", params={"after": page["next"]})).json()
    assert ([each["id"] for each in page["data"]], page["next"]) == ([second.id], None)
    assert (await http.get(f"/v1/approvals/{first.id}")).json() == shown


async def test_one_session_s_approvals_are_listed_from_what_it_waits_for(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    mine, other = edge.ask(), edge.ask("call_2", session="s2")
    for approval in (mine, other):
        parked = ParkedCall(approval.call, "refund", "approval", awaited=True, deadline_ms=NOW_MS, approval=approval.id)
        edge.session(approval.session, parked=[parked, ParkedCall("call_9", "order", "callback", awaited=False, deadline_ms=NOW_MS)])
    page = (await http.get("/v1/approvals", params={"session": "s1", "state": "pending"})).json()
    assert [each["id"] for each in page["data"]] == [mine.id]
    assert (await http.get("/v1/approvals", params={"session": "nobody"})).status_code == 404
    assert (await http.get("/v1/approvals", params={"state": "allowed"})).status_code == 400


@pytest.mark.spec("S17")
async def test_a_decision_is_kept_with_who_when_and_for_how_long_and_the_same_one_again_changes_nothing(
    http: httpx.AsyncClient, edge: FakeEdge
) -> None:
    approval = edge.ask(remember="session")
    body = {"decision": "allow", "scope": "session", "user": "ann", "input": {"order_id": "7", "amount": 80}}
    first = await decide(http, approval.id, **body)
    again = await decide(http, approval.id, **body)
    other = await decide(http, approval.id, decision="deny", user="bob")
    assert (first.status_code, again.status_code, other.status_code) == (200, 200, 409)
    assert first.json()["state"] == "allowed"
    decided = {"by": "ann", "at": "2026-09-21T14:13:20.000Z", "scope": "session", "reason": None, "input": body["input"], "answer": None}
    assert first.json()["decided"] == decided
    assert again.json() == first.json()
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert other.json()["code"] == "already-decided"


@pytest.mark.spec("S17", "runner-14")
@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [("not_approver", 403, "not-approver"), ("conflict", 409, "already-decided"), ("expired", 410, "expired"), ("gone", 404, "not-found")],
)
async def test_a_refusal_says_what_is_wrong(http: httpx.AsyncClient, edge: FakeEdge, answer: str, status: int, code: str) -> None:
    approval = edge.ask(approvers=("fin-*",))
    edge.answers = [answer]
    response = await decide(http, approval.id, **ALLOW)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert ("fin-*" in response.json()["detail"]) == (answer == "not_approver")
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.spec("S17", "runner-14")
async def test_another_tenant_s_approval_and_one_that_never_was_look_alike(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    foreign = edge.ask(tenant="other")
    names = (foreign.id, foreign.id[:-4], "apr_", "garbage", "%00", "a" * 2000)
    responses = [r for name in names for r in (await http.get(f"/v1/approvals/{name}"), await decide(http, name, **ALLOW))]
    answers = [{k: v for k, v in r.json().items() if k not in ("ref", "instance")} for r in responses]
    assert all(answer == answers[0] and answer["status"] == 404 for answer in answers)
    assert edge.verdicts == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/user"),
        ({"user": "ann"}, "/decision"),
        ({"decision": "maybe", "user": "ann"}, "/decision"),
        ({"decision": "allow"}, "/user"),
        ({"decision": "allow", "user": ""}, "/user"),
        ({"decision": "allow", "user": "ann", "force": True}, "/force"),
        ({"decision": "allow", "user": "ann", "input": [1]}, "/input"),
        ({"decision": "deny", "user": "ann", "input": {}}, "/input"),
        ({"decision": "allow", "user": "ann", "scope": "session"}, "/scope"),
        ({"decision": "allow", "user": "ann", "scope": "for ever"}, "/scope"),
        ({"decision": "allow", "user": "ann", "answer": "yes"}, "/answer"),
        ({"decision": "answer", "user": "ann", "answer": "yes"}, "/decision"),
        ({"decision": "deny", "user": "ann", "reason": "x" * 2001}, "/reason"),
    ],
)
async def test_a_decision_that_is_none_is_refused_with_a_pointer(
    http: httpx.AsyncClient, edge: FakeEdge, body: dict[str, Any], pointer: str
) -> None:
    response = await decide(http, edge.ask().id, **body)
    assert (response.status_code, response.json()["code"]) == (422, "invalid-input")
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    assert edge.verdicts == []


@pytest.mark.spec("S17")
async def test_edited_arguments_have_to_fit_the_tool(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.agents = {"hello": Manifest("hello", "abc123", tools=(ToolFacts("refund", SCHEMA),))}
    approval = edge.ask()
    response = await decide(http, approval.id, **ALLOW, input={"amount": "80", "kind": "half", "admin": True})
    assert response.status_code == 422
    assert sorted(error["pointer"] for error in response.json()["errors"]) == [
        "/input/admin",
        "/input/amount",
        "/input/kind",
        "/input/order_id",
    ]
    assert (await decide(http, approval.id, **ALLOW, input={"order_id": "7", "amount": 80, "kind": "part"})).status_code == 200
    edge.agents = {}
    unknown = edge.ask("call_2")
    assert (await decide(http, unknown.id, **ALLOW, input={"anything": 1})).status_code == 200


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (2, "Berlin"),
        ("2", "Berlin"),
        ("berlin", "Berlin"),
        ("Rome, rather", "Rome, rather"),
        ([2, "paris", 2], ["Berlin", "Paris"]),
        (["7 hills"], ["7 hills"]),
        ("42", "42"),
    ],
)
async def test_a_question_is_answered_by_number_label_or_in_free_text(
    http: httpx.AsyncClient, edge: FakeEdge, answer: Any, said: Any
) -> None:
    question = edge.ask(kind="question", options=("Paris", "Berlin"), multi_select=True)
    response = await decide(http, question.id, answer=answer, user="ann")
    assert (response.status_code, response.json()["state"]) == (200, "answered")
    assert edge.verdicts[0].answer == said == response.json()["decided"]["answer"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"answer": 3}, "/answer"),
        ({"answer": 0}, "/answer"),
        ({"answer": ""}, "/answer"),
        ({"answer": []}, "/answer"),
        ({"answer": [1, 2]}, "/answer"),
        ({"decision": "allow"}, "/decision"),
        ({"decision": "deny"}, "/decision"),
        ({"decision": "answer"}, "/answer"),
        ({"answer": 1, "scope": "session"}, "/scope"),
        ({"answer": 1, "input": {}}, "/input"),
    ],
)
async def test_an_answer_that_is_none_is_refused_with_a_pointer(
    http: httpx.AsyncClient, edge: FakeEdge, body: dict[str, Any], pointer: str
) -> None:
    question = edge.ask(kind="question", options=("Paris", "Berlin"))
    response = await decide(http, question.id, user="ann", **body)
    assert (response.status_code, [error["pointer"] for error in response.json()["errors"]]) == (422, [pointer])
    assert edge.verdicts == []


@pytest.mark.parametrize("body", [{"answer": ""}, {"answer": " "}, {"answer": []}, {"decision": "answer"}])
async def test_an_answer_that_says_nothing_is_the_default_of_a_question_that_has_one(
    http: httpx.AsyncClient, edge: FakeEdge, body: dict[str, Any]
) -> None:
    question = edge.ask(kind="question", options=("Paris", "Berlin"), args={"prompt": "Where?", "default": "berlin"})
    response = await decide(http, question.id, user="ann", **body)
    assert (response.status_code, response.json()["decided"]["answer"]) == (200, "Berlin")


async def test_a_waiting_job_and_its_session_say_who_may_decide_and_where(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    job = (await http.post("/v1/jobs", json={"agent": "hello", "input": "hi", "session": "s1"})).json()["id"]
    approval = edge.ask()
    call = ParkedCall(
        "call_1",
        "refund",
        "approval",
        awaited=True,
        deadline_ms=NOW_MS + 900_000,
        since_ms=NOW_MS,
        approval=approval.id,
        request={"approvers": ["ann"], "reason": "over 100"},
    )
    edge.session("s1", state="parked", parked=[call])
    edge.jobs[job] = type(edge.jobs[job])(**{**{n: getattr(edge.jobs[job], n) for n in edge.jobs[job].__slots__}, "state": "waiting"})
    (waiting,) = (await http.get(f"/v1/jobs/{job}")).json()["waiting_for"]
    expires_at = "2026-09-21T14:28:20.000Z"
    assert waiting == {
        "call": "call_1",
        "tool": "refund",
        "kind": "approval",
        "wait": True,
        "since": "2026-09-21T14:13:20.000Z",
        "expires_at": expires_at,
        "approval": {"id": approval.id, "approvers": ["ann"], "reason": "over 100", "expires_at": expires_at},
        "progress": None,
    }
    assert (await http.get("/v1/sessions/s1")).json()["parked"] == [waiting]


async def test_the_routes_describe_themselves_with_examples(http: httpx.AsyncClient) -> None:
    described = (await http.get("/openapi.json")).json()
    assert {"/v1/approvals", "/v1/approvals/{approval}"} <= set(described["paths"])
    body = described["paths"]["/v1/approvals/{approval}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert (body["required"], body["additionalProperties"]) == (["user"], False)
    assert {"decision": "allow", "user": "ann"} in body["examples"]
