"""Which requests an API without keys takes, and how it says no to what it cannot even read."""

from __future__ import annotations

import httpx
import pytest

from platforms.http.desk import Desk
from platforms.http.guard import stranger
from tests.unit.http.server import served


@pytest.mark.parametrize("name", ["host", "origin"])
@pytest.mark.parametrize("value", ["[::1", "[zz]:1", "http://[::1"])
async def test_a_host_or_origin_that_cannot_be_read_is_a_problem_and_no_failure(http: httpx.AsyncClient, name: str, value: str) -> None:
    answer = await http.get("/v1/jobs", headers={name: value})
    assert answer.status_code == 400
    assert answer.json()["ref"] == answer.headers["request-id"]


async def test_who_sends_far_too_much_is_read_to_the_end_and_gets_the_answer(desk: Desk) -> None:
    async with served(desk) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:
        answer = await client.post("/v1/calls/x", content=b"x" * 8_000_000)
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
        assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("hosts", [[b"evil.example", b"localhost"], [b"localhost", b"evil.example"], [b"evil.example@localhost"], []])
def test_one_host_is_named_and_nothing_beside_it(hosts: list[bytes]) -> None:
    assert stranger({"headers": [(b"host", host) for host in hosts]}) is not None
    assert stranger({"headers": [(b"host", b"localhost:8420")]}) is None
