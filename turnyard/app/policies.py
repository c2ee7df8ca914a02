"""Whether an agent's calls may run: its names, its tools' own rules, the operator's, and the app's policies, all of them consulted.

A call is judged before it is declared, and once more when people have allowed it. Arguments that do not fit the tool are
refused before anything else looks at them, so rules and policies read what the schema promises.
"""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from turnyard.engine.arguments import read_arguments
from turnyard.engine.effects import POLICY_FAILED, READ_ENTRY, Failure, Judgement
from turnyard.engine.strangers import raised_by_app
from turnyard.errors import ConfigError, InvalidInput
from turnyard.ports import AskedCall
from turnyard.records import ids
from turnyard.records.commit import Row, TurnView
from turnyard.tools.approval import Ask, Deny, Verdict
from turnyard.tools.context import ToolContext
from turnyard.tools.names import NameFilter, sanitised
from turnyard.tools.policy import ALLOWED, Rule, merged
from turnyard.tools.tool import Tool

if TYPE_CHECKING:
    from turnyard.app.calls import Hands
    from turnyard.settings.sections import ApprovalSection

AnyTool = Tool[..., Any]
Policy = Callable[[Any, Any], Awaitable[Verdict] | Verdict]

log = logging.getLogger("turnyard.app")


@dataclass(slots=True)
class ToolCall:
    """A call as policies and hooks see it. `args` are those of the model, or an approver's; only a before_tool hook may change them."""

    name: str
    args: dict[str, Any]
    tool: AnyTool | None = None
    id: str = ""


class PolicyFailed(Exception):
    """A policy raised, or said what is no verdict."""


def checked_policy(policy: object) -> Policy:
    """Return a policy that is a function.

    Raises:
        ConfigError: it is none.
    """
    if not callable(policy):
        raise ConfigError(f"policy {policy!r} is no function; put @app.policy above a def of (ctx, call)")
    return cast("Policy", policy)


def operator_rules(sections: Sequence[ApprovalSection]) -> tuple[Rule, ...]:
    """Return the operator's rules as the settings say them."""
    return tuple(
        Rule(
            tools=tuple(one.tools),
            approvers=tuple(one.approvers),
            expires_in_ms=round(one.expires_in.total_seconds() * 1000),
            remember="session" if one.remember == "session" else None,
            self_approve=one.self_approve,
        )
        for one in sections
    )


