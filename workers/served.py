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
from turnyard.app.calls import Hands, Surroundings
from turnyard.app.models import open_models
from turnyard.app.policies import operator_rules
from turnyard.backoff import Backoff
from turnyard.blobs import open_blobs
from turnyard.errors import ConfigError, StoreUnavailable
from turnyard.ports import Delta
from turnyard.records.input import notice_body
from turnyard.records.live import progress_text
from turnyard.settings import load_settings
from turnyard.state import agents, ingress
from turnyard.state.log import read_entry
from turnyard.tools.context import CallUrls

from .bench import Bench
from .executor import Served, Turn
from .reports import Reports

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AsyncExitStack

    from turnyard.app import Agent, App
    from turnyard.app.agent import DecodeState
    from turnyard.app.calls import Notify, Say
    from turnyard.ports import Clock
    from turnyard.records.commit import TurnView
    from turnyard.records.log import LogRecord
    from turnyard.settings import Settings
    from turnyard.state.yard import Yard

    from .beside import Beside
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

    async def open(self, stack: AsyncExitStack, yard: Yard, feed: Feed, beside: Beside, clock: Clock) -> dict[str, Served]:
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
        rules = operator_rules(self.settings.approvals)
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
                report=self._reporter(feed, beside, Reports(yard, clock)),
                cancelled=self._cancelled,
                older=self._older,
                detach=lambda one: beside.take(self.current.get(), one),
                notify=_notifier(yard, agent),
                say=_speaker(yard, clock),
            )
            box = await stack.enter_async_context(agent.toolbox(clock=clock).opened())
            means = agent.means(models, Hands(agent.name, box, deps[agent.name], around), on_delta=feed.say, rules=rules)
            table = agent.table(box, secret_hash=self._secret_hash, rules=rules)
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

    def _reporter(self, feed: Feed, beside: Beside, reports: Reports) -> Any:
        async def report(call: str, fraction: float, note: str) -> None:
            view, errand = self.current.get().view, beside.errand_of(call)
            if errand is not None:  # its turn may be long over
                reports.say(errand, fraction, note)
            elif view is not None:
                feed.say(view, Delta("progress", 0, progress_text(call, fraction, note)))

        return report

    async def open_bench(self, stack: AsyncExitStack, yard: Yard, clock: Clock) -> Bench:
        """Open the lifespans on `stack`; return what runs lifted calls."""
        found: dict[str, Hands] = {}
        blobs = open_blobs(self.settings, clock=clock, yard=yard)
        stack.push_async_callback(blobs.aclose)
        for app in self.loaded:
            deps = await stack.enter_async_context(app.running())
            for agent in app:
                box = await stack.enter_async_context(agent.toolbox().opened())
                more: dict[str, Any] = {"blobs": blobs, "output_bytes": agent.options.limits.output_bytes}
                around = Surroundings(version=agent.manifest().version, notify=_notifier(yard, agent), say=_speaker(yard, clock), **more)
                found[agent.name] = Hands(agent.name, box, deps[agent.name], around, agent.home.hooks)
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
