"""What a turn has used, and whether that is too much.

Everything is counted from the turn's entries, and from what its progress carries of those that were folded, so the
counts move with the turn to another worker. All stops are tested before any notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from turnyard.engine.bounds import UNLIMITED, Bounds, Budget
from turnyard.engine.history import of_turn
from turnyard.engine.progress import Progress
from turnyard.records.commit import TurnView
from turnyard.records.log import ASSISTANT, CALL, RESULT, LogRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one turn has used so far, `tokens` and cost with those of its children that have ended.

    `active_ms` is the time it ran on workers, its waits left out.
    """

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost_micros: int = 0
    active_ms: int = 0
    continuations: int = 0

    @staticmethod
    def of(view: TurnView) -> Spent:
        """Return what the turn that `view` shows has used."""
        held = Progress.of(view)
        seen = _count(of_turn(view))
        return Spent(
            model_calls=held.model_calls + seen.model_calls,
            tool_calls=held.tool_calls + seen.tool_calls,
            tokens=held.tokens + seen.tokens,
            cost_micros=held.cost_micros + seen.cost_micros,
            active_ms=view.active_ms,
            continuations=held.continuations,
        )


@dataclass(frozen=True, slots=True)
class Stop:
    """The turn may not go on; `code` is that of its failure, `bound` the bound that is used up, if one is."""

    code: str
    message: str
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """The model should hear `text` now. `warned` is what the turn's progress holds once it has."""

    text: str
    warned: int = 0


Verdict = Stop | Notice | None


def judge(view: TurnView, bounds: Bounds, spent: Spent | None = None) -> Verdict:
    """Return whether the turn must stop before the model is asked again, or the model must be told how much is left.

    `spent` is what the turn has used; None: it is counted.
    """
    spent = spent or Spent.of(view)
    warned, told = Progress.of(view).warned, list[str]()
    for bit, rule in enumerate(_RULES):
        limit = rule.limit(bounds)
        if limit is None:
            continue
        used = rule.used(spent)
        if used >= limit and rule.beyond(spent, limit):
            return Stop(rule.code, rule.say(rule.stopped, spent, limit), rule.name)
        if used >= limit * bounds.soft_ratio and not warned >> bit & 1:
            told.append(rule.say(rule.told, spent, limit))
            warned |= 1 << bit
    return _notice(told, warned) if told else None


def budget_of(spent: Spent, bounds: Bounds) -> Budget:
    """Return what is left of `bounds`."""
    limits = [(rule, limit) for rule in _RULES if (limit := rule.limit(bounds)) is not None]
    left = {rule.name: max(0, limit - rule.used(spent)) for rule, limit in limits}
    more = UNLIMITED if bounds.continuations is None else max(0, bounds.continuations - spent.continuations)
    return Budget(
        **{rule.name: left.get(rule.name, UNLIMITED) for rule in _RULES},
        continuations=more,
        soft_exhausted=any(rule.used(spent) >= limit * bounds.soft_ratio for rule, limit in limits),
        exhausted=any(rule.beyond(spent, limit) for rule, limit in limits),
    )


def carry(progress: Progress, view: TurnView, *, spans: Sequence[tuple[int, int]], usage: Mapping[str, int] | None = None) -> Progress:
    """Return the progress after a fold: it keeps the counts of this turn's entries in `spans`, which a summary stands for from now on.

    `usage` is that of the summary itself; it costs tokens as an answer does, and is no model call of the turn's own.
    """
    gone = _count(e for e in of_turn(view) if any(first <= e.seq <= last for first, last in spans))
    return replace(
        progress,
        model_calls=progress.model_calls + gone.model_calls,
        tool_calls=progress.tool_calls + gone.tool_calls,
        tokens=progress.tokens + gone.tokens + _tokens(usage or {}),
        cost_micros=progress.cost_micros + gone.cost_micros + (usage or {}).get("cost_micros", 0),
    )


# -- counting ---------------------------------------------------------------------------------------------------------


def _count(entries: Iterable[LogRecord]) -> Spent:
    asked = called = tokens = cost_micros = 0
    for entry in entries:
        asked += entry.body.get("asked", 1) if entry.type == ASSISTANT else 0
        called += entry.type == CALL
        # what a child used comes with its result
        if entry.type == ASSISTANT or (entry.type == RESULT and entry.kind == "child"):
            usage: dict[str, int] = entry.body.get("usage") or {}
            tokens += _tokens(usage)
            cost_micros += usage.get("cost_micros", 0)
    return Spent(model_calls=asked, tool_calls=called, tokens=tokens, cost_micros=cost_micros)


def _tokens(usage: Mapping[str, int]) -> int:
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)


# -- judging ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """One bound: its name in `Bounds` and `Spent`, the code of its stop, and how people are told of it."""

    name: str
    code: str
    stopped: str
    told: str
    scale: int = 1
    inclusive: bool = True

    def limit(self, bounds: Bounds) -> int | None:
        return getattr(bounds, self.name)

    def used(self, spent: Spent) -> int:
        return getattr(spent, self.name)

    def beyond(self, spent: Spent, limit: int) -> bool:
        used = self.used(spent)
        return used >= limit if self.inclusive else used > limit

    def say(self, template: str, spent: Spent, limit: int) -> str:
        return template.format(used=f"{self.used(spent) / self.scale:.10g}", limit=f"{limit / self.scale:.10g}")


_USED = "the turn used {used} %s and may use {limit}; raise Limits(%s=...)"
_RULES = (
    _Rule(
        "model_calls",
        "step_limit",
        "the turn asked the model {used} times without an end; raise Limits(model_calls=...)",
        "{used} of {limit} model calls",
    ),
    # inclusive=False: the results of the last call that is allowed must still be read
    _Rule(
        "tool_calls",
        "step_limit",
        "the turn made {used} tool calls and may make {limit}; raise Limits(tool_calls=...)",
        "{used} of {limit} tool calls",
        inclusive=False,
    ),
    _Rule("tokens", "budget_exceeded", _USED % ("tokens", "tokens"), "{used} of {limit} tokens"),
    _Rule("cost_micros", "budget_exceeded", _USED % ("of its cost", "cost"), "{used} of {limit} in money", 1_000_000),
    _Rule("active_ms", "budget_exceeded", _USED % ("s of work", "active"), "{used} of {limit} s", 1000),
)


def _notice(told: Sequence[str], warned: int) -> Notice:
    """Return what to tell of the bounds that came close since the model was last told of one."""
    return Notice(f"This turn is close to its limit: {' and '.join(told)} are used. Finish now: answer with what you have.", warned)
