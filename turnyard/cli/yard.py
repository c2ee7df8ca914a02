"""What `up` does once it knows what to start: server first, then the roles, then watching."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from turnyard.backoff import Backoff
from turnyard.cli.keeper import Keeper
from turnyard.cli.log_tail import Tail
from turnyard.cli.output import say
from turnyard.cli.plan import role_environment
from turnyard.cli.state_dir import StateDir, UpFacts
from turnyard.clock import SystemClock
from turnyard.errors import TurnyardError
from turnyard.lifecycle import SIGNALS
from turnyard.state import pids
from turnyard.state.embedded import EmbeddedServer, resolve_server, running_server, stop_server
from turnyard.state.links import Links
from turnyard.state.target import parse_target, safe_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from turnyard.cli.plan import Plan
    from turnyard.ports import Clock
    from turnyard.settings import Settings

WATCH_EVERY_S = 0.5
SERVER_EVERY_S = 0.5
WATCHED = frozenset({".py", ".yaml", ".yml", ".md"})
SKIPPED = frozenset({"node_modules", "__pycache__"})

log = logging.getLogger("turnyard.keeper")


async def keep_yard(
    plan: Plan,
    state: StateDir,
    settings: Settings,
    config: Path | None,
    *,
    on_ready: Callable[[UpFacts], None],
    reload: bool = False,
    show_logs: bool = False,
) -> None:
    """Keep a yard up until SIGTERM or SIGINT, and leave nothing running.

    Raises:
        TurnyardError: the server or a role could not be started; the message says why.
    """
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    drain, clock = asyncio.Event(), SystemClock()
    # A terminal that closes ends what was started at it, save where nohup asked otherwise: the roles never hear of it.
    gone = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    for number in (*SIGNALS, *gone):
        asyncio.get_running_loop().add_signal_handler(number, drain.set)
    async with _server(state, settings) as server:
        environ = role_environment(plan, redis=server.url, state=state.root, config=config)
        facts = _facts(plan, server)
        keeper = Keeper(plan, state, facts, environ=environ, clock=clock, on_ready=on_ready)
        aides: list[asyncio.Task[None]] = []
        if show_logs:
            tail = Tail([(role.name, state.log(role.name)) for role in plan.roles])
            aides.append(asyncio.create_task(tail.run(clock)))
        if server.pid is not None and server.durable:
            aides.append(asyncio.create_task(_keep_server(state, clock)))
        if reload:
            aides.append(asyncio.create_task(_reload_on_change(keeper, plan, clock)))
        try:
            await keeper.run(drain)
        finally:
            for aide in aides:
                aide.cancel()
            await asyncio.gather(*aides, return_exceptions=True)
            state.clear()


@contextlib.asynccontextmanager
async def _server(state: StateDir, settings: Settings) -> AsyncGenerator[EmbeddedServer]:
    server = await resolve_server(state.root, redis_url=settings.redis.connection_url())
    links = Links(parse_target(server.url))
    try:
        await links.check()
        await links.aclose()
        yield server
    finally:
        await links.aclose()
        if server.started:
            await stop_server(state.root)


async def _keep_server(state: StateDir, clock: Clock) -> None:
    """Start this directory's server again when it died: its socket is the same, and so is what it had stored.

    The roles wait for it by themselves. One that holds everything in memory is not started again: it would be empty.
    """
    backoff = Backoff(first_s=0.5, most_s=30.0)
    while True:
        await clock.sleep(SERVER_EVERY_S)
        if running_server(state.root) is not None:
            backoff.reset()
            continue
        log.warning("the server ended and is started again; see %s", state.log("server"))
        try:
            await resolve_server(state.root)
        except TurnyardError as error:
            log.warning("%s", error)
            await clock.sleep(backoff.next_s())


def _facts(plan: Plan, server: EmbeddedServer) -> UpFacts:
    me = pids.mark_of(os.getpid())
    assert me is not None  # noqa: S101 - this process runs
    named = {"external": safe_url(server.url), "fake": "fake", "redis": "embedded redis", "valkey": "embedded valkey"}
    return UpFacts(me, "starting", plan.apps, plan.url, safe_url(server.url), named[server.kind], server.durable, plan.agents)


async def _reload_on_change(keeper: Keeper, plan: Plan, clock: Clock) -> None:
    folders = watched_folders(plan.apps)
    before = await asyncio.to_thread(times, folders)
    while True:
        await clock.sleep(WATCH_EVERY_S)
        now = await asyncio.to_thread(times, folders)
        if now != before:
            changed = sorted({path.name for path, _ in now.items() ^ before.items()})
            say(f"changed: {', '.join(changed)}")
            before = now
            await keeper.reload()


def watched_folders(apps: Sequence[str]) -> set[Path]:
    """Return where the source of these apps is: here, and beside each file that was named as one."""
    return {Path.cwd(), *(Path(spec.rpartition(":")[0]).absolute().parent for spec in apps if ".py:" in spec)}


def times(folders: set[Path]) -> dict[Path, int]:
    """Return when each watched file below the folders was last changed; environments and hidden folders are skipped."""
    found: dict[Path, int] = {}
    for folder in folders:
        for here, inside, files in os.walk(folder):
            inside[:] = [d for d in inside if not d.startswith(".") and d not in SKIPPED and not (Path(here) / d / "pyvenv.cfg").exists()]
            for name in files:
                path = Path(here) / name
                if path.suffix in WATCHED:
                    with contextlib.suppress(OSError):
                        found[path] = path.stat().st_mtime_ns
    return found
