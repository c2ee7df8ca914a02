"""The same scripts driven by a bare loop: no engine, no provider, no supervisor. What nothing of ours can beat.

`python -m benches.floor URL plain|tool` takes turns and commits constant changes; `python -m benches.floor URL dispatch`
drains and admits.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from typing import Any

import orjson
import uvloop

from benches.stamps import Stamps
from turnyard.records.ids import new_owner_id, new_turn_id
from turnyard.state import fleet, flows
from turnyard.state.yard import Shard, Yard

CONCURRENCY = 500
AGENTS = {"plain": 1, "tool": 1, "stamped": 1}
SAID = orjson.dumps({"text": "Well said."})
ARGS = orjson.dumps({"name": "add", "args": {"a": 2, "b": 3}})
RESULT = orjson.dumps({"content": "5", "is_error": False})


def _change(**parts: Any) -> bytes:
    return orjson.dumps({"ending": "none", "serial": 1, **parts})


FINISH = _change(ending="finish", append=[{"t": "say", "b": 1}])


class Worker:
    """Runs turns as fast as the scripts allow."""

    def __init__(self, shard: Shard, owner: str, *, tool: bool) -> None:
        self.stamps = Stamps()
        self.shard = shard
        self.owner = owner
        self.tool = tool
        self.free = CONCURRENCY
        self.room = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()

    async def turn(self, session: str, epoch: int) -> None:
        """Begin, commit one to three steps, end."""
        reply = await self.shard.run("begin", session, epoch, self.owner, new_turn_id(), 1, "", 0, "")
        while reply[0] == b"OK" and reply[1][6]:
            k, base, turn = int(reply[1][1]), int(reply[1][18]), reply[1][2]
            head: tuple[Any, ...] = (session, epoch, self.owner)
            if self.stamps.on:
                self.stamps.write(str(reply[3]), "start", time.monotonic_ns())
            if self.tool:
                call = f"call_{turn.decode()[5:]}"
                first = _change(append=[{"t": "say", "b": 1, "calls": [{"id": call, "k": "plain", "aw": 0, "i": 1, "b": 2}]}], start=[call])
                await self.shard.run("commit", *head, k + 1, base, new_turn_id(), first, SAID, ARGS)
                second = _change(append=[{"t": "answer", "c": call, "o": "result", "b": 1}], claim=True)
                reply = await self.shard.run("commit", *head, k + 2, base + 2, new_turn_id(), second, RESULT)
                k, base = k + 2, int(reply[1][18])
            reply = await self.shard.run("commit", *head, k + 1, base, new_turn_id(), FINISH, SAID)
        self.free += 1
        self.room.set()

    async def serve(self, lists: fleet.Lists) -> None:
        """Take what comes."""
        while True:
            if self.free <= 0:
                self.room.clear()
                await self.room.wait()
            for item in await fleet.take(self.shard, lists, free=self.free, block_ms=1000):
                if isinstance(item, fleet.Assignment):
                    self.free -= 1
                    task = asyncio.create_task(self.turn(item.session, item.epoch))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)


async def work(url: str, *, tool: bool) -> None:
    """Be a worker."""
    yard = await Yard.open(url)
    shard = yard.shards[0]
    owner = new_owner_id()
    reg = fleet.Registration(owner, "worker", socket.gethostname(), os.getpid(), os.getppid(), ("default",), AGENTS, CONCURRENCY)
    await fleet.register(shard, reg, lease_ms=600_000)
    await Worker(shard, owner, tool=tool).serve(fleet.Lists(reg))


async def dispatch(url: str) -> None:
    """Be the dispatcher."""
    yard = await Yard.open(url)
    while True:
        if await flows.wait_ingress(yard.shards[0]):
            while (await flows.dispatch(yard.shards[0])).left:
                pass


if __name__ == "__main__":
    uvloop.run(dispatch(sys.argv[1]) if sys.argv[2] == "dispatch" else work(sys.argv[1], tool=sys.argv[2] == "tool"))
