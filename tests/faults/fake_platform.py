"""`python -m tests.faults.fake_platform URL`: accept each message that is read from standard input, as a chat platform does.

A line is `SESSION JOB TEXT`; `JOB CODE` is answered when it is accepted. Who gets no answer sends the same line again:
the job is the key.
"""

from __future__ import annotations

import asyncio
import sys

from turnyard.clock import SystemClock
from turnyard.errors import StoreUnavailable
from turnyard.records.ids import body_hash
from turnyard.records.messages import UserMessage
from turnyard.state.ingress import accept_message
from turnyard.state.yard import Yard


async def submit(yard: Yard, line: str) -> str:
    """Accept one line; return what to answer."""
    session, job, text = line.split(" ", 2)
    message = UserMessage(
        "default", session, "golden", {"text": text}, job, body_hash(text.encode()), platform="fake", complete_when="settled"
    )
    while True:
        try:
            accepted = await accept_message(yard, message)
        except StoreUnavailable:
            await SystemClock().sleep(0.1)
        else:
            return f"{job} {accepted.code}"


async def main(url: str) -> None:
    """Serve standard input."""
    yard = await Yard.open(url)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(await submit(yard, line.rstrip("\n")), flush=True)
    await yard.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
