"""Approvals from outside, over the real store: who may decide, once, in time; and what the session does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.contract.door import door_of
from tests.protocol.scene import OK, Scene, call
from turnyard.records.approvals import approval_id
from turnyard.records.commit import Answer, NewCall, Note, Park, Say, TurnView
from turnyard.records.log import DECIDED, REQUEST, RESULT
from turnyard.state.sessions import read_session
from turnyard.wire.events import FeedEvent
from turnyard.wire.follow import session_events
from turnyard.wire.yard_edge import YardEdge

pytestmark = pytest.mark.asyncio

ALLOW = {"decision": "allow", "user": "bob"}
MS = 60_000


@pytest.fixture
async def http(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    async with door_of(scene) as client:
        yield client


async def asked(
    scene: Scene, *, kind: Any = "approval", calls: int = 1, session: str = "s", tenant: str = "default", **request: Any
) -> list[str]:
    """A turn of ann's that waits for people; the ids of what it asks."""
    view = await scene.open_turn(await scene.worker(), user="ann", session=session, tenant=tenant)
    body = {"name": "refund", "args": {"order_id": "7", "amount": 120.0}}
    made = [NewCall(call(view, i).id, kind, body, awaited=True) for i in range(calls)]
    view = await scene.commit(view, append=(Say({"text": ""}, tuple(made)),))
    request = {"kind": "question" if kind == "question" else "allow_deny", "reason": "over 100", **request}
    said = tuple(Note(REQUEST, {"call": each.id, **body, "tool": "refund", "expires_in_ms": MS, **request}) for each in made)
    await scene.commit(view, append=said, park=tuple(Park(each.id, MS, request=request) for each in made), ending="park")
    return [approval_id(scene.shard(session, tenant).n, view.store, each.id) for each in made]


async def decide(http: httpx.AsyncClient, approval: str, **body: Any) -> httpx.Response:
    return await http.post(f"/v1/approvals/{approval}", json=body)


async def pending(http: httpx.AsyncClient, **params: Any) -> list[str]:
    return [each["id"] for each in (await http.get("/v1/approvals", params=params)).json()["data"]]


async def goes_on(scene: Scene) -> TurnView:
    """The session's turn is taken up by a worker."""
    return await scene.start(await scene.worker())


@pytest.mark.spec("S17", "rival-21")
async def test_a_pending_approval_is_seen_everywhere_with_who_may_decide_it(scene: Scene, http: httpx.AsyncClient) -> None:
    (ident,) = await asked(scene, approvers=["bob", "fin-*"], self_approve=False)
    shown = (await http.get(f"/v1/approvals/{ident}")).json()
    assert (shown["state"], shown["tool"], shown["args"], shown["user"]) == ("pending", "refund", {"order_id": "7", "amount": 120.0}, "ann")
    assert (shown["approvers"], shown["self_approve"], shown["reason"]) == (["bob", "fin-*"], False, "over 100")
    assert (await http.get("/v1/approvals")).json()["data"] == [shown]
    assert await pending(http, session="s") == [ident]
    (job,) = (await http.get("/v1/jobs", params={"session": "s"})).json()["data"]
    job = (await http.get(f"/v1/jobs/{job['id']}")).json()
    assert (job["state"], [w["kind"] for w in job["waiting_for"]]) == ("waiting", ["approval"])
    brief = {"id": ident, "approvers": ["bob", "fin-*"], "reason": "over 100", "expires_at": shown["expires_at"]}
    assert job["waiting_for"][0]["approval"] == brief
    session = (await http.get("/v1/sessions/s")).json()
    assert (session["state"], [p["approval"] for p in session["parked"]]) == ("parked", [brief])
    why = (await http.get("/v1/sessions/s/explain")).json()
    assert (why["code"], why["facts"]["approval"]) == ("approval", ident)
    assert why["holder"]["who"] == "bob, fin-*, but not whoever asked for it"


