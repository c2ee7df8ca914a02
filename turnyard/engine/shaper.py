"""What of a session goes into the next request, so that it fits the model.

Within its target a list is left alone, and so is the beginning of the request, which prompt caches live on. Over it
older large entries become stubs, then a stretch of them is summarised, and what is stored stays whole all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from turnyard.engine import folding
from turnyard.engine.effects import Failure, Fold, Summary
from turnyard.engine.frame import Built, Frame
from turnyard.engine.render import Late, Style
from turnyard.engine.tail import Kept, pristine
from turnyard.engine.tokens import TokenEstimator, budget, estimate, tools_tokens
from turnyard.engine.transcript import Shape, Transcript
from turnyard.ports import ToolSpec
from turnyard.records.log import LogRecord

FoldMode = Literal["auto", "force", "never", "least"]

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


class ContextBuilder(Protocol):
    """Makes a request of a log, or says what has to be summarised first."""

    def build(self, entries: Sequence[LogRecord], *, system: str, tools: Sequence[ToolSpec], fold: FoldMode = "auto") -> Built | Fold:
        """Return the request for these entries, or the fold that must come before it.

        Raises:
            ContextOverflow: it cannot be made to fit.
        """
        ...

    def summary_of(self, fold: Fold, text: str, *, usage: dict[str, int] | None = None) -> Summary | Failure:
        """Return what the summariser's words make of a fold; a failure when there are none, or too many."""
        ...


@dataclass(frozen=True, slots=True)
class ShaperPolicy:
    """How large a request may be and what is kept whole.

    `budget_tokens` is what a request should stay under, 0 for no limit; `hard_budget_tokens` what it may have when
    nothing can be done, 0 for the budget. The newest `preserve_last_messages` messages and `preserve_last_tool_calls`
    exchanges (a call and its result) are never shortened. Older text over `lod_truncate_above_chars` characters is
    shown as a stub once the request is larger than the target, 0 for never; with `always_lod` at once.
    `lod_headroom_tokens` is how far the target is under the budget: 0 for 10,000, below 0 for none. The summariser is
    given `summary_budget_tokens` at most, 0 for the budget. `late` says whether the result of a call that was answered
    before is a message of its own or takes the place of that answer, at the cost of the prompt cache. `trusted` leaves
    control tokens in the text of tools alone: only for servers that ignore them.
    """

    budget_tokens: int = 0
    preserve_last_messages: int = 6
    preserve_last_tool_calls: int = 4
    lod_truncate_above_chars: int = 4_000
    lod_headroom_tokens: int = 0
    always_lod: bool = False
    hard_budget_tokens: int = 0
    summary_budget_tokens: int = 0
    late: Late = "append"
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
        p = self.policy
        self._transcript = Transcript(above_chars=p.lod_truncate_above_chars, late=p.late, trusted=p.trusted, count=count)
        self._tools: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    def build(
        self,
        entries: Sequence[LogRecord],
        *,
        system: str = "",
        tools: Sequence[ToolSpec] = (),
        fold: FoldMode = "auto",
    ) -> Built | Fold:
        """Return the request for these entries, or the fold that must come before it.

        `fold`: auto folds when the request does not fit otherwise; force folds whatever can be; never leaves the oldest
        entries out of this request instead; least shows as little as it can, and folds nothing.

        Raises:
            ContextOverflow: it cannot be made to fit.
        """
        self._transcript.read(entries)
        frame = Frame(system, self._tools_tokens(tools), self._count)
        if fold == "force" or (fold == "auto" and self._goes_on()):
            demanded = self._fold(self._kept())
            if demanded is not None:
                return demanded
        if fold in ("force", "least"):
            return self._forced(frame)
        return self._untouched(frame) or self._shaped(frame, fold == "auto")

    def summary_of(self, fold: Fold, text: str, *, usage: dict[str, int] | None = None) -> Summary | Failure:
        """Return what the summariser's words make of a fold; a failure when there are none, or too many."""
        return folding.summary_of(fold, text, usage=usage, count=self._count)

    def _forced(self, frame: Frame) -> Built:
        """Return the request when a fold is needed and cannot be had: as short as it can be, if that is shorter."""
        shown, least = self._shapes(self._kept()), self._least()
        size, smaller = frame.size(shown), frame.size(least)
        if self.policy.lod_truncate_above_chars > 0 and smaller < size:
            return frame.built(self._transcript.parts, least, smaller)
        return replace(frame.built(self._transcript.parts, shown, size), nothing_to_fold=True)

    def _goes_on(self) -> bool:
        """Tell whether the last fold left a stretch to be folded next."""
        return self.policy.budget_tokens > 0 and folding.goes_on(self._transcript.grouping.newest_summary)

    def _fits(self, size_tokens: int) -> bool:
        target = self.policy.target()
        return target <= 0 or size_tokens <= target

    def _untouched(self, frame: Frame) -> Built | None:
        """Return the request with everything whole, if that is within the target."""
        parts = self._transcript.parts
        whole = [part.whole for part in parts]
        size = frame.size(whole, self._transcript.whole_tokens)
        return frame.built(parts, whole, size) if self._fits(size) and not self.policy.always_lod else None

    def _shaped(self, frame: Frame, may_fold: bool) -> Built | Fold:
        """Return the request with stubs, or the fold that must come first, or the request with the oldest left out."""
        parts, kept = self._transcript.parts, self._kept()
        shown = self._shapes(kept)
        size = frame.size(shown)
        found = self._fold(kept) if may_fold and not self._fits(size) else None
        if found is not None:
            return found
        if self._fits(size) or size <= self.policy.hard():
            return frame.built(parts, shown, size)
        return frame.squeezed(parts, shown, kept, self.policy.hard(), least=self._least())

    def _least(self) -> list[Shape]:
        """Return each part as short as it can be shown: all of what the user asked last, of the rest the beginnings of texts."""
        asked = self._transcript.grouping.asked
        return [part.whole if part.group.index == asked else self._transcript.least(part) for part in self._transcript.parts]

    def _shapes(self, kept: Kept) -> list[Shape]:
        """Return how each part is shown: large texts of those that are not kept whole as stubs."""
        parts, short = self._transcript.parts, self._transcript.shortened
        older = [part.whole if part.group.index in kept.pinned else part.short or short(part) for part in parts[: kept.start]]
        return older + [part.whole for part in parts[kept.start :]]

    def _kept(self) -> Kept:
        p = self.policy
        return pristine(self._transcript.grouping, messages=p.preserve_last_messages, exchanges=p.preserve_last_tool_calls)

    def _fold(self, kept: Kept) -> Fold | None:
        p = self.policy
        room = p.summary_budget_tokens or (max(p.budget_tokens, folding.MIN_ROOM_TOKENS) if p.budget_tokens > 0 else 0)
        style = Style(trusted=p.trusted)
        return folding.next_fold(
            self._transcript, kept, above_chars=p.lod_truncate_above_chars, style=style, room_tokens=room, count=self._count
        )

    def _tools_tokens(self, tools: Sequence[ToolSpec]) -> int:
        given = tuple(tools)
        if given != self._tools[0]:
            self._tools = given, tools_tokens(given, self._count)
        return self._tools[1]
