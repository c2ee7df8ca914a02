"""One worker child: from its first breath to handing everything back.

The supervisor says who the child is; the child registers under that name, shows on the board that its loop comes
round, and drops everything when it is given a new name. It stops taking on SIGTERM or when its supervisor is gone,
finishes the steps in hand, and leaves in order, so that no lease has to lapse.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from turnyard import lifecycle, telemetry
from turnyard.backoff import Backoff
from turnyard.clock import SystemClock
from turnyard.errors import ConfigError, StoreUnavailable, Unsupported
from turnyard.opening import open_yard
from turnyard.state import fleet
from turnyard.state.shares import first_parts
from turnyard.state.witness import Witness
from turnyard.tools.runtime import THREAD

from .board import Board, Line
from .lease import Lease
from .link import Link, read_line
from .options import Options, options_from
from .remains import MARK, end_family
from .served import Apps
from .work import make_work

if TYPE_CHECKING:
    from turnyard.ports import Clock
    from turnyard.state.yard import Yard

log = logging.getLogger("turnyard.workers")

EXIT_CONFIG = 3
EXIT_UNSUPPORTED = 4  # told to the supervisor alone: the deployment is not for this version any more
_COLLECT_AFTER = 10_000
EXIT_UNFINISHED = 1
_AGAIN_S = 0.5
_TICK_S = 0.25
_MOST_THREADS = 64
_THREADS_GRACE_S = 1.0
_LOOK_AGAIN_S = 0.01
_HELD_EVERY_TICKS = 4
_IDLE_S = 5.0


class Work(Protocol):
    """What a child does for a living: run turns, or run lifted tasks."""

    async def open(self, yard: Yard, lease: Lease) -> dict[str, int]:
        """Get ready; return the serial of each agent this child takes turns of."""
        ...

    def enrol(self, registration: fleet.Registration) -> None:
        """Take work under this name from now on."""
        ...

    async def serve(self, drain: asyncio.Event) -> bool:
        """Work until `drain` is set and nothing is in hand; return False when something had to be left behind."""
        ...

    def drop(self) -> None:
        """Let go of everything at once: another incarnation may have it already."""
        ...

    def news(self, message: dict[str, Any]) -> None:
        """Take in what the supervisor heard from the server: strangers and cancels."""
        ...

    def held(self) -> dict[str, list[str]]:
        """Return what is in hand, per shard number."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and of what the app's lifespan opened."""
        ...


