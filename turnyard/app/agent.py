"""An agent: what it is told, which model it asks, which tools it has, and how far one turn may go.

It is a declaration. Workers publish its manifest and run its turns; `run` and `local` run the same engine in this
process, without a server.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack

from turnyard.app.calls import Hands
from turnyard.app.checks import preparer
from turnyard.app.hooks import ask_stopping, layers
from turnyard.app.inprocess import as_models, open_local
from turnyard.app.limits import Limits
from turnyard.app.models import ModelSpec
from turnyard.app.output import Output
from turnyard.app.policies import Judge, Rules
from turnyard.app.toolbox import Toolbox
from turnyard.clock import SystemClock
from turnyard.engine.effects import AskHooks, Failure, HookAnswer, ToolTable
from turnyard.engine.local import Content, LocalSession, RunResult
from turnyard.engine.options import LocalOptions, Options
from turnyard.engine.react import React
from turnyard.engine.registry import Converter, Registry
from turnyard.engine.runner import Means, Model
from turnyard.engine.shaper import ContextBuilder, Shaper, ShaperPolicy
from turnyard.engine.strategy import AnyStrategy
from turnyard.engine.stubs import read_entry_spec
from turnyard.errors import ConfigError
from turnyard.ports import Clock, Delta, ToolProvider
from turnyard.records.commit import TurnView
from turnyard.records.manifest import Manifest, derive_version
from turnyard.tools.delegate import delegate
from turnyard.tools.names import NameFilter
from turnyard.tools.pack import unpacked
from turnyard.tools.policy import Rule
from turnyard.tools.tool import Tool, tool

if TYPE_CHECKING:
    from turnyard.app.application import App

AnyTool = Tool[..., Any]
Mode = Literal["steer", "follow_up", "collect", "interrupt", "rollback", "reject"]


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What instructions, and checks of notices, may know of the turn they are for. `deps` is what the app's lifespan yielded."""

    deps: Any
    tenant: str
    session: str
    user: str
    agent: str
    turn: str
    platform: str


Instructions = str | Callable[[TurnContext], str | Awaitable[str]]
DecodeState = Callable[[TurnView, str], TurnView]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """How an agent was declared; `App.agent` says what each of these is."""

    models: tuple[ModelSpec, ...]
    instructions: Instructions = ""
    output: Any = None
    pool: str = "default"
    version: str | None = None
    mode: Mode = "steer"
    complete_when: Literal["settled", "turn"] = "turn"
    strategy: AnyStrategy = field(default_factory=React)
    decode_state: DecodeState | None = None
    model_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: Limits = field(default_factory=Limits)
    terminal_tool: str | None = None
    shaper: ShaperPolicy | None = None
    roles: Mapping[str, Converter] = field(default_factory=dict[str, Converter])
    names: NameFilter = field(default_factory=NameFilter)


@dataclass(frozen=True, slots=True)
class _Override:
    models: tuple[ModelSpec, ...] | None = None
    deps: Any = None
    has_deps: bool = False


_NOT_GIVEN: Any = object()