@dataclass(frozen=True, slots=True)
class Rules:
    """What an agent's calls are judged by: the names it may use, the operator's rules, and the policies of its app."""

    names: NameFilter = field(default_factory=NameFilter)
    operator: tuple[Rule, ...] = ()
    policies: Sequence[Policy] = ()

    def concern(self, tools: Sequence[AnyTool], *, dynamic: bool) -> bool:
        """Tell whether a call may ever come to anything but leave. With `dynamic` tools come and go, so that nobody knows which.

        A question is shown to people as the model wrote it, so what it says is looked at first.
        """
        if (
            any(one.kind == "question" for one in tools)
            or self.policies
            or self.names != NameFilter()
            or any(one.approval is not False for one in tools)
        ):
            return True
        return dynamic or any(rule.matches(one.name) for rule in self.operator for one in tools)


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the calls of one agent. `hands` know its tools and the context of a call."""

    rules: Rules
    hands: Hands

    async def __call__(self, view: TurnView, asked: Sequence[AskedCall]) -> tuple[Judgement, ...] | Failure:
        """Judge the calls in their order; never raises, except CancelledError when this task is cancelled."""
        said: list[Judgement] = []
        for index, call in enumerate(asked):
            try:
                said.append(await self._judge(view, call, index))
            except PolicyFailed as error:
                ref = secrets.token_hex(4)
                log.error("a policy failed", exc_info=error.__cause__ or error, extra={"tool": call.name, "ref": ref})  # noqa: TRY400
                return Failure(POLICY_FAILED, f"{error} (ref {ref}); the log of its worker says what", ref=ref)
        return tuple(said)

    async def _judge(self, view: TurnView, call: AskedCall, index: int) -> Judgement:
        name = sanitised(call.name)
        if call.name != READ_ENTRY and not self.rules.names.has(name):
            return merged([Deny(f"the tool {name!r} is not available; not executed")])
        given, tool = read_arguments(call.arguments), self.hands.toolbox.get(call.name)
        if tool is None or given.refusal is not None:
            return ALLOWED  # the engine answers it with an error
        try:
            values = tool.arguments.check(given.value)
        except InvalidInput as error:
            text = f"{tool.name} was not run: {error}. Correct the arguments and call it again."
            return Judgement(decision="deny", reason=text, faulty=True)
        ctx = self._context(view, call, index, tool)
        verdicts = [rule.ask() for rule in self.rules.operator if rule.matches(tool.name)]
        own = await _own_rule(tool, ctx, values)
        policies = [
            await _said(policy, ctx, ToolCall(tool.name, deepcopy(given.value), tool, ctx.call_id)) for policy in self.rules.policies
        ]
        said = [own, *verdicts, *policies]
        if tool.kind == "question":  # nobody is asked whether somebody may be asked
            said = [one for one in said if not isinstance(one, Ask)]
        return merged(said, granted=tool.name in grants(view))

    def _context(self, view: TurnView, call: AskedCall, index: int, tool: AnyTool) -> ToolContext[Any]:
        """Return the context of a call; one that was approved is known by its own id."""
        row = next((row for row in view.rows if row.call == call.id), None)
        if row is None:
            ident = ids.call_id(view.store, view.turn, view.rev + 1, index)
            row = Row(ident, tool.kind, "open", awaited=False, outcome=None, demoted=False, idempotent=tool.idempotent, decision=None)
        head = view.head
        key = ids.idempotency_key(head.get("tenant", ""), head.get("session", view.session), view.turn, row.call)
        return self.hands.context(view, row, key)


def grants(view: TurnView) -> frozenset[str]:
    """Return the tools that the session has leave to use."""
    return frozenset(name for name in view.head.get("grants", "").split("\n") if name)


async def _own_rule(tool: AnyTool, ctx: ToolContext[Any], values: dict[str, Any]) -> Verdict:
    """Return what the tool's own rule says. One that cannot say it asks: never is a call allowed because its rule is broken."""
    rule = tool.approval
    if isinstance(rule, bool | Ask):
        return (Ask() if rule else None) if isinstance(rule, bool) else rule
    try:
        said = rule(ctx, **(_defaults(tool) | values))
        said = await said if inspect.isawaitable(said) else said
    except BaseException as error:
        if not raised_by_app(error):
            raise
        log.warning("the approval rule of a tool failed, so people are asked", exc_info=error, extra={"tool": tool.name})
        return Ask("the rule of this tool could not be evaluated")
    return said if isinstance(said, Ask | Deny) else Ask() if said else None


def _defaults(tool: AnyTool) -> dict[str, Any]:
    """Return the function's own values of the arguments that a model may leave out."""
    known: dict[str, Any] = tool.schema.get("properties", {})
    parameters = inspect.signature(tool.function).parameters.values()
    return {one.name: one.default for one in parameters if one.name in known and one.default is not inspect.Parameter.empty}


async def _said(policy: Policy, ctx: ToolContext[Any], call: ToolCall) -> Verdict:
    name = getattr(policy, "__name__", "a policy")
    try:
        said = policy(ctx, call)
        said = await said if inspect.isawaitable(said) else said
    except BaseException as error:
        if not raised_by_app(error):
            raise
        raise PolicyFailed(f"the policy {name} raised") from error
    if said is None or isinstance(said, Ask | Deny):  # pyright: ignore[reportUnnecessaryIsInstance] - an app is not held to its types
        return said
    raise PolicyFailed(f"the policy {name} returned {type(said).__name__}, which is neither None nor Ask nor Deny")
