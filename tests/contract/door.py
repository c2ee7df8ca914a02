"""The API in this process, over the store of a scene, whose clock the test holds."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import httpx

from platforms.http.app import create_app
from platforms.http.desk import Desk
from platforms.http.options import HttpOptions
from tests.protocol.scene import Scene
from turnyard.clock import SystemClock
from turnyard.wire.yard_edge import YardEdge


@contextlib.asynccontextmanager
async def door_of(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the API for the length of the block."""
    edge = await YardEdge.start(scene.yard)
    try:
        transport = httpx.ASGITransport(create_app(Desk(edge, SystemClock(), HttpOptions())))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield http
    finally:
        await edge.aclose()


async def everything(scene: Scene) -> bytes:
    """Return all that the server holds: each key, each field, each value."""
    found: list[bytes] = []
    for redis in await scene.servers():
        for key in await redis.keys("*"):
            match (await redis.type(key)).decode():
                case "string":
                    value = await redis.get(key)
                case "hash":
                    value = await redis.hgetall(key)
                case "list":
                    value = await redis.lrange(key, 0, -1)
                case "set":
                    value = await redis.smembers(key)
                case "zset":
                    value = await redis.zrange(key, 0, -1, withscores=True)
                case _:
                    value = await redis.execute_command("XRANGE", key, "-", "+")
            found.append(key + b" " + repr(value).encode())
    return b"\n".join(found)
