"""How an agent is run in this process: with which models, tools and deps a session of it works."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from turnyard.app.calls import Hands, Surroundings
from turnyard.app.children import spawner
from turnyard.app.models import ModelSpec, open_models
from turnyard.blobs import open_memory
from turnyard.engine.beside import Detached
from turnyard.engine.effects import RunTool
from turnyard.engine.local import LocalSession
from turnyard.engine.local_agent import LocalAgent, Wires
from turnyard.engine.memory import MemorySession
from turnyard.engine.options import Options, Settings
from turnyard.engine.registry import Converter
from turnyard.engine.runner import Means, Spawn
from turnyard.errors import ConfigError
from turnyard.ports import Blobs, Clock
from turnyard.records.commit import TurnView
from turnyard.records.log import SENT, LogRecord
from turnyard.tools.files import Files
from turnyard.tools.spill import shown_body

if TYPE_CHECKING:
    from turnyard.app.agent import Agent

THINKING = "reasoning_effort"  # what OpenAI's API and its kin call the level of thinking
OFF = "off"


@dataclass(slots=True)
class _Deps:
    """The deps of one session's runs: entered by the first scope of a run, shared by those inside it."""

    agent: Agent
    given: tuple[Any, ...]
    _users: int = 0
    _held: Any = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[Any]:
        """Yield the deps, entering the app's lifespan when nobody has."""
        if not self._users:
            self._held = await self._stack.enter_async_context(self.agent.home.deps_of(self.agent, *self.given))
        self._users += 1
        try:
            yield self._held
        finally:
            self._users -= 1
            if not self._users:
                await self._stack.aclose()


def open_local(
    agent: Agent,
    *,
    models: Sequence[ModelSpec],
    given: tuple[Any, ...],
    clock: Clock,
    user: str,
    options: Options,
    roles: Mapping[str, Converter],
    session: str = "local",
    depth: int = 0,
    blobs: Blobs | None = None,
) -> LocalSession:
    """Return a session of `agent` that is kept in memory. `given` holds the deps, if they are not the app's own.

    `depth` is how many calls of other agents lie above it. `blobs` keeps its files; None: a store of its own, in memory.
    """
    agent.check()
    head = {"tenant": "default", "session": session, "agent": agent.name, "user": user, "platform": "local"}
    settings = Settings(tuple(models), agent.options.instructions, (*agent.tools.values(), *agent.providers), None)
    memory = MemorySession(clock, head)
    kept = blobs or open_memory(clock)
    place = _Place(_Deps(agent, given), clock, Wires(), _spawner(agent, clock, depth, kept), memory, kept)
    return LocalSession(_local_agent(agent, settings, place), memory, options=options, roles={**agent.options.roles, **roles})


def _spawner(agent: Agent, clock: Clock, depth: int, blobs: Blobs) -> Spawn:
    """Return what opens sessions for the calls of `agent` that ask other agents, with the same files."""

    def open_child(child: Agent, session: str, user: str) -> LocalSession:
        models, given = child.chosen()
        more: dict[str, Any] = {"options": Options(), "roles": {}, "session": session, "depth": depth + 1}
        return open_local(child, models=models, given=given, clock=clock, user=user, blobs=blobs, **more)

    spawn, most = spawner(agent, open_child, depth=depth), agent.options.limits.output_bytes

    async def bounded(view: TurnView, effect: RunTool) -> tuple[str, dict[str, Any]]:
        outcome, body = await spawn(view, effect)
        files = Files(blobs, view.head.get("tenant", ""))
        return outcome, await shown_body(body, files, name=f"answer-{effect.row.call}.txt", limit_bytes=most)

    return bounded


@dataclass(frozen=True, slots=True)
class _Place:
    """What stays of a session whatever its settings become."""

    deps: _Deps
    clock: Clock
    wires: Wires
    spawn: Spawn
    memory: MemorySession
    blobs: Blobs
    beside: dict[str, Detached] = field(default_factory=dict[str, Detached])

    def detach(self, one: Detached) -> str:
        """Keep a body running that its turn waits for no longer."""
        self.beside[one.call] = one
        return f"{one.call}:beside:{one.attempt}"

    async def older(self, view: TurnView, seq: int) -> LogRecord | None:
        """Return an entry of the log, also one that a summary stands for; None when there is none."""
        del view
        return next((r for r in self.memory.log if r.seq == seq and r.is_entry), None)

    async def say(self, head: Mapping[str, str], turn: str, call: str, event: str, text: str) -> None:
        """Write down what a tool told the user."""
        del head, event
        self.memory.append(LogRecord(0, SENT, turn=turn, call=call, body={"text": text, "call": call}))

    async def notify(self, head: Mapping[str, str], text: str, group: str, key: str) -> None:
        """Leave a notice in the session."""
        del head
        self.memory.notice({"text": text, "origin": group}, group=group, key=key)


def _local_agent(base: Agent, settings: Settings, place: _Place) -> LocalAgent:
    """Return what a session needs of the agent `base` under these settings."""
    agent = _variant(base, settings)
    box = agent.toolbox(clock=place.clock)
    wires: dict[str, Any] = {
        "report": place.wires.report,
        "cancelled": place.wires.stopping,
        "older": place.older,
        "notify": place.notify,
        "say": place.say,
        "detach": place.detach,
    }
    around = Surroundings(**wires, keeps=True, blobs=place.blobs, output_bytes=agent.options.limits.output_bytes)

    @asynccontextmanager
    async def scope() -> AsyncGenerator[Means]:
        models = open_models(agent.options.models, base_dir=agent.home.base_dir, clock=place.clock)
        async with place.deps.held() as held, models as opened, box.opened():
            if not opened:
                raise ConfigError(f"agent {agent.name} has no model: give it one, or the session by set_model")
            # what is shown is the session's to say, whose registry holds the agent's roles, too
            means = agent.means(opened, Hands(agent.name, box, held, around))
            yield replace(means, spawn=place.spawn, show=None, beside=place.beside)

    def changed(to: Settings) -> LocalAgent:
        return _local_agent(base, to, place)

    decode = agent.output.decode if agent.output else _as_it_is
    return LocalAgent(agent.table(box), scope, decode, place.wires, settings, changed)


def _variant(agent: Agent, to: Settings) -> Agent:
    """Return the agent with other settings; None keeps the agent's own."""
    own = agent.options
    thinking = {} if to.thinking_level is None else {THINKING: to.thinking_level}
    settings = {name: value for name, value in (dict(own.model_settings) | thinking).items() if (name, value) != (THINKING, OFF)}
    options = replace(
        own,
        models=own.models if to.model is None else as_models(to.model),
        instructions=own.instructions if to.instructions is None else to.instructions,
        model_settings=settings,
    )
    return type(agent)(agent.home, agent.name, options, (*agent.tools.values(), *agent.providers) if to.tools is None else to.tools)


def as_models(model: ModelSpec | Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """Return one model, or several, as several."""
    return tuple(model) if isinstance(model, list | tuple) else (model,)  # pyright: ignore[reportReturnType]


def _as_it_is(value: Any) -> Any:
    return value
