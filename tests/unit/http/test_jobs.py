"""Submitting a job, looking at it, waiting for it, cancelling it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.unit.http.fake_edge import FakeEdge
from turnyard.records import log
from turnyard.records.ids import keyed_session
from turnyard.testing import wait_until

BODY = {"agent": "hello", "input": "add 2 and 3"}
JOB_FIELDS = {
    "id", "object", "state", "agent", "agent_version", "session", "turn", "user", "input", "output", "text", "error", "stop_reason", "mode",
    "complete_when", "merged_into", "waiting_for", "usage", "attempts", "cancel_requested", "queue", "priority", "metadata", "trace_id",
    "created_at", "started_at", "finished_at", "expires_at", "links",
}  # fmt: skip
SESSION_FIELDS = {
    "id", "object", "state", "agent", "store", "user", "platform", "title", "entries", "last_seq", "inbox", "turn", "step", "holder", "parked",
    "usage", "context", "metadata", "paused", "created_at", "updated_at", "links",
}  # fmt: skip


async def test_a_submit_is_answered_with_the_job_and_where_it_is(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    response = await http.post("/v1/jobs", json=BODY | {"session": "s1", "user": "u7", "metadata": {"order": "o-1"}, "priority": 2})
    job = response.json()
    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/jobs/{job['id']}"
    assert response.headers["request-id"].startswith("req_")
    assert set(job) == JOB_FIELDS
    assert (job["state"], job["session"], job["user"], job["metadata"]) == ("queued", "s1", "u7", {"order": "o-1"})
    assert (job["input"], job["priority"]) == ([{"type": "text", "text": "add 2 and 3"}], 2)
    assert job["queue"] == {"position": 1, "reason": None}
    assert job["created_at"] == "2026-09-21T14:13:20.000Z"
    assert (await http.get(job["links"]["self"])).json() | {"queue": None} == job | {"queue": None}
    assert (await http.get(job["links"]["session"])).json()["id"] == "s1"


async def test_defaults_are_the_route_s_and_the_agent_s(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.agents["hello"] = replace(edge.agents["hello"], mode="collect", pool="gpu")
    first = (await http.post("/v1/jobs", json=BODY)).json()
    second = (await http.post(f"/v1/sessions/{first['session']}/messages", json={"input": "more"})).json()
    third = (await http.post("/v1/jobs", json=BODY | {"mode": "interrupt", "complete_when": "turn"})).json()
    assert [(j["mode"], j["complete_when"]) for j in (first, second, third)] == [
        ("collect", "settled"),
        ("collect", "turn"),
        ("interrupt", "turn"),
    ]
    assert [m.pool for m in edge.messages] == ["gpu"] * 3
    assert first["session"] == second["session"] != third["session"]


async def test_the_time_a_job_may_take_counts_from_where_it_may_start(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    await http.post("/v1/jobs", json=BODY)
    await http.post("/v1/jobs", json=BODY | {"timeout_s": 2.5})
    await http.post("/v1/jobs", json=BODY | {"timeout_s": 2.5, "start_after": 60})
    assert [m.timeout_ms for m in edge.messages] == [None, 2500, 62_500]


async def test_the_tenant_never_comes_from_the_request(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    await http.post("/v1/jobs?tenant=acme", json=BODY, headers={"x-tenant": "acme"})
    assert [m.tenant for m in edge.messages] == ["default"]


@pytest.mark.spec("S2")
async def test_what_belongs_to_another_tenant_looks_like_what_does_not_exist(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    job = (await http.post("/v1/jobs", json=BODY | {"session": "s1"})).json()
    edge.jobs[job["id"]] = replace(edge.jobs[job["id"]], tenant="acme")
    edge.session("s1", tenant="acme")
    for there, absent in (
        (f"/v1/jobs/{job['id']}", "/v1/jobs/job_00aaaaaaaaaaaaaaaa"),
        (f"/v1/jobs/{job['id']}/events", "/v1/jobs/job_00aaaaaaaaaaaaaaaa/events"),
        ("/v1/sessions/s1", "/v1/sessions/s2"),
        ("/v1/sessions/s1/entries", "/v1/sessions/s2/entries"),
        ("/v1/sessions/s1/messages", "/v1/sessions/s2/messages"),
        ("/v1/jobs?session=s1", "/v1/jobs?session=s2"),
    ):
        answers = [(r.status_code, r.json()["code"]) for r in (await http.get(there), await http.get(absent))]
        assert answers == [(404, "not-found")] * 2
    for path in (f"/v1/jobs/{job['id']}/cancel", "/v1/sessions/s1/cancel", "/v1/sessions/s1/new"):
        assert (await http.post(path)).status_code == 404
    assert (await http.get("/v1/sessions")).json()["data"] == []
    assert edge.controls == []


async def test_a_client_that_waits_gets_200_with_the_answer(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    async def finish() -> None:
        await wait_until(lambda: bool(edge.jobs), description="the job to be accepted")
        edge.finish(next(iter(edge.jobs)), text="5")

    task = asyncio.create_task(finish())
    response = await http.post("/v1/jobs", json=BODY, headers={"prefer": "wait=30"})
    await task
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=30"
    assert (response.json()["state"], response.json()["text"]) == ("succeeded", "5")
    assert edge.messages[0].notify == edge.channel


async def test_a_wait_that_is_too_short_gets_202_and_the_job_goes_on(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    response = await http.post("/v1/jobs", json=BODY, headers={"prefer": "respond-async, wait=0"})
    assert (response.status_code, response.headers["preference-applied"], response.json()["state"]) == (202, "wait=0", "queued")


async def test_nobody_is_told_of_an_end_that_nobody_waits_for(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    await http.post("/v1/jobs", json=BODY)
    assert edge.messages[0].notify is None


async def test_a_read_may_wait_too(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    job = (await http.post("/v1/jobs", json=BODY)).json()["id"]
    task = asyncio.create_task(http.get(f"/v1/jobs/{job}", headers={"prefer": "wait=30"}))
    await asyncio.sleep(0)
    edge.finish(job, text="5")
    response = await task
    assert (response.status_code, response.json()["text"], response.headers["preference-applied"]) == (200, "5", "wait=30")
    again = await http.get(f"/v1/jobs/{job}", headers={"prefer": "wait=30"})
    assert again.json()["text"] == "5"


async def test_a_repeat_with_the_same_key_answers_with_the_same_job(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    headers = {"idempotency-key": "o-1"}
    first = await http.post("/v1/jobs", json=BODY, headers=headers)
    again = await http.post(
        "/v1/jobs", content=b' { "input": "add 2 and 3", "agent": "hello" }', headers=headers | {"content-type": "application/json"}
    )
    assert (first.status_code, again.status_code) == (202, 202)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json()["id"] == again.json()["id"]
    assert len(edge.messages) == 1


async def test_the_same_key_with_another_body_is_refused(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    headers = {"idempotency-key": "o-1"}
    await http.post("/v1/jobs", json=BODY, headers=headers)
    for other in (
        {"input": "other"},
        {"user": "u"},
        {"mode": "interrupt"},
        {"priority": 1},
        {"metadata": {"a": "b"}},
        {"complete_when": "turn"},
    ):
        response = await http.post("/v1/jobs", json=BODY | other, headers=headers)
        assert (response.status_code, response.json()["code"]) == (422, "idempotency-mismatch")
    assert len(edge.messages) == 1


async def test_the_same_key_in_the_same_moment_makes_one_job(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    responses = await asyncio.gather(*(http.post("/v1/jobs", json=BODY, headers={"idempotency-key": "o-1"}) for _ in range(10)))
    assert {r.status_code for r in responses} == {202}
    assert len({r.json()["id"] for r in responses}) == 1
    assert sum("idempotency-replayed" in r.headers for r in responses) == 9
    assert len(edge.messages) == 1


@pytest.mark.spec("trap-3")
async def test_a_key_without_a_session_always_names_the_same_session(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    await http.post("/v1/jobs", json=BODY, headers={"idempotency-key": "o-1"})
    await http.post("/v1/jobs", json=BODY, headers={"idempotency-key": "o-2"})
    assert [m.session for m in edge.messages] == [keyed_session("default", "o-1"), keyed_session("default", "o-2")]


async def test_a_job_that_was_accepted_is_202_although_it_cannot_be_read_back(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.reads_down = True
    response = await http.post("/v1/jobs", json=BODY | {"session": "s1"})
    assert (response.status_code, response.json()["state"]) == (202, "queued")
    assert [m.job for m in edge.messages] == [response.json()["id"]]


async def test_a_cancel_is_asked_for_and_too_late_once_it_has_ended(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    job = (await http.post("/v1/jobs", json=BODY)).json()["id"]
    response = await http.post(f"/v1/jobs/{job}/cancel")
    assert (response.status_code, response.json()["cancel_requested"]) == (202, True)
    edge.finish(job)
    late = await http.post(f"/v1/jobs/{job}/cancel")
    assert (late.status_code, late.json()["code"]) == (409, "already-finished")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (
            {"state": "failed", "error": {"code": "model_error", "message": "no", "retryable": True, "ref": "r"}},
            ("failed", "model_error", None),
        ),
        ({"state": "cancelled", "cause": "superseded"}, ("cancelled", "superseded", None)),
        ({"state": "succeeded", "merged_into": "job_00bbbbbbbbbbbbbbbb"}, ("succeeded", None, "5")),
    ],
)
async def test_every_end_of_a_job_is_told(
    http: httpx.AsyncClient, edge: FakeEdge, end: dict[str, Any], expected: tuple[str, str | None, str | None]
) -> None:
    job = (await http.post("/v1/jobs", json=BODY)).json()["id"]
    edge.finish(job, **end)
    told = (await http.get(f"/v1/jobs/{job}")).json()
    assert set(told) == JOB_FIELDS
    assert (told["state"], told["stop_reason"], told["text"]) == expected
    assert told["error"] == end.get("error")
    assert told["merged_into"] == end.get("merged_into")


async def test_jobs_are_listed_newest_first_and_may_be_filtered(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    ids = [(await http.post("/v1/jobs", json=BODY | {"session": f"s{n % 2}"})).json()["id"] for n in range(4)]
    for n, job in enumerate(ids):
        edge.write(f"s{n % 2}", log.ACCEPTED, jobs=(job,))
    edge.finish(ids[0])
    listed = (await http.get("/v1/jobs")).json()
    assert (listed["object"], listed["next"]) == ("list", None)
    assert {j["id"] for j in listed["data"]} == set(ids)
    assert [j["id"] for j in (await http.get("/v1/jobs?session=s0")).json()["data"]] == [ids[2], ids[0]]
    assert [j["id"] for j in (await http.get("/v1/jobs?state=succeeded")).json()["data"]] == [ids[0]]
    assert len((await http.get("/v1/jobs?limit=1")).json()["data"]) == 1


async def test_sessions_are_listed_page_by_page(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    for n in range(5):
        edge.session(f"s{n}")
    first = (await http.get("/v1/sessions?limit=3")).json()
    second = (await http.get(f"/v1/sessions?limit=3&before={first['next']}")).json()
    assert [s["id"] for s in first["data"] + second["data"]] == ["s4", "s3", "s2", "s1", "s0"]
    assert second["next"] is None
    assert all(set(s) == SESSION_FIELDS for s in first["data"])


async def test_a_session_says_which_history_it_is_in(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    edge.session("s1", ordinal=2, state="parked", turn="turn_1", paused=True)
    session = (await http.get("/v1/sessions/s1")).json()
    assert (session["store"], session["state"], session["turn"], session["paused"]) == ("s1:new:2", "parked", "turn_1", True)
