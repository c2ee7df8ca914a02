"""What a tool may know about the call it serves, and how it talks back while it runs.

The identity of the call (tenant, session, user) comes from whoever runs the turn, never from the model's arguments.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from turnyard.errors import ConfigError
from turnyard.text import bound
from turnyard.tools.command import KEPT_BYTES, Ran, run_command
from turnyard.tools.files import Files
from turnyard.tools.secrets import secret

if TYPE_CHECKING:
    from turnyard.tools.fakes import FakeContext

D = TypeVar("D")

SENT_BYTES = 16_384


async def _unheard(fraction: float, note: str) -> None:
    """Drop a progress report: nobody follows."""


async def _unsaid(event: str, text: str) -> None:
    """Drop a message: nobody reads along."""


def _never() -> bool:
    return False


async def _untold(text: str, group: str, key: str) -> None:
    """Drop news of later: nobody keeps the session."""


@dataclass(frozen=True, slots=True)
class CallUrls:
    """Where the outside world answers a parked call: `callback` takes any vendor body, `outcome` a result or error."""

    callback: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(Generic[D]):
    """The call a tool serves.

    `deps` is what the app's lifespan yielded. `attempt` counts from 1; `idempotency_key` is the same on each attempt
    of one call. `fence` grows from attempt to attempt of one call, so that whoever is called can refuse one that was left behind
    (`turnyard.fence`). `approved` tells whether a person allowed it. `trace` is the W3C traceparent of the turn, "" when it
    has none. `expires_at` is when the call's time is over, None when it has no deadline of its own. `files` are those of the
    tenant. `report`, `say` and `cancel_requested` are how the runtime is reached; tools use `progress`, `send` and `cancelled`.
    `notify(text, group, key)` leaves a notice in the session, also when the call is long over; a newer one of the same group and key
    takes the place of one that was not read yet.
    """

    deps: D
    tenant: str
    session: str
    agent: str
    turn: str
    call_id: str
    idempotency_key: str
    user: str = ""
    agent_version: str = ""
    attempt: int = 1
    fence: int = 0
    approved: bool = False
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    platform: str = "http"
    trace: str = ""
    expires_at: datetime | None = None
    urls: CallUrls | None = None
    files: Files = field(default_factory=Files)
    report: Callable[[float, str], Awaitable[None]] = _unheard
    say: Callable[[str, str], Awaitable[None]] = _unsaid
    cancel_requested: Callable[[], bool] = _never
    notify: Callable[[str, str, str], Awaitable[None]] = _untold
    _sent: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    @property
    def cancelled(self) -> bool:
        """Tell whether somebody asked for the turn to stop; a long tool looks at it between two pieces of work."""
        return self.cancel_requested()

    @property
    def callback_url(self) -> str:
        """Return the URL that takes any body as this call's result.

        Raises:
            ConfigError: the tool is not declared with `park=`, so nothing waits for a result from outside.
        """
        return self._parkable().callback

    @property
    def outcome_url(self) -> str:
        """Return the URL that takes {"result": ...} or {"error": ...}.

        Raises:
            ConfigError: the tool is not declared with `park=`, so nothing waits for a result from outside.
        """
        return self._parkable().outcome

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Return a logger whose records name the session, turn and call."""
        fields = {"tenant": self.tenant, "session": self.session, "turn": self.turn, "call": self.call_id}
        return logging.LoggerAdapter(logging.getLogger("turnyard.tools"), fields)

    async def progress(self, fraction: float, note: str = "") -> None:
        """Tell followers how far the work is; `fraction` runs from 0 to 1. Droppable: nothing waits for it."""
        await self.report(min(1.0, max(0.0, fraction)), note)

    async def run(
        self,
        *argv: str | os.PathLike[str],
        given: str | bytes | None = None,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109 - what ends is a process group, not a task
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> Ran:
        """Run a command to its end, without a shell, and return its exit code and what it wrote.

        It never outlives the call: when the call is cancelled, its time is over or the worker ends, the command and all that
        it started are ended with it.

        Args:
            argv: the command and its arguments.
            given: what it reads.
            timeout: how long it may run, a timedelta or seconds; None: as long as the call.
            cwd: where it runs; None: where the worker does.
            env: its whole environment; None: the worker's.
            kept_bytes: how much is kept of each of its two outputs.

        Raises:
            ToolError: there is no such command, or its time was over.
        """
        return await run_command(argv, given=given, timeout=timeout, cwd=cwd, env=env, kept_bytes=kept_bytes)

    async def send(self, text: str) -> None:
        """Say something to the user now, while the work goes on; at most 16 KB, the rest is cut off.

        It is kept in the session. A tool that is run again after a crash and sends the same number of messages in the same order
        has each of them said once. The model does not see them.

        Raises:
            StoreUnavailable: the server stayed away; it is not known whether it was said.
        """
        said = bound(text, SENT_BYTES)
        if said.strip():
            await self.say(f"{self.idempotency_key}:{next(self._sent)}", said)

    def secret(self, name: str) -> str:
        """Return the value of a secret, read now from the environment variable `name` or the file that `name`_FILE names.

        Raises:
            ConfigError: it is not set, or the file cannot be read.
        """
        return secret(name).read()

    def _parkable(self) -> CallUrls:
        if self.urls is None:
            raise ConfigError(f"call {self.call_id} has no callback URL: declare its tool with @tool(park=...)")
        return self.urls

    @staticmethod
    def fake(*, deps: Any = None, secrets: Mapping[str, str] | None = None, cancelled: bool = False, **fields: Any) -> FakeContext:
        """Return a context for calling a tool in a unit test, which keeps what the tool said, reported and put.

        `secrets` are those it may read; `fields` replace the made-up values of the others.
        """
        from turnyard.tools.fakes import fake_context

        return fake_context(deps, secrets or {}, cancelled=cancelled, fields=fields)
