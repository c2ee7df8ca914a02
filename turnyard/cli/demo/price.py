"""What a short turn costs the server, and whether the yard is sound at the end.

Commands are counted by MONITOR, which tells those of clients from those inside scripts. What the idle yard sends is
measured first and taken off.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any, cast

import orjson
from redis import exceptions as rx

from turnyard.cli.demo.studio import AGENT
from turnyard.state.connection import connect

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from turnyard.cli.demo.scene import Scene

TURNS = 50
_IDLE_S = 1.0
_SETTLE_S = 0.3


async def show_price(scene: Scene) -> None:
    """Run some short turns, and note how many commands of clients each of them took."""
    scene.tell.chapter(f"5 · {TURNS} users say hello, and the yard is examined")
    redis = connect(scene.stage.redis_url)
    try:
        async with _Counter(redis) as counter:
            started = scene.clock.monotonic()
            await scene.clock.sleep(_IDLE_S)
            idle_per_s = counter.sent / (scene.clock.monotonic() - started)
            before, started = counter.sent, scene.clock.monotonic()
            await _hellos(scene)
            await scene.clock.sleep(_SETTLE_S)
            spent = counter.sent - before - idle_per_s * (scene.clock.monotonic() - started)
        scene.figures["commands per turn"] = f"{spent / TURNS:.1f} sent by clients, over {TURNS} short turns; idle traffic taken off"
    except rx.RedisError:
        scene.figures["commands per turn"] = f"not known: this server ({scene.stage.server}) does not tell"
    finally:
        await redis.aclose()


async def _hellos(scene: Scene) -> None:
    started = scene.clock.monotonic()
    answers = await asyncio.gather(*(scene.client.run(AGENT, "Hello", session=f"hello-{n}") for n in range(TURNS)))
    said = sum(answer["text"] == "Hello!" for answer in answers)
    scene.tell.line("yard", f"{said} answers in {scene.clock.monotonic() - started:.2f} s")
    scene.tell.check("every hello is answered", said == TURNS, seen=f"{said} of {TURNS}")


class _Counter:
    """Counts what clients send to a server."""

    def __init__(self, redis: Redis) -> None:
        self._monitor = redis.monitor()
        self.sent = 0

    async def __aenter__(self) -> _Counter:
        await self._monitor.__aenter__()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        await self._monitor.__aexit__()

    async def _read(self) -> None:
        while True:
            command = cast("dict[str, Any]", await self._monitor.next_command())
            self.sent += command["client_type"] != "lua"


async def examine(scene: Scene) -> None:
    """Have `turnyard doctor` look at every session."""
    command = [sys.executable, "-m", "turnyard.cli", "doctor", "--json", "--redis", scene.stage.redis_url]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await process.communicate()
    try:
        findings = orjson.loads(out)["findings"]
    except (orjson.JSONDecodeError, KeyError):
        findings = [{"session": "-", "invariant": "doctor", "detail": err.decode(errors="replace").strip()}]
    seen = "; ".join(f"{f['session']}: {f['invariant']} {f['detail']}" for f in findings) or "nothing is broken"
    scene.figures["doctor"] = seen
    scene.tell.check("`doctor` finds nothing", process.returncode == 0 and not findings, seen=seen)
