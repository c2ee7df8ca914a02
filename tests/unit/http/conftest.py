"""The API over a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from platforms.http.app import create_app
from platforms.http.desk import Desk
from platforms.http.options import HttpOptions
from tests.unit.http.fake_edge import FakeEdge
from turnyard.blobs import StoreLimits, open_memory
from turnyard.clock import SystemClock


@pytest.fixture
def edge() -> FakeEdge:
    return FakeEdge()


@pytest.fixture
def options() -> HttpOptions:
    return HttpOptions(message_bytes=65_536)


@pytest.fixture
def desk(edge: FakeEdge, options: HttpOptions) -> Desk:
    return Desk(edge, SystemClock(), options, blobs=open_memory(SystemClock(), StoreLimits(max_bytes=2_500_000, per_tenant_files=20)))


@pytest.fixture
async def http(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(desk), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client