@pytest.mark.spec("S17", "runner-14")
async def test_only_an_approver_decides_once_and_it_is_kept_who_did_and_when(scene: Scene, http: httpx.AsyncClient) -> None:
    (ident,) = await asked(scene, approvers=["bob", "fin-*"], self_approve=False)
    for user in ("ann", "eve", "fin", "BOB", "*"):
        refused = await decide(http, ident, decision="allow", user=user)
        assert (refused.status_code, refused.json()["code"]) == (403, "not-approver"), user
    assert await scene.state() == "parked"
    body = {"decision": "allow", "user": "fin-eve", "input": {"order_id": "7", "amount": 80}, "reason": "half"}
    first, again = await decide(http, ident, **body), await decide(http, ident, **body)
    assert (first.status_code, again.status_code, again.json()) == (200, 200, first.json())
    decided = first.json()["decided"]
    assert (decided["by"], decided["scope"], decided["input"], decided["reason"]) == ("fin-eve", "once", body["input"], "half")
    assert decided["at"] is not None
    for other in ({"decision": "deny", "user": "bob"}, {**body, "input": {"order_id": "8", "amount": 80}}):
        second = await decide(http, ident, **other)
        assert (second.status_code, second.json()["code"]) == (409, "already-decided")
        assert "fin-eve" in second.json()["detail"]
    assert await pending(http) == []
    view = await goes_on(scene)
    (row,) = view.rows
    assert (row.state, row.decision, row.decided and row.decided["input"]) == ("allowed", "allow", body["input"])
    assert (await http.get(f"/v1/approvals/{ident}")).json() == first.json()
    await scene.cancel()


@pytest.mark.spec("S17", "runner-14")
@pytest.mark.parametrize("approvers", [[], ["*"], ["ann", "bob"]])
async def test_who_asked_may_not_decide_where_that_is_said_whatever_else_lets_them(
    scene: Scene, http: httpx.AsyncClient, approvers: list[str]
) -> None:
    own, other = await asked(scene, calls=2, approvers=approvers, self_approve=False)
    assert (await decide(http, own, decision="allow", user="ann")).status_code == 403
    assert (await decide(http, own, decision="deny", user="ann")).status_code == 403
    assert (await decide(http, own, **ALLOW)).status_code == 200
    assert (await decide(http, other, decision="deny", user="bob")).status_code == 200
    await scene.cancel()


@pytest.mark.spec("S17", "runner-14")
async def test_of_many_who_decide_at_the_same_time_one_does(scene: Scene, http: httpx.AsyncClient) -> None:
    (ident,) = await asked(scene)
    bodies = [{"decision": "allow" if i % 2 else "deny", "user": f"u{i}"} for i in range(8)]
    answers = await asyncio.gather(*(decide(http, ident, **body) for body in bodies))
    assert sorted(r.status_code for r in answers) == [200] + [409] * 7
    assert [r.type for r in await scene.log()].count(DECIDED) == 1
    await scene.cancel()


@pytest.mark.spec("S17", "L32")
async def test_an_approval_nobody_decides_expires_into_a_result_and_messages_are_accepted_meanwhile(
    scene: Scene, http: httpx.AsyncClient
) -> None:
    (ident,) = await asked(scene)
    other = (await http.post("/v1/jobs", json={"agent": "bot", "input": "me too", "session": "s", "user": "bob"})).json()
    assert other.get("code") == "unknown-agent"  # no worker of this scene published it; the store takes it below
    waiting = await scene.say("me too", user="bob", asker=False)
    await scene.dispatch()
    assert (waiting.code, await scene.state(), await pending(http)) == ("accepted", "parked", [ident])
    await scene.pass_ms(MS)
    late = await decide(http, ident, **ALLOW)
    assert (late.status_code, late.json()["code"]) == (410, "expired")
    await scene.tick()
    assert (await decide(http, ident, **ALLOW)).status_code == 410
    assert (await http.get(f"/v1/approvals/{ident}")).json()["state"] == "timeout"
    view = await goes_on(scene)
    (result,) = [r for r in await scene.log() if r.type == RESULT]
    assert result.outcome == "timeout"
    await scene.reply(view)
    await scene.reply(await scene.open_turn(await scene.worker(), "and now?"))


@pytest.mark.spec("S17")
async def test_what_a_cancelled_turn_asked_can_not_be_decided_any_more(scene: Scene, http: httpx.AsyncClient) -> None:
    (ident,) = await asked(scene)
    await scene.cancel()
    await scene.dispatch()
    refused = await decide(http, ident, **ALLOW)
    assert (refused.status_code, refused.json()["code"]) == (409, "already-decided")
    assert "cancelled" in refused.json()["detail"]
    assert (await http.get(f"/v1/approvals/{ident}")).json()["state"] == "cancelled"
    assert await pending(http) == []


