"""The session in Redis does what the store port says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from tests.protocol.scene import Scene
from tests.stores import proves_rows
from turnyard.ports import SessionStore
from turnyard.state.store import open_store
from turnyard.testing.stores import SessionStoreConformance


@proves_rows
class TestRedisStore(SessionStoreConformance):
    @pytest_asyncio.fixture(autouse=True)
    async def _deployment(self, scene: Scene) -> AsyncIterator[None]:
        self.scene = scene
        async with AsyncExitStack() as self.stack:
            yield

    async def open(self) -> SessionStore:
        return await self.stack.enter_async_context(open_store(self.scene.yard, tenant="default", session="s", agent="bot"))

    async def pass_ms(self, ms: int) -> None:
        await self.scene.pass_ms(ms)
