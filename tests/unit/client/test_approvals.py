"""Approvals in the hands of a program: the same over HTTP, over Redis and without an event loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from platforms.http.desk import Desk
from tests.unit.client.conftest import Lossy, lost
from tests.unit.http.fake_edge import FakeEdge
from tests.unit.http.server import served
from turnyard import errors
from turnyard.client import Approval, Client, RedisClient, SyncClient


@pytest.fixture(params=["http", "redis"])
def door(request: pytest.FixtureRequest, client: Client, edge: FakeEdge) -> Client | RedisClient:
    if request.param == "http":
        return client
    direct = RedisClient("redis://unused")
    direct._edge = edge  # pyright: ignore[reportPrivateUsage]
    return direct


async def test_what_waits_is_listed_over_all_pages(door: Client | RedisClient, edge: FakeEdge) -> None:
    made = [edge.ask(f"call_{n:03d}") for n in range(130)]
    ids = sorted(approval.id for approval in made)
    edge.approvals = {name: edge.approvals[name] for name in ids}
    assert [each.id for each in await door.approvals.list(limit=120)] == ids[:120]
    assert [each.id for each in await door.approvals.list(limit=500)] == ids
    with pytest.raises(errors.NotFound):
        await door.approvals.list(session="nobody")


async def test_a_call_is_allowed_with_other_arguments_and_what_was_decided_comes_back(door: Client | RedisClient, edge: FakeEdge) -> None:
    approval = edge.ask(remember="session")
    found = await door.approvals.get(approval.id)
    assert (found.state, found.tool, found.args, found.decided) == ("pending", "refund", {"order_id": "7", "amount": 120.0}, None)
    decided = await door.approvals.allow(approval.id, user="ann", scope="session", input={"amount": 80}, reason="half of it")
    assert isinstance(decided, Approval)
    assert decided.decided is not None
    assert (decided.state, decided.decided.by, decided.decided.scope) == ("allowed", "ann", "session")
    assert decided.decided.input == {"amount": 80}
    assert decided.raw["decided"]["reason"] == "half of it"
    assert await door.approvals.get(approval.id) == decided


async def test_a_call_is_denied_and_a_question_answered(door: Client | RedisClient, edge: FakeEdge) -> None:
    approval, question = edge.ask(), edge.ask("call_2", kind="question", options=("Paris", "Berlin"), multi_select=True)
    assert (await door.approvals.deny(approval.id, user="ann", reason="no")).state == "denied"
    answered = await door.approvals.answer(question.id, [1, "berlin"], user="ann")
    assert answered.decided is not None
    assert answered.decided.answer == ["Paris", "Berlin"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("not_approver", errors.NotApprover),
        ("conflict", errors.AlreadyDecided),
        ("expired", errors.Expired),
        ("gone", errors.NotFound),
    ],
)
async def test_a_refusal_is_the_same_error_through_every_door(
    door: Client | RedisClient, edge: FakeEdge, code: str, error: type[errors.TurnyardError]
) -> None:
    edge.answers = [code]
    with pytest.raises(error):
        await door.approvals.allow(edge.ask().id, user="ann")
    with pytest.raises(errors.NotFound):
        await door.approvals.allow("apr_nothing", user="ann")
    with pytest.raises(errors.InvalidRequest):
        await door.approvals.allow(edge.ask().id, user="ann", scope="session")


async def test_a_decision_whose_answer_was_lost_is_sent_again_and_counts_once(client: Client, wire: Lossy, edge: FakeEdge) -> None:
    approval = edge.ask()
    wire.faults = [lost]
    assert (await client.approvals.allow(approval.id, user="ann")).state == "allowed"
    assert len(edge.verdicts) == 2


async def test_a_newer_server_may_say_more(edge: FakeEdge) -> None:
    shown: dict[str, Any] = Approval.model_validate({**_raw(edge), "colour": "red"}).raw
    assert "colour" not in shown


def _raw(edge: FakeEdge) -> dict[str, Any]:
    from turnyard.wire.views import approval_shape

    return approval_shape(replace(edge.ask(), reason="x")).model_dump(mode="json")


async def test_the_sync_client_decides_too(edge: FakeEdge, desk: Desk) -> None:
    approval, other, question = edge.ask(), edge.ask("call_2"), edge.ask("call_3", kind="question")

    def use(url: str) -> list[str]:
        with SyncClient(url) as client:
            assert len(client.approvals.list()) == 3
            return [
                client.approvals.allow(approval.id, user="ann").state,
                client.approvals.deny(other.id, user="ann", reason="no").state,
                client.approvals.answer(question.id, "blue", user="ann").state,
                client.approvals.get(approval.id).state,
            ]

    async with served(desk) as url:
        assert await asyncio.to_thread(use, url) == ["allowed", "denied", "answered", "allowed"]