@pytest.mark.spec("S17")
async def test_several_are_decided_in_any_order_each_for_its_own_call(scene: Scene, http: httpx.AsyncClient) -> None:
    idents = await asked(scene, calls=3)
    page = (await http.get("/v1/approvals", params={"limit": 2})).json()
    assert {each["id"] for each in page["data"]} | set(await pending(http, after=page["next"])) == set(idents)
    assert (await decide(http, idents[2], decision="deny", user="bob", reason="no")).status_code == 200
    assert await scene.state() == "parked"
    assert (await decide(http, idents[0], **ALLOW)).status_code == 200
    assert await pending(http) == [idents[1]]
    assert (await decide(http, idents[1], **ALLOW)).status_code == 200
    view = await goes_on(scene)
    assert [row.decision for row in view.rows] == ["allow", "allow"]
    assert [r.outcome for r in await scene.log() if r.type == RESULT] == ["denied"]
    await scene.cancel()


@pytest.mark.spec("S17", "runner-14")
async def test_another_tenant_s_approval_is_neither_seen_nor_decided(scene: Scene, http: httpx.AsyncClient) -> None:
    (ident,) = await asked(scene, tenant="acme")
    assert await pending(http) == []
    assert (await http.get(f"/v1/approvals/{ident}")).status_code == 404
    assert (await decide(http, ident, **ALLOW)).status_code == 404
    assert await scene.state("s", "acme") == "parked"


async def test_a_question_is_answered_in_words_that_the_model_reads(scene: Scene, http: httpx.AsyncClient) -> None:
    (ident,) = await asked(scene, kind="question", options=["Paris", "Berlin"], multi_select=True)
    why = (await http.get("/v1/sessions/s/explain")).json()
    assert (why["code"], why["fix"].partition(";")[0]) == ("question", f"turnyard approvals answer {ident} ANSWER")
    answered = await decide(http, ident, answer=[2, "paris"], user="bob")
    assert (answered.status_code, answered.json()["state"], answered.json()["decided"]["by"]) == (200, "answered", "bob")
    await scene.reply(await goes_on(scene))
    (result,) = [r for r in await scene.log() if r.type == RESULT]
    assert (result.outcome, result.body["content"]) == ("result", "Berlin, Paris")


async def test_followers_hear_what_is_asked_and_what_became_of_it(scene: Scene, http: httpx.AsyncClient) -> None:
    (ident,) = await asked(scene, approvers=["bob"])
    assert (await decide(http, ident, decision="deny", user="bob", reason="no")).status_code == 200
    edge = await YardEdge.start(scene.yard)
    told: dict[str, FeedEvent] = {}
    try:
        async for event in session_events(edge, "s", tenant="default"):
            told[event.event] = event
            if event.event == DECIDED:
                break
    finally:
        await edge.aclose()
    shown = (await http.get(f"/v1/approvals/{ident}")).json()
    request, decided = told[REQUEST].data["data"], told[DECIDED].data["data"]
    assert (request["id"], request["tool"], request["approvers"], request["reason"]) == (ident, "refund", ["bob"], "over 100")
    assert request["expires_at"] == shown["expires_at"]
    assert (decided["id"], decided["allow"], decided["by"], decided["reason"]) == (ident, False, "bob", "no")
    assert told["call/parked"].data["data"]["expires_at"] == shown["expires_at"]
    await scene.cancel()


async def test_after_an_allow_the_session_shows_no_approval_any_more(scene: Scene, http: httpx.AsyncClient) -> None:
    (ident,) = await asked(scene)
    await decide(http, ident, **ALLOW)
    view = await goes_on(scene)
    seen = await read_session(scene.yard, tenant="default", session="s")
    assert seen is not None
    assert seen.parked == []
    (row,) = view.rows
    view = await scene.commit(view, start=(row.call,))
    await scene.reply(await scene.commit(view, append=(Answer(row.call, "result", OK),), claim=True))
    assert (await http.get(f"/v1/approvals/{ident}")).json()["state"] == "allowed"