class ChildProcess:
    """The life of one child around its work."""

    def __init__(self, options: Options, work: Work, line: Line, clock: Clock) -> None:
        self._options = options
        self._work = work
        self._line = line
        self._clock = clock
        self._drain = asyncio.Event()
        self._listens = False
        self._lease = Lease(line, clock)
        self._agents: dict[str, int] = {}

    async def run(self, sock: socket.socket, owner: str) -> int:
        """Live; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._drain.set)
        # For what the app hands to threads by itself; the bodies of plain functions have threads of their own.
        threads = ThreadPoolExecutor(_MOST_THREADS)
        loop.set_default_executor(threads)
        link = await Link.over(sock)
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._ticks(link))]
            yard = await open_yard(
                self._options.redis, role=f"{self._options.role} child", clock=self._clock, stop=self._drain, schemas=self._options.schemas
            )
            finished = yard is None
            if yard is not None:
                try:
                    finished = await self._live(owner, yard, link, group, helpers)
                finally:
                    await self._work.aclose()
                    await yard.aclose()
            for helper in helpers:
                helper.cancel()
        link.close()
        code = 0 if finished else EXIT_UNFINISHED
        if not await self._end_of(threads):
            # A tool's thread that nobody waits for any more would keep the process alive as long as it likes.
            logging.shutdown()
            os._exit(code)
        return code

    async def _end_of(self, threads: ThreadPoolExecutor) -> bool:
        """Wait a moment for the threads of the app and of plain functions; return whether all of them are done."""
        ending = Thread(target=threads.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        ending.start()
        until_s = self._clock.monotonic() + _THREADS_GRACE_S
        while (busy := ending.is_alive() or _tool_threads()) and self._clock.monotonic() < until_s:
            await self._clock.sleep(_LOOK_AGAIN_S)
        return not busy

    async def _live(self, owner: str, yard: Yard, link: Link, group: asyncio.TaskGroup, helpers: list[asyncio.Task[None]]) -> bool:
        """Work under this name and those that follow it; return whether everything was handed back."""
        while not self._drain.is_set():
            try:
                self._agents = await self._work.open(yard, self._lease)
                break
            except StoreUnavailable:
                await self._clock.sleep(_AGAIN_S)
        if self._drain.is_set():
            return True
        if not await self._enrol(owner, yard, link):
            return False
        _settle_memory()
        witness = Witness(yard)
        witness.name(owner)
        helpers.append(group.create_task(witness.run()))
        helpers.append(group.create_task(self._listen(yard, link, witness)))
        self._listens = True
        helpers.append(group.create_task(self._leave_when_idle()))
        try:
            finished = await self._work.serve(self._drain)
        finally:
            await witness.aclose()
        if finished:
            try:
                for shard in yard.shards:
                    await fleet.leave(shard, self._lease.owner)
            except StoreUnavailable:
                return False
            link.send(left=True)
        return finished

    async def _enrol(self, owner: str, yard: Yard, link: Link) -> bool:
        """Register under this name and tell the supervisor, which beats for it from then on; False when told to stop first."""
        timing = self._options.timing
        registration = self._registration(owner, yard)
        rooms = first_parts(registration.capacity, len(yard.shards), owner)
        backoff = Backoff()
        while not self._drain.is_set():
            began = self._clock.monotonic()
            try:
                for shard, room in zip(yard.shards, rooms, strict=True):
                    await fleet.register(shard, replace(registration, capacity=room), lease_ms=round(timing.lease_s * 1000))
                break
            except StoreUnavailable:
                await self._clock.sleep(backoff.next_s())
        else:
            return False
        self._line.valid_until = began + timing.lease_s - timing.margin_s
        self._work.enrol(registration)
        self._lease.hold(owner)
        link.send(enrolled=owner, held={})
        return True

    def _registration(self, owner: str, yard: Yard) -> fleet.Registration:
        return fleet.Registration(
            owner=owner,
            role=self._options.role,
            host=socket.gethostname(),
            pid=os.getpid(),
            supervisor_pid=os.getppid(),
            pools=self._options.served,
            agents=self._agents,
            capacity=self._options.turns,
            schemas=yard.schemas,
        )

    async def _listen(self, yard: Yard, link: Link, witness: Witness) -> None:
        while (message := await link.receive()) is not None:
            if "owner" in message:
                self._lease.let_go()
                self._work.drop()
                if await self._enrol(message["owner"], yard, link):
                    witness.name(message["owner"])
            else:
                self._work.news(message)
        if not self._drain.is_set():
            log.warning("the supervisor is gone: handing everything back while the lease stands")
            self._drain.set()
        # Nobody renews the lease any more: what is not handed back by its end is somebody else's.
        await self._clock.sleep(max(0.0, self._line.valid_until - self._clock.monotonic()))
        if MARK in os.environ:
            end_family(os.environ[MARK])
        os._exit(EXIT_UNFINISHED)

    async def _leave_when_idle(self) -> None:
        """End a child that was started for suspects when there are none any more."""
        busy_s = self._clock.monotonic()
        while self._options.isolation and not self._drain.is_set():
            await self._clock.sleep(_TICK_S)
            if self._work.held():
                busy_s = self._clock.monotonic()
            elif self._clock.monotonic() - busy_s > _IDLE_S:
                self._drain.set()

    async def _ticks(self, link: Link) -> None:
        count = 0
        while True:
            self._line.tick = self._clock.monotonic()
            if not self._listens and link.hung_up:
                # Nobody would hear that the supervisor is gone, and a start may wait for its server without end.
                self._drain.set()
            if count % _HELD_EVERY_TICKS == 0:
                link.send(held=self._work.held())
            count += 1
            await self._clock.sleep(_TICK_S)


def _tool_threads() -> bool:
    """Tell whether a plain function is still running, as one does that was cut off at its time limit."""
    return any(thread.name == THREAD for thread in threading.enumerate())


def _settle_memory() -> None:
    """Take what was loaded at start out of the collector's sight, and let it run less often.

    A busy child makes thousands of short-lived records a second, none of them in cycles; by default the collector looks
    at every 700th of them, and at all modules with it: a fifth of the child's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)


def main(argv: list[str]) -> int:
    """Run a child that a supervisor started: `argv` names the socket and the board."""
    sock = socket.socket(fileno=int(argv[1]))
    board_fd = int(argv[2])
    sock.set_inheritable(False)
    os.set_inheritable(board_fd, False)
    asked = read_line(sock)
    if asked is None:
        return 0
    telemetry.setup(role=asked["options"]["role"])
    try:
        apps = Apps.load(options_from(asked["options"]))
        # From here on it is a spare, until its supervisor needs a child or is gone.
        named = read_line(sock)
        return 0 if named is None else _live(sock, board_fd, named, apps)
    except ConfigError as error:
        return _unusable(error)
    except ExceptionGroup as group:
        # What the app turns out to lack once it is opened comes out of the group of this child's tasks.
        faults = group.subgroup(ConfigError)
        if faults is None:
            raise
        return _unusable(_first(faults))


def _live(sock: socket.socket, board_fd: int, named: dict[str, Any], apps: Apps) -> int:
    options, clock = options_from(named["options"]), SystemClock()
    line = Board(board_fd, options.lines, seats=options.seats).line(named["slot"])
    work = make_work(options, apps, line.seats, clock)
    return lifecycle.run(ChildProcess(options, work, line, clock).run(sock, named["owner"]))


def _first(group: BaseExceptionGroup[ConfigError]) -> ConfigError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _unusable(error: ConfigError) -> int:
    log.error("stopped: %s", error)
    return EXIT_UNSUPPORTED if isinstance(error, Unsupported) else EXIT_CONFIG


if __name__ == "__main__":
    sys.exit(main(sys.argv))
