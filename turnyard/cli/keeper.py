"""Who keeps the roles of a one-machine yard running, from the first start to the last exit.

Until every role is ready, one that ends makes the whole start fail, with its own words. After that a role that ends
is started again. A signal lets all of them finish what they have in hand; whoever takes longer than the grace is
killed, which costs nothing but time: what it ran is taken up by the next yard.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from turnyard.backoff import Backoff
from turnyard.cli.plan import LOOPBACK, Plan, RolePlan, free_port
from turnyard.cli.state_dir import RoleFacts, StateDir, UpFacts
from turnyard.errors import ConfigError, StoreUnavailable, TurnyardError
from turnyard.lifecycle import CONFIG, UNREACHABLE
from turnyard.state import pids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from turnyard.ports import Clock

READY_WITHIN_S = 60.0
POLL_S = 0.1
# A role that ran for so long did not fail at its start, so its next start is not put off.
STEADY_S = 30.0
GRACE_S = 150.0
ANSWER_WITHIN_S = 2.0
LAST_LINES = 15

log = logging.getLogger("turnyard.keeper")


class Role:
    """One process of the yard, and the log it writes."""

    def __init__(self, plan: RolePlan, process: asyncio.subprocess.Process, health_port: int, log_file: Path) -> None:
        self.plan = plan
        self.process = process
        self.health_port = health_port
        self.log_file = log_file
        self.mark = pids.mark_of(process.pid)
        self.retired = False

    @classmethod
    async def start(cls, plan: RolePlan, log_file: Path, environ: Mapping[str, str]) -> Role:
        """Start it in a session of its own, so that Ctrl-C at our terminal is ours alone."""
        port = free_port()
        with log_file.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *plan.command(port), stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, env=dict(environ), start_new_session=True
            )
        return cls(plan, process, port, log_file)

    @property
    def running(self) -> bool:
        """Tell whether the process has not ended."""
        return self.process.returncode is None

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            if self.running:
                self.process.send_signal(number)

    async def ready(self) -> bool:
        """Ask whether it takes work."""
        return await fetch(self.health_port, "/readyz") is not None


class Keeper:
    """The roles of one plan. `on_ready` is called once, when all of them are ready and the agents are published."""

    def __init__(
        self, plan: Plan, state: StateDir, facts: UpFacts, *, environ: Mapping[str, str], clock: Clock, on_ready: Callable[[UpFacts], None]
    ) -> None:
        self._plan = plan
        self._state = state
        self._facts = facts
        self._environ = environ
        self._clock = clock
        self._on_ready = on_ready
        self._roles: list[Role] = []
        self._ready = asyncio.Event()
        self._draining = asyncio.Event()

    async def run(self, drain: asyncio.Event) -> None:
        """Keep the yard until `drain` is set and every role is gone.

        Raises:
            TurnyardError: a role could not be started; the message ends with the last lines it wrote.
        """
        try:
            async with asyncio.TaskGroup() as group:
                ending = group.create_task(self._end_on(drain))
                for plan in self._plan.roles:
                    group.create_task(self._keep(plan))
                group.create_task(self._announce())
                await drain.wait()
                await ending
        except BaseExceptionGroup as failures:
            raise _first(failures) from None
        finally:
            for role in self._roles:
                role.send(signal.SIGKILL)
            await asyncio.gather(*(role.process.wait() for role in self._roles))

    async def reload(self) -> None:
        """Put fresh processes in place of those that run user code; the old ones finish what they have in hand."""
        for old in [r for r in self._roles if r.plan.reloads and not r.retired]:
            fresh = await self._start(old.plan)
            while fresh.running and not self._draining.is_set() and not await fresh.ready():
                await self._clock.sleep(POLL_S)
            if self._draining.is_set():
                return
            if not fresh.running:
                self._roles.remove(fresh)
                log.warning("the new %s did not start and the old one goes on:\n%s", old.plan.name, last_lines(fresh.log_file))
                return
            old.retired = True
            old.send(signal.SIGTERM)
        log.info("reloaded")

    async def _keep(self, plan: RolePlan) -> None:
        backoff = Backoff(first_s=0.2, most_s=10.0)
        role = await self._start(plan)
        while True:
            started = self._clock.monotonic()
            code = await role.process.wait()
            if self._clock.monotonic() - started >= STEADY_S:
                backoff.reset()
            self._roles.remove(role)
            self._record()
            if self._draining.is_set():
                return
            if not self._ready.is_set():
                raise _start_failed(role, code)
            successor = next((r for r in self._roles if r.plan is plan), None)
            if successor is None:
                log.warning("%s ended with %s and is started again:\n%s", plan.name, code, last_lines(role.log_file))
                await self._clock.sleep(backoff.next_s())
                if self._draining.is_set():
                    return
                successor = await self._start(plan)
            role = successor

    async def _start(self, plan: RolePlan) -> Role:
        role = await Role.start(plan, self._state.log(plan.name), self._environ)
        self._roles.append(role)
        if self._draining.is_set():
            role.send(signal.SIGTERM)
        self._record()
        return role

    def _record(self, **changes: Any) -> None:
        roles = tuple(RoleFacts(r.plan.name, r.mark, r.health_port) for r in self._roles if r.mark)
        self._facts = replace(self._facts, roles=roles, **changes)
        self._state.write(self._facts)

    async def _announce(self) -> None:
        deadline = self._clock.monotonic() + READY_WITHIN_S
        waiting = ["the roles"]
        while waiting:
            if self._draining.is_set():
                return
            if self._clock.monotonic() > deadline:
                raise self._late(waiting)
            await self._clock.sleep(POLL_S)
            waiting = [r.plan.name for r in self._roles if not await r.ready()] or await self._unpublished()
        self._ready.set()
        self._record(phase="ready")
        self._on_ready(self._facts)

    def _late(self, waiting: list[str]) -> TurnyardError:
        # An agent is published by its worker, so that is whose words explain its absence.
        named = {"worker"} if all(name.startswith("agent ") for name in waiting) else set(waiting)
        words = "\n".join(f"{role.log_file}:\n{last_lines(role.log_file)}" for role in self._roles if role.plan.name in named)
        return TurnyardError(f"not ready within {READY_WITHIN_S:.0f} s: {', '.join(waiting)}\n{words}")

    async def _unpublished(self) -> list[str]:
        found = await fetch(self._plan.port, "/v1/agents", host=self._plan.host)
        known = names_in(found)
        return [f"agent {name}" for name in self._plan.agents if name not in known]

    async def _end_on(self, drain: asyncio.Event) -> None:
        await drain.wait()
        self._draining.set()
        self._record(phase="draining")
        for role in self._roles:
            role.send(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await asyncio.gather(*(role.process.wait() for role in self._roles))
        for role in self._roles:
            log.warning("%s outlived the grace and is killed", role.plan.name)
            role.send(signal.SIGKILL)


async def fetch(port: int, path: str, *, host: str = LOOPBACK) -> bytes | None:
    """Return the body that a local server answers with 200, None for anything else."""
    with contextlib.suppress(OSError, TimeoutError, ValueError, IndexError):
        async with asyncio.timeout(ANSWER_WITHIN_S):
            reader, writer = await asyncio.open_connection(LOOPBACK if host in ("0.0.0.0", "::") else host, port)  # noqa: S104
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nhost: {LOOPBACK}\r\nconnection: close\r\n\r\n".encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return body if head.split(b" ", 2)[1] == b"200" else None
    return None


def names_in(listing: bytes | None) -> set[str]:
    """Return the names in a page of agents; none when it is not one."""
    try:
        page = json.loads(listing or b"{}")
        return {str(agent["name"]) for agent in page["data"]}
    except (ValueError, KeyError, TypeError):
        return set()


def last_lines(file: Path) -> str:
    """Return the end of a log, readable."""
    from turnyard.cli.log_tail import readable

    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    except OSError:
        return ""
    return "\n".join(f"  {readable(line)}" for line in lines)


def _start_failed(role: Role, code: int) -> TurnyardError:
    text = f"{role.plan.name} did not start (exit code {code}; {role.log_file}):\n{last_lines(role.log_file)}"
    kinds: dict[int, type[TurnyardError]] = {CONFIG: ConfigError, UNREACHABLE: StoreUnavailable}
    return kinds.get(code, TurnyardError)(text)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one failure that explains the others."""
    flat = [_first(cast("BaseExceptionGroup[BaseException]", f)) if isinstance(f, BaseExceptionGroup) else f for f in failures.exceptions]
    return next((f for f in flat if isinstance(f, TurnyardError)), flat[0])
