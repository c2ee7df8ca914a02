"""A client of the API over a store in memory, and a way to lose answers on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from platforms.http.app import create_app
from platforms.http.desk import Desk
from platforms.http.options import HttpOptions
from tests.unit.http.fake_edge import FakeEdge
from turnyard.client import Client
from turnyard.clock import SystemClock


class Hasty:
    """A clock on which sleeping takes no time but is counted."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._real = SystemClock()

    def now_ms(self) -> int:
        return self._real.now_ms()

    def monotonic(self) -> float:
        return self._real.monotonic() + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self._real.sleep(0)


class Lossy(httpx.AsyncBaseTransport):
    """Carries requests to an app; `faults` are taken in order: what happens to a request instead, or to its answer."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.faults: list[Callable[[httpx.Request, httpx.Response], httpx.Response]] = []
        self.unreachable = 0
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.unreachable:
            self.unreachable -= 1
            raise httpx.ConnectError("refused")
        response = await self.inner.handle_async_request(request)
        return self.faults.pop(0)(request, response) if self.faults else response


def lost(request: httpx.Request, _: httpx.Response) -> httpx.Response:
    raise httpx.ReadError("reset", request=request)


def away(request: httpx.Request, _: httpx.Response) -> httpx.Response:
    return httpx.Response(503, headers={"retry-after": "7"}, json={"code": "redis-unavailable", "detail": "away"}, request=request)


@pytest.fixture
def edge() -> FakeEdge:
    return FakeEdge()


@pytest.fixture
def desk(edge: FakeEdge) -> Desk:
    return Desk(edge, SystemClock(), HttpOptions())


@pytest.fixture
def wire(desk: Desk) -> Lossy:
    return Lossy(httpx.ASGITransport(create_app(desk), raise_app_exceptions=False))


@pytest.fixture
def clock() -> Hasty:
    return Hasty()


@pytest.fixture
async def client(wire: Lossy, clock: Hasty) -> AsyncIterator[Client]:
    async with Client("http://localhost", transport=wire, clock=clock) as client:
        yield client
