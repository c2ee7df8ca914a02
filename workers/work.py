"""What a child does for a living, put together from its apps: running turns, or running lifted tasks."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from turnyard.lifted import LiftRunner

from .beside import Beside
from .executor import Executor
from .feed import Feed
from .lifted_worker import LiftedTasks
from .turns import Turns
from .views import Views

if TYPE_CHECKING:
    from turnyard.ports import Clock
    from turnyard.state import fleet
    from turnyard.state.yard import Yard

    from .board import Seats
    from .child import Work
    from .lease import Lease
    from .options import Options
    from .served import Apps


def make_work(options: Options, apps: Apps, seats: Seats, clock: Clock) -> Work:
    """Return the work of a child of this role."""
    return LiftedWork(options, apps, clock) if options.role == "lifted" else TurnWork(options, apps, seats, clock)


class TurnWork:
    """Running turns."""

    def __init__(self, options: Options, apps: Apps, seats: Seats, clock: Clock) -> None:
        self._options = options
        self._apps = apps
        self._seats = seats
        self._clock = clock
        self._feed: Feed | None = None
        self._turns: Turns | None = None
        self._beside: Beside | None = None
        self._stack = AsyncExitStack()

    async def open(self, yard: Yard, lease: Lease) -> dict[str, int]:
        """Open what the apps need and publish their agents; return the serial of each."""
        self._feed = Feed(yard, self._clock)
        self._beside = Beside(yard, lease, self._clock)
        async with AsyncExitStack() as stack:
            # What was opened before the server failed to answer is closed again: the next try opens it anew.
            served = await self._apps.open(stack, yard, self._feed, self._beside, self._clock)
            self._stack = stack.pop_all()
        held: dict[str, Any] = {"current": self._apps.current, "views": Views(), "feed": self._feed, "beside": self._beside}
        executor = Executor(served, lease=lease, clock=self._clock, **held)
        self._turns = Turns(yard, executor, lease, self._clock, seats=self._seats, most=self._options.turns, beside=self._beside)
        return {name: agent.serial for name, agent in served.items()}

    @property
    def _open(self) -> Turns:
        if self._turns is None:
            raise RuntimeError("the work is not open")
        return self._turns

    def enrol(self, registration: fleet.Registration) -> None:
        """Take turns under this name from now on."""
        self._open.enrol(registration)

    async def serve(self, drain: asyncio.Event) -> bool:
        """Run turns until `drain` is set and the last one is handed back."""
        work, feed = self._open, self._feed
        if feed is None:
            return True
        writer = asyncio.create_task(feed.run())
        try:
            return await work.serve(drain)
        finally:
            writer.cancel()

    def drop(self) -> None:
        """Let go of every turn."""
        if self._turns is not None:
            self._turns.drop()

    def news(self, message: dict[str, Any]) -> None:
        """Pass on what the supervisor heard."""
        self._open.news(message)

    def held(self) -> dict[str, list[str]]:
        """Return the sessions, and the calls beside them, in hand, per shard number."""
        return self._turns.held() if self._turns is not None else {}

    async def aclose(self) -> None:
        """Close what the apps opened."""
        await self._stack.aclose()


class LiftedWork:
    """Running lifted tasks."""

    def __init__(self, options: Options, apps: Apps, clock: Clock) -> None:
        self._options = options
        self._apps = apps
        self._clock = clock
        self._tasks: LiftedTasks | None = None
        self._stack = AsyncExitStack()

    async def open(self, yard: Yard, lease: Lease) -> dict[str, int]:
        """Open what the apps need; a child that runs lifted tasks takes no turns."""
        bench = await self._apps.open_bench(self._stack, yard, self._clock)
        self._tasks = LiftedTasks(yard, bench, lease, self._clock)
        return {}

    @property
    def _open(self) -> LiftedTasks:
        if self._tasks is None:
            raise RuntimeError("the work is not open")
        return self._tasks

    def enrol(self, registration: fleet.Registration) -> None:
        """Run tasks under this name from now on."""
        self._open.enrol(registration)

    async def serve(self, drain: asyncio.Event) -> bool:
        """Run tasks until `drain` is set and the last one is done."""
        url = self._options.lifted_redis or self._options.redis
        runners = [
            LiftRunner(url, queue, self._open.run, most=self._options.concurrency, clock=self._clock) for queue in self._options.queues
        ]
        try:
            return await self._open.serve(drain, runners)
        finally:
            for runner in runners:
                await runner.aclose()

    def drop(self) -> None:
        """Let go of every task."""
        if self._tasks is not None:
            self._tasks.drop()

    def news(self, message: dict[str, Any]) -> None:
        """Pass on what the supervisor heard."""
        self._open.news(message)

    def held(self) -> dict[str, list[str]]:
        """Return the calls in hand, per shard number."""
        return self._tasks.held() if self._tasks is not None else {}

    async def aclose(self) -> None:
        """Close what the apps opened."""
        await self._stack.aclose()
