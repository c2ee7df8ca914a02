"""What may be said of a call before it runs: ask people first, or deny it. Saying nothing allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from turnyard.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    approvers: Sequence[str] = ()
    expires_in: timedelta | float | None = None
    scope: Literal["asker", "anyone"] = "asker"
    self_approve: bool = True
    remember: Literal["session"] | None = None
    audit: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Ask(_Terms):
    """The call waits until a person allows it.

    Args:
        reason: what people are told of why they are asked.
        approvers: who may decide: user ids, or globs of them; empty: whoever may use the API.
        expires_in: how long the question stands, a timedelta or seconds; None: as long as the agent's `Limits` say.
        scope: with "anyone" a newer message of any user takes the place of the question, else only one of the user who asked for it.
        self_approve: whether the user who asked for it may decide.
        remember: with "session" an approver may allow the tool for the whole session.
        audit: kept with the call's result, never shown to the model.

    Raises:
        ConfigError: the approvers are one string, or the time is not more than zero.
    """

    reason: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.approvers, str):
            raise ConfigError(f"Ask: approvers={self.approvers!r} is one string; give a list of users")
        if self.expires_in_ms is not None and self.expires_in_ms <= 0:
            raise ConfigError("Ask: expires_in must be more than zero")

    @property
    def expires_in_ms(self) -> int | None:
        """Return how long the question stands; None when it does not say."""
        given = self.expires_in
        seconds = given.total_seconds() if isinstance(given, timedelta) else given
        return None if seconds is None else round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Deny:
    """The call is not run. The model reads `reason`, and `guidance` on what to do instead; `audit` it does not see."""

    reason: str = ""
    guidance: str = ""
    audit: Mapping[str, Any] = field(default_factory=dict[str, Any])


Verdict = Ask | Deny | None
ApprovalRule = bool | Ask | Callable[..., Any]


class ApprovalRequired(Exception):
    """A tool's body asks for approval before it has done anything: it is run again, with `ctx.approved`, once people allow it.

    What is given beside the reason is as for `Ask`, but for `remember`. A lifted tool cannot ask while it runs: declare it with `approval=`.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        approvers: Sequence[str] = (),
        expires_in: timedelta | float | None = None,
        scope: Literal["asker", "anyone"] = "asker",
        self_approve: bool = True,
    ) -> None:
        super().__init__(reason)
        self.ask = Ask(reason, approvers=approvers, expires_in=expires_in, scope=scope, self_approve=self_approve)


def checked_rule(tool: str, rule: object) -> ApprovalRule:
    """Return what a tool was declared with as `approval=`.

    Raises:
        ConfigError: it is neither True or False, nor an `Ask`, nor a function.
    """
    if isinstance(rule, bool | Ask) or callable(rule):
        return rule
    raise ConfigError(f"tool {tool}: approval={rule!r} is no rule; give True, an Ask, or a function of (ctx, **arguments)")
