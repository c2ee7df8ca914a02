"""The agents of this child's apps, ready to run: their models are open, what their lifespans yield is there.

Everything an agent needs is made once per child; what belongs to one turn (its URLs, its progress, whether it was
cancelled) is found through the turn that runs in the current context.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from turnyard.app import load_app
from turnyard.app.calls import Hands, Surroundings, time_of
from turnyard.app.models import open_models
from turnyard.backoff import Backoff
from turnyard.blobs import open_blobs
from turnyard.errors import ConfigError, StoreUnavailable
from turnyard.fence import lifted_fence
from turnyard.ports import Delta
from turnyard.records.input import notice_body
from turnyard.records.live import progress_text
from turnyard.settings import load_settings
from turnyard.state import agents, ingress
from turnyard.state.log import read_entry
from turnyard.tools.context import CallUrls, ToolContext
from turnyard.tools.runtime import ToolOutcome, run_tool

from .executor import Served, Turn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AsyncExitStack

    from turnyard.app import Agent, App
    from turnyard.app.agent import DecodeState
    from turnyard.app.calls import Notify, Say
    from turnyard.app.toolbox import Toolbox
    from turnyard.lifted import LiftedTask
    from turnyard.ports import Clock
    from turnyard.records.commit import TurnView
    from turnyard.records.log import LogRecord
    from turnyard.settings import Settings
    from turnyard.state.calls import RowStart
    from turnyard.state.yard import Yard

    from .feed import Feed
    from .options import Options


_SAY_AGAIN = 4


@dataclass(frozen=True, slots=True)
class Apps:
    """The apps of one child. `current` is the turn in whose context something runs."""

    loaded: tuple[App, ...]
    settings: Settings
    pools: tuple[str, ...]
    current: ContextVar[Turn]

    @classmethod
    def load(cls, options: Options) -> Apps:
        """Import the apps.

        Raises:
            ConfigError: one cannot be imported, two agents share a name, or no agent is in the pools of this worker.
        """
        loaded = tuple(load_app(spec) for spec in options.apps)
        seen: dict[str, str] = {}
        for app in loaded:
            for agent in app:
                if agent.name in seen:
                    raise ConfigError(f"two agents are called {agent.name}: one of {seen[agent.name]}, one of {app.spec}; rename one")
                seen[agent.name] = app.spec
                agent.check()
        apps = cls(loaded, load_settings(options.config), options.pools, ContextVar("turn"))
        if options.role == "worker" and not apps.ours():
            pools = ", ".join(sorted({agent.options.pool for app in loaded for agent in app}))
            raise ConfigError(
                f"no agent of {', '.join(options.apps)} is in pool {', '.join(options.pools)}; they are in {pools}: use --pool"
            )
        return apps

    def ours(self) -> list[tuple[App, Agent]]:
        """Return the agents whose turns this worker takes."""
        return [(app, agent) for app in self.loaded for agent in app if agent.options.pool in self.pools]

    async def open(self, stack: AsyncExitStack, yard: Yard, feed: Feed, clock: Clock) -> dict[str, Served]:
        """Open models and lifespans on `stack` and publish the agents; return them by name.

        Raises:
            StoreUnavailable: the server did not answer; call it again with a fresh stack.
        """
        served: dict[str, Served] = {}
        blobs = open_blobs(self.settings, clock=clock, yard=yard)
        stack.push_async_callback(blobs.aclose)
        deps: dict[str, Any] = {}
        for app in self.loaded:
            deps |= await stack.enter_async_context(app.running())
        for _, agent in self.ours():
            options = agent.options
            models = await stack.enter_async_context(
                open_models(options.models, base_dir=agent.home.base_dir, clock=clock, settings=self.settings)
            )
            manifest = await agents.publish(yard, agent.manifest())
            around = Surroundings(
                version=manifest.version,
                blobs=blobs,
                output_bytes=options.limits.output_bytes,
                urls=self._urls,
                report=self._reporter(feed),
                cancelled=self._cancelled,
                older=self._older,
                notify=_notifier(yard, agent),
                say=_speaker(yard, clock),
            )
            box = await stack.enter_async_context(agent.toolbox(clock=clock).opened())
            means = agent.means(models, Hands(agent.name, box, deps[agent.name], around), on_delta=feed.say)
            table = agent.table(box, secret_hash=self._secret_hash)
            decode = self._decoder(yard, agent.name, options.decode_state) if options.decode_state else None
            served[agent.name] = Served(serial=manifest.serial, table=table, means=means, decode_state=decode)
        return served

    def _decoder(self, yard: Yard, agent: str, decode: DecodeState) -> Callable[[TurnView], Awaitable[TurnView]]:
        async def decoded(view: TurnView) -> TurnView:
            return decode(view, await agents.read_version(yard, agent, view.began))

        return decoded

    def _secret_hash(self, call: str) -> str:
        """Return the hash of the token this worker made for a call; the row keeps the one of another worker's."""
        made = self.current.get().tokens.get(call)
        return made[1] if made else ""

    def _urls(self, call: str) -> CallUrls:
        http = self.settings.platforms.http
        base = (http.public_url or f"http://{http.host}:{http.port}").rstrip("/")
        token, _ = self.current.get().token(call)
        return CallUrls(f"{base}/v1/calls/{token}", f"{base}/v1/outcomes/{token}")

    async def _older(self, view: TurnView, seq: int) -> LogRecord | None:
        try:
            return await read_entry(self.current.get().shard, view.store, seq)
        except StoreUnavailable:
            return None  # the model is told that there is none, and may ask again

    def _cancelled(self) -> bool:
        return self.current.get().cancelled != ""

    def _reporter(self, feed: Feed) -> Any:
        async def report(call: str, fraction: float, note: str) -> None:
            view = self.current.get().view
            if view is not None:
                feed.say(view, Delta("progress", 0, progress_text(call, fraction, note)))

        return report

    async def open_bench(self, stack: AsyncExitStack) -> Bench:
        """Open the lifespans on `stack`; return what runs lifted calls."""
        found: dict[str, tuple[Toolbox, Any]] = {}
        for app in self.loaded:
            deps = await stack.enter_async_context(app.running())
            for agent in app:
                found[agent.name] = (await stack.enter_async_context(agent.toolbox().opened()), deps[agent.name])
        return Bench(found)


