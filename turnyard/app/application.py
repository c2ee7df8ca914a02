"""An app: the agents of a user's module and what they share while a process runs them."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from turnyard.app import checks
from turnyard.app.agent import Agent, AgentOptions, DecodeState, Instructions, Mode
from turnyard.app.hooks import Hook, Hooks
from turnyard.app.limits import Limits
from turnyard.app.models import ModelSpec
from turnyard.app.policies import Policy, checked_policy
from turnyard.app.toolbox import Keepers
from turnyard.engine.plan import PlanExecute
from turnyard.engine.react import React
from turnyard.engine.registry import Converter
from turnyard.engine.shaper import ShaperPolicy
from turnyard.engine.strategy import AnyStrategy, Strategy, checked
from turnyard.errors import ConfigError, UnknownAgent
from turnyard.records.manifest import Manifest
from turnyard.tools.names import name_filter

HookT = TypeVar("HookT", bound=Hook)
PolicyT = TypeVar("PolicyT", bound=Policy)
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_MODES = ("steer", "follow_up", "collect", "interrupt", "rollback", "reject")
_STRATEGIES = checked((React(), PlanExecute()))


class App:
    """A set of agents.

    `lifespan` is an async context manager that a process enters once; what it yields is `ctx.deps` of every tool.
    Scripts of scripted models are looked for beside the file that makes the app.
    """

    def __init__(self, *, lifespan: Lifespan | None = None) -> None:
        self.lifespan = lifespan
        self.spec = ""
        frame = inspect.currentframe()
        self.base_dir = _folder_of(frame.f_back.f_globals.get("__file__") if frame and frame.f_back else None)
        self.hooks = Hooks()
        self.policies: list[Policy] = []
        self.keepers = Keepers()
        self._agents: dict[str, Agent] = {}
        self.checks: dict[str, checks.Revalidation] = {}

    def __getitem__(self, name: str) -> Agent:
        """Return the agent of this name.

        Raises:
            UnknownAgent: there is none; the message lists those there are.
        """
        if name not in self._agents:
            raise UnknownAgent(f"the app has no agent {name!r}; it has {', '.join(self._agents) or 'none'}")
        return self._agents[name]

    def __iter__(self) -> Iterator[Agent]:
        """Yield the agents in the order they were declared."""
        return iter(self._agents.values())

    @property
    def agents(self) -> Mapping[str, Agent]:
        """Return the agents by name."""
        return MappingProxyType(self._agents)

    def agent(
        self,
        name: str,
        *,
        model: ModelSpec | Sequence[ModelSpec],
        instructions: Instructions = "",
        tools: Sequence[object] = (),
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        output: Any = None,
        pool: str = "default",
        version: str | None = None,
        mode: Mode = "steer",
        complete_when: Literal["settled", "turn"] = "turn",
        strategy: str | AnyStrategy = "react",
        decode_state: DecodeState | None = None,
        model_settings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        terminal_tool: str | None = None,
        shaper: ShaperPolicy | None = None,
        roles: Mapping[str, Converter] | None = None,
    ) -> Agent:
        """Declare an agent.

        Args:
            name: what it is called everywhere: 1 to 63 of a-z, 0-9, _ and -, beginning with a letter.
            model: `provider:NAME`, a name from `models` in turnyard.yaml, or several, tried in order.
            instructions: the system message, or a function of the turn's context that returns it, asked once per turn.
            tools: what the model may call: tools, providers of tools that come and go, and packs and lists of them.
            allow: globs of the names of tools that it may use, as in "crm_*"; the others are not offered. Empty: all of them.
            deny: globs of the names of tools that it may not use; not together with `allow`.
            output: a type; the answer is then one JSON value of it, and checked. None: the answer is text.
            pool: which workers run its turns.
            version: a name for this version of it; None derives one from the declaration.
            mode: what a message does that arrives while a turn runs.
            complete_when: whether its chat answers are done with the turn, or when every call is settled.
            strategy: how a turn goes on; "react" asks and calls until there is an answer, "plan_execute" plans first; or one of
                your own (turnyard.engine.strategy).
            decode_state: what a turn that an older version began looks like to this one: called with the turn and that version's name,
                returns the turn to go on with, or raises AgentVersionGone. None: every version goes on with every turn.
            model_settings: passed to the model with every request.
            limits: how far one turn may go.
            terminal_tool: a reply without a call of this tool does not end a turn.
            shaper: how large a request may become and what is then shortened or summarised; None: three quarters of the window of
                the model, of the smallest one if there are several, and no limit where the window is not known.
            roles: roles of your own that messages may have, each with what says what the model sees of such a message, None for nothing.

        Raises:
            ConfigError: a value cannot be used, or the name is taken.
        """
        _check_name("agent", name)
        _check_name("pool", pool)
        if name in self._agents:
            raise ConfigError(f"two agents are called {name}; rename one")
        models = tuple(model) if isinstance(model, list | tuple) else (model,)
        _check_choices(name, models, mode)
        options = AgentOptions(
            models=models,  # pyright: ignore[reportArgumentType]
            instructions=instructions,
            output=output,
            pool=pool,
            version=version,
            mode=mode,
            complete_when=complete_when,
            strategy=_strategy(name, strategy),
            decode_state=decode_state,
            model_settings=dict(model_settings or {}),
            limits=limits or Limits(),
            terminal_tool=terminal_tool,
            shaper=shaper,
            roles=dict(roles or {}),
            names=name_filter(f"agent {name}", allow, deny),
        )
        made = Agent(self, name, options, tools)
        self._agents[name] = made
        return made

    def revalidate(
        self, group: str, *, timeout: timedelta | float = checks.DEFAULT_TIMEOUT
    ) -> Callable[[checks.Revalidate], checks.Revalidate]:
        """Declare how to find out whether the notices of a group still matter.

        The function is `async def check(ctx, key)`, `ctx` as for instructions. Before each model call of this app's agents it is asked
        once for each key of the group that has a notice, shown before or not. When it returns nothing (None, "", {} or []), the notices
        of that key are taken away; when it returns anything else, raises, or takes longer than `timeout`, they stay. A group without a
        check keeps its notices until they are cleared.

        Raises:
            ConfigError: the group has a check already, the function is no `async def`, or the timeout is not above zero.
        """

        def declare(function: checks.Revalidate) -> checks.Revalidate:
            if group in self.checks:
                raise ConfigError(f"the notices of {group!r} have two checks; keep one")
            self.checks[group] = checks.declare(group, function, timeout)
            return function

        return declare

    def policy(self, function: PolicyT) -> PolicyT:
        """Have a function asked about every call of this app's agents before it runs: `policy(ctx, call)`, plain or async.

        `ctx` is the call's `ToolContext`, `call` has name, args and tool. It returns None to allow the call, `Ask` or `Deny`. All policies
        are asked, and the strictest wins: deny before ask before allow. One that raises fails the turn as policy_failed. A call
        that people allowed is put to them once more before it runs, with the arguments that people gave.

        Raises:
            ConfigError: it is no function.
        """
        self.policies.append(checked_policy(function))
        return function

    def hook(self, point: str) -> Callable[[HookT], HookT]:
        """Have a function asked at a point of the turns of this app's agents; several are asked in the order they were declared.

        "before_model": (TurnContext, Asking), whose messages and settings may be changed. "after_model": (TurnContext, the answer).
        "before_tool": (ToolContext, ToolCall), whose args may be changed. "after_tool": (ToolContext, ToolCall, Result), whose content
        may be changed. "turn_stopping": (TurnContext, Stopping) where a turn would end; it may let the turn go on, as often as
        `Limits(continuations=...)` says. Any of them may be asked twice about the same thing. The first that raises fails the turn as
        hook_failed; use a policy to refuse a call.

        Raises:
            ConfigError: nothing is asked at this point, or it is no function.
        """

        def add(function: HookT) -> HookT:
            self.hooks.add(point, function)
            return function

        return add

    def include(self, other: App) -> None:
        """Take in another app's agents; each keeps the lifespan of the app that declared it.

        Raises:
            ConfigError: an agent's name is taken.
        """
        for one in other:
            if self._agents.get(one.name, one) is not one:
                raise ConfigError(f"two agents are called {one.name}: one here, one of the app that is included; rename one")
            self._agents[one.name] = one

    def manifests(self) -> list[Manifest]:
        """Return what workers publish of each agent.

        Raises:
            ConfigError: an agent's declaration cannot run.
        """
        return [one.manifest() for one in self]

    # -- what a process holds for the agents --------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[dict[str, Any]]:
        """Enter the lifespans of all agents' apps, once each; yield the deps by agent name."""
        async with AsyncExitStack() as stack:
            held: dict[int, Any] = {}
            for one in self:
                home = one.home
                if id(home) not in held:
                    held[id(home)] = await stack.enter_async_context(home.lifespan(home)) if home.lifespan else None
            yield {one.name: held[id(one.home)] for one in self}

    @asynccontextmanager
    async def deps_of(self, agent: Agent, *given: Any) -> AsyncGenerator[Any]:
        """Yield the deps for one agent: the given ones, else what the lifespan of its app yields."""
        lifespan = agent.home.lifespan
        if given or lifespan is None:
            yield given[0] if given else None
            return
        async with lifespan(agent.home) as held:
            yield held


def _folder_of(file: object) -> Path:
    return Path(file).resolve().parent if isinstance(file, str) else Path.cwd()


def _check_name(what: str, name: str) -> None:
    if not _NAME.match(name):
        raise ConfigError(f"{what} {name!r}: a name is 1 to 63 of a-z, 0-9, _ and -, and begins with a letter")


def _check_choices(name: str, models: Sequence[Any], mode: str) -> None:
    if not models or not all(isinstance(m, str) or hasattr(m, "stream") for m in models):
        raise ConfigError(f"agent {name}: model= is 'provider:NAME', a name from turnyard.yaml, or a list of those")
    if mode not in _MODES:
        raise ConfigError(f"agent {name}: mode={mode!r} is not one of {', '.join(_MODES)}")


def _strategy(agent: str, given: str | AnyStrategy) -> AnyStrategy:
    if isinstance(given, Strategy):
        return next(iter(checked((given,)).values()))
    if given not in _STRATEGIES:
        raise ConfigError(f"agent {agent}: strategy={given!r} is not one of {', '.join(_STRATEGIES)}")
    return _STRATEGIES[given]
