"""What of a session goes into the next request, so that it fits the model.

Within its target a list is left alone, and so is the beginning of the request, which prompt caches live on. Over it
older large entries become stubs, then a stretch of them is summarised, and what is stored stays whole all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from turnyard.engine.effects import Fold
from turnyard.engine.render import render
from turnyard.engine.tokens import TokenEstimator, budget, estimate, list_tokens, tools_tokens
from turnyard.ports import ToolSpec
from turnyard.records.log import LogRecord

DEFAULT_HEADROOM_TOKENS = 10_000
RESERVE_PCT = 25
HARD_RESERVE_PCT = 5
# The smallest window of each family, longer prefixes first: too small costs a fold, too large costs a refused request.
WINDOWS_TOKENS = (
    ("gpt-3.5", 16_385),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4", 8_192),
    ("gpt-5", 128_000),
    ("o1", 128_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("claude", 200_000),
    ("gemini", 1_000_000),
)


@dataclass(frozen=True, slots=True)
class Built:
    """The messages of a request and their size with the tools in tokens.

    `stubbed` entries are shown shortened; `dropped` ones are left out of this request alone. With `nothing_to_fold` a
    fold was demanded and there is nothing that could be folded.
    """

    messages: list[dict[str, Any]]
    tokens: int
    stubbed: int = 0
    dropped: int = 0
    nothing_to_fold: bool = False


class ContextBuilder(Protocol):
    """Makes a request of a log, or says what has to be summarised first."""

    def build(
        self, entries: Sequence[LogRecord], *, system: str, tools: Sequence[ToolSpec], fold: Literal["auto", "force", "never"] = "auto"
    ) -> Built | Fold:
        """Return the request for these entries, or the fold that must come before it.

        Raises:
            ContextOverflow: it cannot be made to fit.
        """
        ...


@dataclass(frozen=True, slots=True)
class ShaperPolicy:
    """How large a request may be and what is kept whole.

    `budget_tokens` is what a request should stay under, 0 for no limit; `hard_budget_tokens` what it may have when
    nothing can be done, 0 for the budget. The newest `preserve_last_messages` messages and `preserve_last_tool_calls`
    exchanges (a call and its result) are never shortened. Older text over `lod_truncate_above_chars` characters is
    shown as a stub once the request is larger than the target, 0 for never; with `always_lod` at once.
    `lod_headroom_tokens` is how far the target is under the budget: 0 for 10,000, below 0 for none. `late` says whether
    the result of a call that was answered before is a message of its own or takes the place of that answer, at the cost
    of the prompt cache. `trusted` leaves control tokens in the text of tools alone: only for servers that ignore them.
    """

    budget_tokens: int = 0
    preserve_last_messages: int = 6
    preserve_last_tool_calls: int = 4
    lod_truncate_above_chars: int = 4_000
    lod_headroom_tokens: int = 0
    always_lod: bool = False
    hard_budget_tokens: int = 0
    late: Literal["append", "replace"] = "append"
    trusted: bool = False

    def target(self) -> int:
        """Return the size in tokens from which on a request is shortened; 0 when it never is."""
        headroom = self.lod_headroom_tokens or DEFAULT_HEADROOM_TOKENS
        target = self.budget_tokens - max(0, headroom)
        return target if target > 0 else max(0, self.budget_tokens)

    def hard(self) -> int:
        """Return the size in tokens that no request may exceed; 0 for no limit."""
        return max(self.budget_tokens, self.hard_budget_tokens) if self.budget_tokens > 0 else 0

    @staticmethod
    def for_model(name: str, window_tokens: int | None = None) -> ShaperPolicy:
        """Return a policy that keeps a quarter of the model's window free.

        Without `window_tokens` it is that of the family that `name` (its provider prefix left out) belongs to; a model
        of an unknown family has no limit.
        """
        family = name.rpartition("/")[2].lower()
        window = window_tokens or next((tokens for prefix, tokens in WINDOWS_TOKENS if family.startswith(prefix)), 0)
        return ShaperPolicy(budget(window, RESERVE_PCT), hard_budget_tokens=budget(window, HARD_RESERVE_PCT))


class Shaper:
    """The builder of one session's requests. Entries that it has seen before are not looked at again."""

    def __init__(self, policy: ShaperPolicy | None = None, *, count: TokenEstimator = estimate) -> None:
        self.policy = policy or ShaperPolicy()
        self._count = count

    def build(
        self,
        entries: Sequence[LogRecord],
        *,
        system: str = "",
        tools: Sequence[ToolSpec] = (),
        fold: Literal["auto", "force", "never"] = "auto",
    ) -> Built | Fold:
        """Return the request for these entries, which stand in reading order, or the fold that must come before it.

        Raises:
            ContextOverflow: it cannot be made to fit.
        """
        messages = render(entries, system=system, trusted=self.policy.trusted)
        return Built(messages, list_tokens(messages, self._count) + tools_tokens(tools, self._count), nothing_to_fold=fold == "force")
