"""How many wrong call tokens one address may try."""

from __future__ import annotations

import contextlib

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from platforms.http.app import create_app
from platforms.http.desk import Desk
from platforms.http.options import HttpOptions
from platforms.http.strangers import Strangers
from tests.unit.http.fake_edge import FakeEdge
from tests.unit.http.server import served
from turnyard.errors import RateLimited
from turnyard.records.ids import new_call_token
from turnyard.testing import ManualClock

TOKEN, _ = new_call_token(0, "abc.0", "call_7")
BURST = 3


@pytest.fixture
def options() -> HttpOptions:
    return HttpOptions(wrong_tokens=BURST, wrong_tokens_per_minute=60)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def desk(edge: FakeEdge, options: HttpOptions, clock: ManualClock) -> Desk:
    return Desk(edge, clock, options)


def caller(desk: Desk, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(desk), client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.mark.spec("S6")
@pytest.mark.parametrize("route", ["calls", "outcomes"])
async def test_an_address_whose_tokens_are_wrong_is_slowed_down_and_others_are_not(
    edge: FakeEdge, desk: Desk, clock: ManualClock, route: str
) -> None:
    async with caller(desk, "203.0.113.7") as guesser, caller(desk, "203.0.113.8") as vendor:
        wrong = ["garbage", TOKEN, "x" * 300]
        edge.answers = ["gone"]  # to the one that looks like a token
        assert [(await guesser.post(f"/v1/{route}/{each}", json={"result": 1})).status_code for each in wrong] == [404] * BURST
        asked = len(edge.outcomes)
        refused = await guesser.post(f"/v1/{route}/{TOKEN}", json={"result": 1})
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, "rate-limited", "1")
        assert TOKEN not in refused.text
        assert len(edge.outcomes) == asked  # nothing is read for who is refused
        assert (await vendor.post(f"/v1/{route}/{TOKEN}", json={"result": 1})).status_code == 200
        await clock.advance(1.0)
        assert (await guesser.post(f"/v1/{route}/{TOKEN}", json={"result": 1})).status_code == 200


async def test_right_tokens_cost_nothing(desk: Desk) -> None:
    async with caller(desk, "203.0.113.7") as vendor:
        answers = [await vendor.post(f"/v1/calls/{TOKEN}", content=b"x") for _ in range(BURST * 5)]
    assert {response.status_code for response in answers} == {200}


async def test_the_addresses_of_one_network_share_their_tries(desk: Desk) -> None:
    for i in range(BURST):
        async with caller(desk, f"2001:db8::{i + 1}") as guesser:
            assert (await guesser.post("/v1/calls/garbage", content=b"x")).status_code == 404
    async with caller(desk, "2001:db8::ffff") as guesser, caller(desk, "2001:db8:0:1::1") as neighbour:
        assert (await guesser.post("/v1/calls/garbage", content=b"x")).status_code == 429
        assert (await neighbour.post("/v1/calls/garbage", content=b"x")).status_code == 404


async def test_behind_a_proxy_each_address_has_its_own_tries(desk: Desk) -> None:
    """The proxy of these requests is this machine, which is believed."""
    async with served(desk) as url, httpx.AsyncClient(base_url=url) as proxy:
        for address, status in [*[("203.0.113.7", 404)] * BURST, ("203.0.113.7", 429), ("203.0.113.8", 404)]:
            response = await proxy.post("/v1/calls/garbage", content=b"x", headers={"x-forwarded-for": address})
            assert response.status_code == status


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


@given(st.lists(st.tuples(st.floats(0, 30), st.sampled_from("abc")), max_size=60))
def test_no_address_gets_more_wrong_tries_than_its_burst_and_its_rate(tries: list[tuple[float, str]]) -> None:
    clock = Hand()
    strangers = Strangers(clock, burst=BURST, per_minute=6)
    got = dict.fromkeys("abc", 0)
    for wait_s, address in tries:
        clock.now_s += wait_s
        with contextlib.suppress(RateLimited):
            strangers.check(address)
            strangers.wrong(address)
            got[address] += 1
        assert got[address] <= BURST + clock.now_s / 10 + 1e-6


@given(st.floats(0, 9))
def test_who_waits_as_long_as_it_is_told_may_try_again(early_s: float) -> None:
    clock = Hand()
    strangers = Strangers(clock, burst=1, per_minute=6)
    strangers.wrong("a")
    clock.now_s = early_s
    with pytest.raises(RateLimited) as refused:
        strangers.check("a")
    clock.now_s += refused.value.retry_after_s
    strangers.check("a")


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    strangers = Strangers(ManualClock(), burst=1, per_minute=1)
    for n in range(10_050):
        strangers.wrong(str(n))
    strangers.check("0")  # forgotten, the longest ago
    with pytest.raises(RateLimited):
        strangers.check("10049")
