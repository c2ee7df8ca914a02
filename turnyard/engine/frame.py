"""How large a request is with everything around the log, and how it is put together.

Around the log are the system message, the tools, and what is added so that the list is valid or honest: an opening
and a closing, a note on what was left out. The size that is told is that of the list that is returned, to the token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from turnyard.engine.render import assembled
from turnyard.engine.tail import Kept
from turnyard.engine.tokens import TokenEstimator, message_tokens
from turnyard.engine.transcript import Part, Shape
from turnyard.engine.validity import CLOSING, OPENING, Message, closed
from turnyard.errors import ContextOverflow
from turnyard.records.log import COMPACTION

_NOTHING = Shape((), 0)


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


@dataclass(frozen=True, slots=True)
class Frame:
    """What a request has besides the log. `tools_tokens` is the size of its tools."""

    system: str
    tools_tokens: int
    count: TokenEstimator

    def size(self, shapes: Sequence[Shape], total_tokens: int | None = None) -> int:
        """Return the size of the request with these shapes, whose own sizes sum up to `total_tokens`, if that is known."""
        log_tokens = sum(shape.tokens for shape in shapes) if total_tokens is None else total_tokens
        system = message_tokens({"role": "system", "content": self.system}, self.count) if self.system else 0
        first = next((shape.messages[0] for shape in shapes if shape.messages), None)
        last = next((shape.messages[-1] for shape in reversed(shapes) if shape.messages), None)
        added = [around for at, around in ((first, OPENING), (last, CLOSING)) if at is not None and at["role"] == "assistant"]
        return self.tools_tokens + system + log_tokens + sum(message_tokens(message, self.count) for message in added)

    def built(
        self, parts: Sequence[Part], shapes: Sequence[Shape], size_tokens: int, *, before: Shape = _NOTHING, dropped: int = 0
    ) -> Built:
        """Return the request of these parts in these shapes; `before` is shown first, `size_tokens` is that of it all.

        The messages are the caller's own: changing one changes no later request.
        """
        messages = [message.copy() for message in before.messages]
        messages += [message.copy() for shape in shapes for message in shape.messages]
        stubbed = sum(_differing(p.whole, shape) for p, shape in zip(parts, shapes, strict=True) if shape is not p.whole)
        return Built(closed(assembled(self.system, messages)), size_tokens, stubbed, dropped)

    def squeezed(self, parts: Sequence[Part], shapes: Sequence[Shape], kept: Kept, limit_tokens: int, *, least: Sequence[Shape]) -> Built:
        """Return the request made shorter until it fits the limit.

        The oldest parts that are not `kept` are left out. Then what is kept is shown as in `least`, the oldest first: it can
        be read piece by piece, and a session whose unread results are too long would never get over them. Then those
        that wait are left out, too.

        Raises:
            ContextOverflow: what is kept does not fit even so.
        """
        shown = list(shapes)
        size, dropped, note = self.size(shown), 0, _NOTHING
        for index, shape in _shorter(kept, least):
            if size + note.tokens <= limit_tokens:
                break
            if shape.tokens >= shown[index].tokens:
                continue
            size += shape.tokens - shown[index].tokens
            shown[index] = shape
            if shape is _NOTHING:
                dropped += _stands_for(parts[index])
                note = self._note(dropped)
        size = self.size([note, *shown])
        if size > limit_tokens:
            raise ContextOverflow(size, limit_tokens)
        return self.built(parts, shown, size, before=note, dropped=dropped)

    def _note(self, dropped: int) -> Shape:
        text = f"[note] {dropped} older entries are left out here, because the conversation is longer than the model can read at once."
        message: Message = {"role": "user", "content": text}
        return Shape((message,), message_tokens(message, self.count))


def _shorter(kept: Kept, least: Sequence[Shape]) -> Iterator[tuple[int, Shape]]:
    """Yield which part is shown how instead, in the order in which that is tried."""
    yield from ((index, _NOTHING) for index in range(len(least)) if index not in kept)
    yield from enumerate(least)
    yield from ((index, _NOTHING) for index in sorted(kept.waiting))


def _differing(whole: Shape, shown: Shape) -> int:
    return sum(a != b for a, b in zip(whole.messages, shown.messages, strict=True)) if shown.messages else 0


def _stands_for(part: Part) -> int:
    """Return how many entries a part is: a summary counts as those that it stands for."""
    return sum(int(entry.body.get("count") or 1) if entry.type == COMPACTION else 1 for entry in part.group.entries)
