"""Work for a deployment: sessions that each send a message, wait for its answer, and send the next."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from turnyard.records.ids import new_job_id, session_key, shard_of
from turnyard.records.messages import UserMessage
from turnyard.state.ingress import accept_message
from turnyard.state.jobs import JobWatch
from turnyard.state.yard import Yard


@dataclass(frozen=True)
class Load:
    """What a closed loop did. `sent_commands` are those of the submitter."""

    turns: int
    seconds: float
    sent_commands: int

    @property
    def per_s(self) -> float:
        """Turns per second."""
        return self.turns / self.seconds


async def closed_loop(url: str, agent: str, *, sessions: int = 1000, seconds: float = 8.0, warmup_s: float = 2.0) -> Load:
    """Keep one message under way in each of `sessions` sessions; count the answers after a warm-up."""
    yard = await Yard.open(url)
    watch = await JobWatch.start(yard)
    done = 0
    stop = asyncio.Event()

    async def writer(name: str) -> None:
        nonlocal done
        while not stop.is_set():
            shard = shard_of(session_key("default", name), len(yard.shards))
            job = new_job_id(shard)
            message = UserMessage("default", name, agent, {"text": "hello there"}, job, "h", notify=watch.channel)
            await accept_message(yard, message)
            await watch.ended(job)
            done += 1

    tasks = [asyncio.create_task(writer(f"{agent}-{i}")) for i in range(sessions)]
    await asyncio.sleep(warmup_s)  # noqa: TID251 -- a bench runs in real time
    before, sent, began = done, yard.commands_sent, time.monotonic()
    await asyncio.sleep(seconds)  # noqa: TID251 -- as above
    turns, took, sent = done - before, time.monotonic() - began, yard.commands_sent - sent
    stop.set()
    await asyncio.wait(tasks, timeout=10)
    await watch.aclose()
    await yard.aclose()
    return Load(turns, took, sent)
