"""Scenes for every test of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.protocol.scene import Scene


@pytest_asyncio.fixture
async def scene(clean: str) -> AsyncIterator[Scene]:
    """An empty deployment of one shard."""
    scene = await Scene.open(clean)
    yield scene
    await scene.close()


@pytest_asyncio.fixture
async def three_shards(clean: str) -> AsyncIterator[Scene]:
    """An empty deployment of three shards."""
    scene = await Scene.open(clean, shards=3)
    yield scene
    await scene.close()