def _speaker(yard: Yard, clock: Clock) -> Say:
    async def say(head: Mapping[str, str], turn: str, call: str, event: str, text: str) -> None:
        backoff = Backoff(first_s=0.1)
        for _ in range(_SAY_AGAIN):
            with contextlib.suppress(StoreUnavailable):
                await ingress.say(yard, head.get("tenant", ""), head.get("session", ""), text, event=event, turn=turn, call=call)
                return
            await clock.sleep(backoff.next_s())
        await ingress.say(yard, head.get("tenant", ""), head.get("session", ""), text, event=event, turn=turn, call=call)

    return say


def _notifier(yard: Yard, agent: Agent) -> Notify:
    async def notify(head: Mapping[str, str], text: str, group: str, key: str) -> None:
        who: dict[str, Any] = {
            "tenant": head.get("tenant", ""),
            "session": head.get("session", ""),
            "agent": agent.name,
            "pool": agent.options.pool,
        }
        body = notice_body(text, origin=group) | {"group": group, "key": key}
        await ingress.accept_notice(yard, **who, group=group, key=key, body=body, event=token_hex(12))

    return notify


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs lifted calls of the agents of this child."""

    agents: dict[str, tuple[Toolbox, Any]]

    async def run(self, task: LiftedTask, start: RowStart) -> ToolOutcome:
        """Run a call with the tool that its agent has here; never raises but for cancellation."""
        box, deps = self.agents.get(start.agent, (None, None))
        if box is not None:
            await box.look_up((start.name,))
        tool = box.get(start.name) if box is not None else None
        if tool is None:
            return ToolOutcome(
                f"this worker has no tool {start.name} of agent {start.agent}; it serves {', '.join(self.agents)}", is_error=True
            )
        ctx: ToolContext[Any] = ToolContext(
            deps=deps,
            tenant=start.tenant,
            session=start.session,
            agent=start.agent,
            turn=start.turn,
            call_id=task.call,
            idempotency_key=start.idempotency_key,
            user=start.user,
            attempt=start.attempt,
            fence=lifted_fence(start.attempt),
            expires_at=time_of(start.deadline_ms) if start.deadline_ms else None,
        )
        outcome = await run_tool(tool, start.args or {}, ctx)
        if outcome.park is not None:
            return ToolOutcome(f"{start.name} is lifted and cannot park", is_error=True)
        return outcome