class Agent:
    """One agent of an app. Made by `App.agent`."""

    def __init__(self, home: App, name: str, options: AgentOptions, tools: Sequence[object]) -> None:
        self.home = home
        self.name = name
        self.options = options
        self.tools: dict[str, AnyTool] = {}
        self.providers: tuple[ToolProvider, ...] = ()
        self.registry = Registry(options.roles)
        self.output = Output(options.output, agent=name) if options.output is not None else None
        self._override: ContextVar[_Override | None] = ContextVar(f"override of {name}", default=None)
        for one in tools:
            self.add(one)

    def __repr__(self) -> str:
        """Return the agent's name."""
        return f"<Agent {self.name}>"

    def add(self, one: object) -> None:
        """Give the agent a tool, a provider of tools, or a pack or list of them.

        Raises:
            ConfigError: it is none of these, or the agent has a tool, or a provider, of this name.
        """
        for made in unpacked((one,), f"agent {self.name}"):
            if not isinstance(made, Tool):
                if any(made.name == other.name for other in self.providers):
                    raise ConfigError(f"agent {self.name}: two providers of tools are called {made.name}; rename one")
                self.providers = (*self.providers, made)
            elif made.name in self.tools:
                raise ConfigError(f"agent {self.name}: two tools are called {made.name}; rename one")
            else:
                self.tools[made.name] = made

    def tool(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a tool of a function, as `@tool` does, and give it to this agent alone."""

        def make(given: Callable[..., Any]) -> AnyTool:
            made: AnyTool = tool(**options)(given)
            self.add(made)
            return made

        return make if function is None else make(function)

    def as_tool(self, *, description: str | None = None, wait: bool = True, timeout: timedelta | float = timedelta(days=1)) -> AnyTool:
        """Return this agent as a tool of others: each call is a session of its own.

        Args:
            description: what models are told of it.
            wait: stop the caller's turn until the answer is there; else the answer comes later, as news.
            timeout: how long one call may take, a timedelta or seconds.

        Raises:
            ConfigError: the timeout is not more than zero.
        """
        return delegate(self.name, description=description, wait=wait, timeout=timeout)

    # -- what others need to know of it -------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse a declaration that cannot run.

        Raises:
            ConfigError: the message says which part and what to write instead.
        """
        terminal = self.options.terminal_tool
        if terminal is not None and terminal not in self.tools:
            raise ConfigError(f"agent {self.name}: terminal_tool={terminal!r} is not among its tools ({', '.join(self.tools) or 'none'})")

    def manifest(self) -> Manifest:
        """Return what workers publish of this agent."""
        self.check()
        options = self.options
        bare = Manifest(
            self.name,
            "",
            pool=options.pool,
            mode=options.mode,
            complete_when=options.complete_when,
            strategy=options.strategy.name,
            limits=options.limits.to_json(),
            models=tuple(m if isinstance(m, str) else type(m).__name__ for m in options.models),
            output_schema=self.output.schema if self.output else None,
            tools=tuple(t.facts() for t in self.tools.values()),
            roles=tuple(sorted(options.roles)),
            providers=tuple(sorted(p.name for p in self.providers)),
            app=self.home.spec,
        )
        return replace(bare, version=options.version or derive_version(bare))

    def toolbox(self, *, clock: Clock | None = None) -> Toolbox:
        """Return what knows the agent's tools as they come and go, to be opened by whoever runs its turns."""
        more: dict[str, Any] = {"clock": clock or SystemClock(), "names": self.options.names, "keepers": self.home.keepers}
        return Toolbox(self.tools.values(), self.providers, **more)

    def table(
        self, toolbox: Toolbox | None = None, *, secret_hash: Callable[[str], str] | None = None, rules: tuple[Rule, ...] = ()
    ) -> ToolTable:
        """Return what the engine has to know, the tools being those of `toolbox` at any time.

        `secret_hash` gives the hash of the token made for a call; `rules` are the operator's on approvals.
        """
        limits = self.options.limits
        box = toolbox or self.toolbox()
        return ToolTable(
            tools=box.facts,
            absence=box.absence,
            bounds=limits.bounds,
            parallel=limits.parallel,
            forced_terminal=self.options.terminal_tool,
            secret_hash=secret_hash,
            read_output=self.output.read if self.output else None,
            strategy=self.options.strategy,
            hooks=bool(self.home.hooks.at("turn_stopping")),
            judged=self._rules(rules) is not None,
            approval_ms=limits.approval_ms,
        )

    def _rules(self, operator: tuple[Rule, ...]) -> Rules | None:
        """Return what this agent's calls are judged by; None when nothing is ever to be said of them."""
        rules = Rules(self.options.names, operator, self.home.policies)
        return rules if rules.concern(tuple(self.tools.values()), dynamic=bool(self.providers)) else None

    def means(
        self,
        models: Sequence[Model],
        hands: Hands,
        *,
        on_delta: Callable[[TurnView, Delta], None] | None = None,
        rules: tuple[Rule, ...] = (),
    ) -> Means:
        """Return what this agent's turns are done with. `hands` run its calls; `models` are open ones; `rules` are the operator's on approvals."""

        async def instruct(view: TurnView) -> str:
            return await self._instructions(view, hands.deps)

        async def stopping(view: TurnView, effect: AskHooks, messages: Sequence[dict[str, Any]]) -> HookAnswer | Failure:
            return await ask_stopping(self.home.hooks.at("turn_stopping"), self._context(view, hands.deps), effect, messages)

        box, hands = hands.toolbox, replace(hands, hooks=self.home.hooks)
        prepare = preparer(self.home.checks, lambda view: self._context(view, hands.deps))
        settings, show = self._model_settings(), self.registry.shown
        more: dict[str, Any] = {"stopping": stopping, "builder": self._builder(models), "reader": read_entry_spec()}
        more["cuts_repetition"] = self.options.limits.loop_guard
        more |= {"look_up": box.look_up, "bounded": hands.bounded, "look": hands.look, "read": hands.read}
        more["strategy"] = self.options.strategy
        more["layers"] = layers(self.home.hooks, lambda view: self._context(view, hands.deps))
        judged = self._rules(rules)
        more["judge"] = None if judged is None else Judge(judged, hands)
        return Means(models, hands.run, instruct, box.offer, settings, on_delta, prepare, show, **more)

    def _builder(self, models: Sequence[Model]) -> Callable[[], ContextBuilder]:
        """Return what makes builders of requests that every one of the models can read."""
        given = self.options.shaper
        bounded = [p for p in (ShaperPolicy.for_model(m.name) for m in models) if p.budget_tokens > 0]
        policy = given or min(bounded, key=lambda p: p.budget_tokens, default=ShaperPolicy())
        return lambda: Shaper(policy)

    async def _instructions(self, view: TurnView, deps: Any) -> str:
        given = self.options.instructions
        if callable(given):
            said = given(self._context(view, deps))
            given = await said if inspect.isawaitable(said) else said
        return "\n\n".join(part for part in (given, self.output.instructions() if self.output else "") if part)

    def _context(self, view: TurnView, deps: Any) -> TurnContext:
        head = view.head
        who = (head.get("tenant", ""), head.get("session", ""), head.get("user", ""))
        return TurnContext(deps, *who, self.name, view.turn, head.get("platform", ""))

    def _model_settings(self) -> dict[str, Any]:
        if self.output is None:
            return dict(self.options.model_settings)
        form = {"type": "json_schema", "json_schema": {"name": "output", "schema": self.output.schema}}
        return {"response_format": form} | dict(self.options.model_settings)

    # -- in this process ----------------------------------------------------------------------------------------------

    async def run(self, content: Content, **options: Unpack[LocalOptions]) -> RunResult:
        """Run one turn in this process: no server, nothing kept. `options` are those of `local`.

        Raises:
            InvalidInput: the message has no text.
            ConfigError: the model cannot be opened as configured.
        """
        return await self.local(**options).prompt(content)

    def local(
        self,
        *,
        model: ModelSpec | Sequence[ModelSpec] | None = None,
        deps: Any = _NOT_GIVEN,
        clock: Clock | None = None,
        user: str = "",
        roles: Mapping[str, Converter] | None = None,
        **options: Unpack[LocalOptions],
    ) -> LocalSession:
        """Return a conversation in this process, kept in memory.

        Args:
            model: what to ask in place of the agent's model.
            deps: what tools are given in place of what the app's lifespan yields.
            clock: the time it lives by; None for that of this machine.
            user: who speaks.
            roles: by role, what the model sees of messages with a role of your own; those of the agent are known.
            options: what to watch and decide on the way: the fields of `Options`.
        """
        models, given = self.chosen()
        models = as_models(model) if model is not None else models
        given = (deps,) if deps is not _NOT_GIVEN else given
        more: dict[str, Any] = {"options": Options(**options), "roles": roles or {}}
        return open_local(self, models=models, given=given, clock=clock or SystemClock(), user=user, **more)

    def chosen(self) -> tuple[tuple[ModelSpec, ...], tuple[Any, ...]]:
        """Return the models, and the deps if they are not the app's own, that a session in this process is to have now."""
        override = self._override.get() or _Override()
        return override.models or self.options.models, (override.deps,) if override.has_deps else ()

    @contextmanager
    def override(self, *, model: ModelSpec | Sequence[ModelSpec] | None = None, deps: Any = _NOT_GIVEN) -> Generator[None]:
        """Replace the model or the deps of what is run in this process inside the `with` block; for tests."""
        before = self._override.get() or _Override()
        models = as_models(model) if model is not None else before.models
        now = _Override(models, before.deps, before.has_deps) if deps is _NOT_GIVEN else _Override(models, deps, has_deps=True)
        token = self._override.set(now)
        try:
            yield
        finally:
            self._override.reset(token)
