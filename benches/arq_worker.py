"""The same work as an arq job: a lock per session, one write per step, the lock given back, the end announced.

`python -m benches.arq_worker URL default|tuned` is one worker process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from arq import Retry
from arq.connections import RedisSettings
from arq.worker import Worker, func

from benches.stamps import Stamps

LOCK_MS = 10_000
CHANNEL = "arq:bench:done"
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
SAID = "Well said."
TUNED: dict[str, Any] = {"poll_delay": 0.01, "max_jobs": 100, "keep_result": 0}


def settings(url: str) -> RedisSettings:
    """Return arq's settings for a server on a unix socket."""
    return RedisSettings(unix_socket_path=urlsplit(url).path)


async def turn(ctx: dict[str, Any], session: str, text: str, steps: int) -> None:
    """Do what a turn does, as far as arq users do it by hand: nobody else writes to the session meanwhile."""
    redis, token = ctx["redis"], ctx["job_id"]
    lock = f"arq:bench:lock:{session}"
    if not await redis.set(lock, token, nx=True, px=LOCK_MS):
        raise Retry(defer=0.01)
    try:
        ctx["stamps"].write(text, "start", time.monotonic_ns())
        await redis.rpush(f"arq:bench:log:{session}", text, SAID)
        for _ in range(steps - 1):
            await redis.rpush(f"arq:bench:log:{session}", SAID)
    finally:
        await redis.eval(RELEASE, 1, lock, token)
    await redis.publish(CHANNEL, token)


async def serve(url: str, options: dict[str, Any]) -> None:
    """Run jobs until killed."""
    worker = Worker([func(turn, name="turn")], redis_settings=settings(url), handle_signals=False, ctx={"stamps": Stamps()}, **options)
    await worker.async_run()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], TUNED if sys.argv[2] == "tuned" else {}))
