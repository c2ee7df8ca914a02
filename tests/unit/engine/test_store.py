"""The session in memory does what the store port says."""

from __future__ import annotations

import pytest

from tests.stores import proves_rows
from turnyard.engine.memory import MemorySession
from turnyard.engine.store import MemoryStore
from turnyard.ports import SessionStore
from turnyard.testing import ManualClock
from turnyard.testing.stores import SessionStoreConformance


@proves_rows
class TestMemoryStore(SessionStoreConformance):
    @pytest.fixture(autouse=True)
    def _session(self) -> None:
        self.clock = ManualClock()
        self.session = MemorySession(self.clock, {"tenant": "t", "session": "s"})

    async def open(self) -> SessionStore:
        return MemoryStore(self.session)

    async def pass_ms(self, ms: int) -> None:
        await self.clock.advance(ms / 1000)
