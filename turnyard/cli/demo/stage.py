"""The yard that the demo runs on: its own folder, its own server, free ports, every role a process of its own.

Whatever happens, nothing is left behind: no process, no file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncGenerator, Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from turnyard.cli.keeper import Keeper
from turnyard.cli.plan import LOOPBACK, Plan, make_plan, role_environment
from turnyard.cli.state_dir import StateDir, UpFacts
from turnyard.errors import TurnyardError
from turnyard.state import pids
from turnyard.state.embedded import EmbeddedServer, resolve_server, stop_server

if TYPE_CHECKING:
    from turnyard.ports import Clock
    from turnyard.records.manifest import Manifest

WORKERS = ("worker-a", "worker-b")
# A turn that was broken off may have a tool in hand that never ends.
_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A yard that is up. `redis_url` is where its server is, `server` what kind of one."""

    url: str
    redis_url: str
    server: str
    state: StateDir

    @property
    def roles(self) -> list[tuple[str, int]]:
        """Return the name and pid of each role's process as it is now."""
        facts = self.state.facts()
        return [(role.name, role.mark.pid) for role in facts.roles] if facts else []

    @contextlib.contextmanager
    def stopped(self, name: str) -> Generator[int]:
        """Hold a role's process still inside the block."""
        facts = self.state.facts()
        marks = [role.mark for role in facts.roles if role.name == name] if facts else []
        if not marks:
            raise TurnyardError(f"{name} does not run; its log is {self.state.log(name)}")
        pids.send(marks[0], signal.SIGSTOP)
        try:
            yield marks[0].pid
        finally:
            pids.send(marks[0], signal.SIGCONT)


@contextlib.asynccontextmanager
async def raised(app: str, manifests: Iterable[Manifest], folder: Path, clock: Clock) -> AsyncGenerator[Stage]:
    """Put a yard up in `folder` for the length of the block; give it once every role is ready.

    Raises:
        TurnyardError: it did not come up; the message ends with the last lines of the role that failed.
    """
    state = StateDir(folder / "state")
    state.hold()
    _log_to(state.log("demo"))
    config = folder / "turnyard.yaml"
    config.write_text("version: 1\n", encoding="utf-8")
    plan = _with_two_workers(make_plan([app], manifests, host=LOOPBACK, port=0, processes=1))
    try:
        server = await resolve_server(state.root)
        environ = role_environment(plan, redis=server.url, state=state.root, config=config)
        async with _kept(plan, state, server, environ, clock):
            yield Stage(plan.url, server.url, server.kind, state)
    finally:
        # Nobody may cut this short: what is not stopped here stays.
        await asyncio.shield(stop_server(state.root))
        state.release()


def _with_two_workers(plan: Plan) -> Plan:
    """Return the plan with two worker processes in place of one, so that one can hand over to the other."""
    twins = [replace(role, name=name) for role in plan.roles if role.name == "worker" for name in WORKERS]
    others = [role for role in plan.roles if role.name != "worker"]
    return replace(plan, roles=(others[0], *twins, *others[1:]))


@contextlib.asynccontextmanager
async def _kept(plan: Plan, state: StateDir, server: EmbeddedServer, environ: dict[str, str], clock: Clock) -> AsyncGenerator[None]:
    """Keep the roles up inside the block, and end them after it: first asked, then killed."""
    me = pids.mark_of(os.getpid())
    assert me is not None  # noqa: S101 - this process runs
    facts = UpFacts(me, "starting", plan.apps, plan.url, server.url, server.kind, server.durable, plan.agents)
    ready, drain = asyncio.Event(), asyncio.Event()
    keeper = Keeper(plan, state, facts, environ=environ, clock=clock, on_ready=lambda _: ready.set())
    keeping = asyncio.create_task(keeper.run(drain))
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((keeping, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not ready.is_set():
            await keeping
        yield
    finally:
        waiting.cancel()
        drain.set()
        await asyncio.wait((keeping,), timeout=_DRAIN_S)
        keeping.cancel()
        await asyncio.wait((keeping,))


def _log_to(file: Path) -> None:
    """Send this process's own log, that of a role which is started again above all, to a file: the transcript is for people."""
    logging.basicConfig(filename=file, level=logging.INFO, format="%(asctime)s %(name)s %(message)s", force=True)
