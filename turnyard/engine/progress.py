"""What the kernel remembers of a turn from one transition to the next, whichever strategy decides.

Most of what it has to know stands in the log. The rest is here, inside the turn's state, so that a worker who takes the
turn over counts on where the last one stopped. Zeros are left out: a turn that needs none of this stores nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from turnyard.records.commit import TurnView

_KERNEL = "k"


@dataclass(frozen=True, slots=True)
class Progress:
    """The kernel's own counters of one turn.

    `retries` of the ask that is due, `fold_retries` of the summary, `errors` of the strategy in a row, `overflow` 1 when the ask
    was found too long and a fold is due, 2 when that fold is done, `too_long` what was said of it; `no_fold` 1 after a summary failed, `folds` so far, `continuations` of turn_stopping hooks, `segment` model calls
    when the segment began, `warned` a bit per notice already given, `cuts` answers in a row that repeated themselves,
    `idle` how often the strategy went on in a row without an effect, `over` 1 when the strategy has ended the turn and the hooks are to be asked.
    `model_calls`, `tool_calls`, `tokens` and `cost_micros` are of entries of this turn that were folded.
    """

    retries: int = 0
    fold_retries: int = 0
    errors: int = 0
    overflow: int = 0
    no_fold: int = 0
    folds: int = 0
    continuations: int = 0
    segment: int = 0
    warned: int = 0
    cuts: int = 0
    over: int = 0
    idle: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost_micros: int = 0
    too_long: str = ""

    @staticmethod
    def of(view: TurnView) -> Progress:
        """Return the progress of the turn that `view` shows."""
        return Progress.read(view.state)

    @staticmethod
    def read(state: dict[str, Any]) -> Progress:
        """Return the progress that a turn's state holds."""
        held: dict[str, Any] | None = state.get(_KERNEL)
        if not held:
            return _NOTHING
        return Progress(**{f.name: held[f.name] for f in fields(Progress) if f.name in held})

    def into(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a turn's state with this progress in it, everything else as it was."""
        counts = {f.name: value for f in fields(self) if (value := getattr(self, f.name))}
        rest = {name: value for name, value in state.items() if name != _KERNEL}
        return rest | {_KERNEL: counts} if counts else rest


_NOTHING = Progress()
