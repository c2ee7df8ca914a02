"""Where an app has a say in its agents' turns: functions that are asked at a set point.

Hooks of one point are asked in the order in which they were registered, and each sees what the ones before it said. One
may be asked twice about the same thing, when its worker was lost before the answer was stored. The first that raises fails
the turn. Those around a call run where its body runs.
"""

from __future__ import annotations

import copy
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from turnyard.app.policies import ToolCall
from turnyard.engine.bounds import Budget
from turnyard.engine.effects import AskHooks, Failure, HookAnswer
from turnyard.engine.middleware import AskLayer, Middleware
from turnyard.engine.strangers import raised_by_app
from turnyard.errors import ConfigError, HookFailed
from turnyard.ports import Done, ModelRequest, ToolSpec
from turnyard.records.commit import TurnView
from turnyard.text import scrub
from turnyard.tools.runtime import ToolOutcome

log = logging.getLogger("turnyard.app")

POINTS = ("before_model", "after_model", "before_tool", "after_tool", "turn_stopping")

Hook = Callable[..., Awaitable[None] | None]


@dataclass(slots=True)
class Stopping:
    """A turn that is about to end, as its turn_stopping hooks see it.

    `reason` is no_calls (the model answered), step_limit (it has had `Limits(segment_steps=...)` calls in a row) or budget (some
    bound is used up: nothing goes on, whatever hooks say). `steps` are the turn's model calls so far, `segments` how often
    hooks went on already, `messages` what the model has read and said. Nothing of this is to be changed.
    """

    reason: Literal["no_calls", "step_limit", "budget"]
    steps: int
    segments: int
    budget: Budget
    messages: Sequence[dict[str, Any]]
    stopped: bool = False
    texts: list[str] = field(default_factory=list[str])

    def go_on(self, text: str) -> None:
        """Have the turn go on with `text` as a message of the user, if the budget has continuations left.

        Raises:
            TypeError: it is no text.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - an app is not held to its types
            raise TypeError(f"go_on is given a text, not {type(text).__name__}")
        self.texts.append(scrub(text))

    def stop(self) -> None:
        """Have the turn end here, whatever other hooks say."""
        self.stopped = True


class Hooks:
    """The hooks of one app."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] = {}

    def add(self, point: str, hook: Hook) -> None:
        """Have `hook` asked at `point`.

        Raises:
            ConfigError: nothing is asked there.
        """
        if point not in POINTS:
            raise ConfigError(f"hook {point!r}: an app is asked at {', '.join(POINTS)}")
        if not callable(hook):
            raise ConfigError(f"hook {point!r}: {hook!r} is no function; put @app.hook({point!r}) above its def")
        self._hooks.setdefault(point, []).append(hook)

    def at(self, point: str) -> Sequence[Hook]:
        """Return the hooks of a point in order."""
        return self._hooks.get(point, ())


async def ask_stopping(hooks: Sequence[Hook], ctx: Any, effect: AskHooks, messages: Sequence[dict[str, Any]]) -> HookAnswer | Failure:
    """Ask the turn_stopping hooks; one that raises fails the turn, and the log says what it raised."""
    stopping = Stopping(effect.reason, effect.steps, effect.segments, effect.budget, messages)
    try:
        await _asked("turn_stopping", hooks, ctx, stopping)
    except HookFailed as error:
        return Failure(error.code, str(error), ref=error.ref)
    return HookAnswer(stopping.stopped, tuple(text for text in stopping.texts if text.strip()))


# -- around a model ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Asking:
    """A request to a model, as its before_model hooks see it: what they change of `messages` and `settings` is what is sent.

    `model` is the name behind the provider, `tools` are what it is offered.
    """

    model: str
    messages: list[dict[str, Any]]
    settings: dict[str, Any]
    tools: tuple[ToolSpec, ...] = ()


def _around_model(hooks: Hooks, context: Callable[[TurnView], Any]) -> AskLayer:
    before, after = hooks.at("before_model"), hooks.at("after_model")

    async def layer(view: TurnView, request: ModelRequest, go_on: Callable[[TurnView, ModelRequest], Awaitable[Done]]) -> Done:
        if before:
            # what was built is used again for the next request
            asking = Asking(request.model, copy.deepcopy([*request.messages]), request.settings, tuple(request.tools))
            await _asked("before_model", before, context(view), asking)
            request = replace(request, messages=asking.messages, settings=asking.settings)
        done = await go_on(view, request)
        if after:
            await _asked("after_model", after, context(view), done)
        return done

    return layer


# -- around a call ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Result:
    """What a call gave, as its after_tool hooks see it: what they change of `content` is what the model reads."""

    content: str
    is_error: bool = False
    details: Any = None


async def before_tool(hooks: Hooks, ctx: Any, call: ToolCall) -> dict[str, Any]:
    """Ask the before_tool hooks about a call; return its arguments, which they may have changed.

    Raises:
        HookFailed: one raised; the call was not run.
    """
    asked = hooks.at("before_tool")
    if not asked:
        return call.args
    call.args = copy.deepcopy(call.args)
    await _asked("before_tool", asked, ctx, call, answer=f"{call.name} was not executed: the check before it failed")
    return call.args


async def after_tool(hooks: Hooks, ctx: Any, call: ToolCall, outcome: ToolOutcome) -> ToolOutcome:
    """Ask the after_tool hooks about what a call gave; return it with the content that they made of it.

    Raises:
        HookFailed: one raised; the result is held back.
    """
    asked = hooks.at("after_tool")
    if not asked or outcome.park is not None or outcome.asks is not None:
        return outcome
    result = Result(outcome.content, outcome.is_error, outcome.details)
    answer = f"{call.name} was executed, but its result was held back: the check after it failed"
    await _asked("after_tool", asked, ctx, call, result, answer=answer)
    return replace(outcome, content=scrub(str(result.content)))


def layers(hooks: Hooks, context: Callable[[TurnView], Any]) -> Middleware:
    """Return the app's hooks around a model as layers; `context` makes what they are called with."""
    asked = hooks.at("before_model") or hooks.at("after_model")
    return Middleware((_around_model(hooks, context),)) if asked else Middleware()


async def _asked(point: str, hooks: Sequence[Hook], *what: Any, answer: str = "") -> None:
    """Ask the hooks of a point one after the other.

    Raises:
        HookFailed: one raised; the log says what. The message names the hook.
    """
    for hook in hooks:
        try:
            said = hook(*what)
            if inspect.isawaitable(said):
                await said
        except BaseException as error:
            if not raised_by_app(error):
                raise
            ref = secrets.token_hex(4)
            name = getattr(hook, "__name__", "a hook")
            log.exception("a %s hook failed", point, extra={"hook": name, "ref": ref})
            text = f"the {point} hook {name} raised (ref {ref}); the log of its worker says what"
            raise HookFailed(text, ref=ref, answer=f"{answer} (ref {ref})" if answer else "") from error
