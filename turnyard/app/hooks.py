"""Where an app has a say in its agents' turns: functions that are asked at a set point.

Hooks of one point are asked in the order in which they were registered, and each sees what the ones before it said. One
may be asked twice about the same thing, when its worker was lost before the answer was stored.
"""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from turnyard.engine.bounds import Budget
from turnyard.engine.effects import AskHooks, Failure, HookAnswer
from turnyard.engine.strangers import raised_by_app
from turnyard.errors import ConfigError
from turnyard.text import scrub

log = logging.getLogger("turnyard.app")

POINTS = ("turn_stopping",)

Hook = Callable[[Any, Any], Awaitable[None] | None]


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
    for hook in hooks:
        try:
            said = hook(ctx, stopping)
            if inspect.isawaitable(said):
                await said
        except BaseException as error:
            if not raised_by_app(error):
                raise
            ref = secrets.token_hex(4)
            name = getattr(hook, "__name__", "a hook")
            log.exception("a turn_stopping hook failed", extra={"hook": name, "ref": ref})
            return Failure("hook_failed", f"the turn_stopping hook {name} raised (ref {ref}); the log of its worker says what", ref=ref)
    return HookAnswer(stopping.stopped, tuple(text for text in stopping.texts if text.strip()))
