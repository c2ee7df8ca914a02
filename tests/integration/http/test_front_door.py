"""Results of calls as vendors bring them, through the front door: idle, busy, together, twice, late, in any order, or guessed."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.integration.http.conftest import door
from tests.integration.lifted.later_app import LaterApp
from tests.processes import Roles
from tests.servers import private_server
from turnyard.client import Client
from turnyard.testing import wait_until


@dataclass
class House:
    """Where everything is."""

    url: str
    app: LaterApp
    roles: Roles


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A door with its relays, a dispatcher, a worker and a lifted worker, for all tests of this module."""
    roles = Roles(tmp_path_factory.mktemp("front"))
    app = LaterApp(roles.directory)
    with private_server() as redis:
        _, url = door(roles, redis)
        public = {"TURNYARD__PLATFORMS__HTTP__PUBLIC_URL": url}
        roles.dispatcher(redis)
        roles.worker(redis, app.path, "--processes", "1", env=public)
        roles.worker(redis, app.path, "--processes", "1", role="lifted", env=public)
        yield House(url, app, roles)
        roles.end()


@pytest.fixture
async def client(house: House) -> AsyncIterator[Client]:
    """A client, once the agent is published."""
    async with Client(house.url) as client:

        async def published() -> bool:
            return any(agent["name"] == "hello" for agent in await client.agents())

        await wait_until(published, description="the agent to be published", timeout_s=30)
        yield client


def name() -> str:
    return f"n{secrets.token_hex(4)}"


async def results(client: Client, session: str) -> list[str]:
    """What the session's results say, in order; placeholders are left out."""
    found = [e for e in await client.entries(session) if e["type"] == "tool/result"]
    return [str(e["body"].get("content") or e["outcome"]) for e in found if e["outcome"] != "placeholder"]


async def answers(client: Client, session: str) -> int:
    """How often the model has spoken."""
    return sum(e["type"] == "assistant/message" for e in await client.entries(session))


async def vendor_of(house: House, order: str) -> str:
    await wait_until(lambda: house.app.url(order) != "", description="the vendor to be told", timeout_s=30)
    return house.app.url(order)


async def post(url: str, body: Any) -> int:
    async with httpx.AsyncClient() as vendor:
        return (await vendor.post(url, json=body)).status_code


async def idle(client: Client, session: str) -> None:
    async def over() -> bool:
        return (await client.session(session))["state"] == "idle"

    await wait_until(over, description="the session to be idle", timeout_s=30)


@pytest.mark.spec("runner-32")
async def test_a_result_that_comes_while_nothing_runs_is_merged_once_however_often_it_comes(client: Client, house: House) -> None:
    session, order = name(), name()
    job = await client.submit("hello", f"buy {order}", session=session)
    url = await vendor_of(house, order)
    await idle(client, session)
    assert (await client.job(job.id)).data["state"] == "waiting"
    codes = [await post(url, {"result": "part 7"}) for _ in range(3)]
    assert codes == [200, 200, 200]
    assert await post(url, {"result": "part 8"}) == 409
    await job.result(timeout=30)
    assert await results(client, session) == ["part 7"]
    assert await answers(client, session) == 3
    assert await post(url, {"result": "part 7"}) == 200
    assert await post(url, {"error": "out of stock"}) == 409


@pytest.mark.spec("runner-32", "rival-15", "rival-16")
async def test_results_that_come_in_a_busy_turn_are_seen_together_with_what_else_waits_and_cost_one_turn(
    client: Client, house: House
) -> None:
    session, one, two, gate = name(), name(), name(), name()
    first = await client.submit("hello", f"buy {one} buy {two}", session=session)
    urls = [await vendor_of(house, order) for order in (one, two)]
    await idle(client, session)
    busy = await client.submit("hello", f"hold {gate}", session=session)
    before = len(house.app.ran("hold"))
    await wait_until(lambda: len(house.app.ran("hold")) > before - 1 and house.app.ran("hold") != [], description="the turn to be busy")
    assert [await post(url, {"result": f"part {i}"}) for i, url in enumerate(urls)] == [200, 200]
    said = await client.submit("hello", "and this", session=session)
    heard = await answers(client, session)
    assert await results(client, session) == []
    house.app.open(gate)
    for job in (first, busy, said):
        await job.result(timeout=30)
    assert sorted(await results(client, session)) == sorted([f"held {gate}", "part 0", "part 1"])
    # One answer takes in the result of the turn, both parts and the message.
    assert await answers(client, session) == heard + 1


@pytest.mark.spec("runner-32")
async def test_a_result_that_comes_after_its_time_is_told_as_late_and_once(client: Client, house: House) -> None:
    session, order = name(), name()
    job = await client.submit("hello", f"soon {order}", session=session)
    url = await vendor_of(house, order)
    await job.result(timeout=30)
    assert await results(client, session) == ["timeout"]
    assert await post(url, {"result": "part 7"}) == 200
    assert await post(url, {"result": "part 7"}) == 200
    assert await post(url, {"result": "part 8"}) == 409

    async def told() -> bool:
        return await results(client, session) == ["timeout", "part 7"]

    await wait_until(told, description="the late result to be told", timeout_s=30)
    (late,) = [e for e in await client.entries(session) if e["type"] == "tool/result" and e["outcome"] == "result"]
    assert late["late"] is True


async def test_results_in_reverse_order_reach_their_own_calls(client: Client, house: House) -> None:
    session, one, two = name(), name(), name()
    job = await client.submit("hello", f"buy {one} buy {two}", session=session)
    urls = [await vendor_of(house, order) for order in (one, two)]
    assert await post(urls[1], {"result": "the second"}) == 200
    assert await post(urls[0], {"result": "the first"}) == 200
    await job.result(timeout=30)
    entries = await client.entries(session)
    calls = {e["call"]: e["body"]["args"]["name"] for e in entries if e["type"] == "tool/call"}
    found = {calls[e["call"]]: e["body"]["content"] for e in entries if e["type"] == "tool/result" and e["outcome"] == "result"}
    assert found == {one: "the first", two: "the second"}


async def test_a_result_that_comes_after_a_new_beginning_belongs_to_the_history_that_made_the_call(client: Client, house: House) -> None:
    session, order = name(), name()
    job = await client.submit("hello", f"buy {order}", session=session)
    url = await vendor_of(house, order)
    await idle(client, session)
    await client.new(session)
    other = await client.submit("hello", "add one", session=session)
    await other.result(timeout=30)
    assert await post(url, {"result": "part 7"}) == 200
    await job.result(timeout=30)
    assert "part 7" not in await results(client, session)


async def test_a_guessed_or_mangled_token_is_like_none_at_all(client: Client, house: House) -> None:
    session, order = name(), name()
    await client.submit("hello", f"buy {order}", session=session)
    url = await vendor_of(house, order)
    base, _, token = url.rpartition("/")
    guesses = (token[:-8] + "AAAAAAAA", token[8:], token[::-1], "x", "apr_" + token, token + "A")
    codes = {await post(f"{base}/{guess}", {"result": "mine"}) for guess in guesses}
    assert codes <= {404, 429}
    assert 404 in codes
    assert await results(client, session) == []


async def test_a_vendor_may_answer_before_its_call_is_parked_and_the_tool_reads_it(client: Client, house: House) -> None:
    session = name()
    house.app.open("hold")
    job = await client.submit("hello", f"order w{session}", session=session)
    await wait_until(lambda: house.app.token() != "", description="the vendor to have the token", timeout_s=30)
    base = house.url + "/v1/calls/"
    assert await post(base + house.app.token(), {"state": "paid"}) == 200
    assert await post(base + house.app.token(), {"state": "sent", "part": "part 7"}) == 200
    house.app.open("go")
    await job.result(timeout=30)
    assert await results(client, session) == ["part 7"]


async def test_how_far_a_call_is_stands_in_its_session_and_in_explain_and_the_model_never_reads_it(client: Client, house: House) -> None:
    session, gate = name(), name()
    job = await client.submit("hello", f"render {gate}", session=session)

    async def seen() -> bool:
        return "half way" in str(await client.explain(session)) and "half way" in str((await client.session(session))["parked"])

    await wait_until(seen, description="the progress to be seen", timeout_s=30)
    house.app.open(gate)
    await job.result(timeout=30)
    assert "half way" not in str(await client.entries(session))
