"""Which turn is closed when children or hosts keep dying, and who is charged for it.

Children run many turns; one of them kills its child (or its host) at one phase. A suspect runs again in a child of at most SMALL,
then alone; only a death alone counts, three close the turn. A lost host is charged to the turns on it; from two on such a turn runs
alone, one per host, and only it is charged; five close it. The oracle: the poison is closed soon, no innocent ever is.
"""

import random
from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["ready", "model", "tool", "done", "poisoned"]

CROWD, SMALL = 8, 2
DEATHS_LIMIT, LOST_ALONE, LOST_LIMIT = 3, 2, 5
MAX_MODEL_CALLS = 40
MAX_TICKS = 900


@dataclass(frozen=True)
class PoisonRules:
    """How deaths are charged and forgiven; the defaults are the protocol's rules.

    `suspect_all`: a dead child with no turn inside a tool suspects all of its turns. `keep_level`: isolation stays until the turn
    ends. `forgive`: what sets deaths back: a committed real `result`, any commit with `entries`, or `any` commit. `lost_forgiven`:
    a real result sets lost back, too. `charge_alone`: when a turn that runs alone was on the host, only such turns are charged.
    """

    suspect_all: bool = True
    keep_level: bool = True
    forgive: Literal["result", "entries", "any"] = "result"
    lost_forgiven: bool = True
    charge_alone: bool = True


@dataclass(frozen=True)
class Plague:
    """What kills: `poison` of `turns` turns, at `phase` of step `at` or later, a child or a whole host; and `chance` other deaths.

    An idempotent killer is run again by whoever takes its turn over; another one becomes unknown and the model asks once more.
    `slow`: the innocents' steps take long, so they are there when something dies.
    """

    phase: Phase = "tool"
    turns: int = 6
    poison: int = 1
    steps: int = 3
    at: int = 0
    chance: int = 0
    idempotent: bool = True
    kills_host: bool = False
    slow: bool = False


@dataclass
class Turn:
    """A turn as its supervisor sees it; `started` when its last child died inside its tool."""

    bad: bool
    phase: Phase = "ready"
    child: int = 0
    step: int = 0
    level: int = 0
    deaths: int = 0
    lost: int = 0
    started: bool = False
    model_calls: int = 0

    @property
    def alone(self) -> bool:
        """Tell whether lost hosts have put it under quarantine."""
        return self.lost >= LOST_ALONE

    @property
    def isolation(self) -> int:
        """Return 0 for any child, 1 for a small one, 2 for alone."""
        return 2 if self.alone else self.level

    @property
    def over(self) -> bool:
        """Tell whether nothing is left to do."""
        return self.phase in ("done", "poisoned")


@dataclass
class Fleet:
    """The children of one host, and the turns they run."""

    rnd: random.Random
    rules: PoisonRules
    plague: Plague
    child_deaths: int = 0
    children: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def __post_init__(self) -> None:
        """Start with every turn ready."""
        self.turns = [Turn(bad=i < self.plague.poison) for i in range(self.plague.turns)]
        self.chance = self.plague.chance

    def run(self) -> "Fleet":
        """Run a random schedule until every turn is over, or for MAX_TICKS."""
        for _ in range(MAX_TICKS):
            live = [i for i, turn in enumerate(self.turns) if not turn.over]
            if not live:
                break
            self.step(live)
        return self

    def step(self, live: list[int]) -> None:
        """Start or move one turn, or kill a child by chance."""
        crowded = [-child for child, turns in self.children.items() if turns] if self.chance else []
        chosen = self.rnd.choice([*live, *crowded])
        if chosen < 0:
            self.chance -= 1
            self.die(-chosen, by_turn=False)
        elif self.turns[chosen].phase == "ready":
            self.start(chosen)
        else:
            self.move(chosen)

    # Starting

    def start(self, i: int) -> None:
        """Give a ready turn a child that may hold it, or close it when it has killed too often."""
        turn = self.turns[i]
        quarantined = any(self.turns[j].alone for turns in self.children.values() for j in turns)
        if self.rules.charge_alone and turn.alone and turn.lost < LOST_LIMIT and quarantined:
            return
        if turn.deaths >= DEATHS_LIMIT or turn.lost >= LOST_LIMIT:
            turn.phase = "poisoned"
            return
        turn.child = self.child_for(turn)
        self.children.setdefault(turn.child, []).append(i)
        turn.phase = "model"
        if turn.started:
            turn.started = False
            self.take_over_tool(i)

    def child_for(self, turn: Turn) -> int:
        """Return a child with room for a turn of this isolation, a new one if none has."""
        fit = [child for child, turns in self.children.items() if turns and self.fits(turn, turns)]
        if fit and turn.isolation < 2:
            return self.rnd.choice(fit)
        return max(self.children, default=0) + 1

    def fits(self, turn: Turn, others: list[int]) -> bool:
        """Tell whether the turn may share a child with these."""
        small_enough = len(others) < size(turn)
        return small_enough and all(size(self.turns[j]) > len(others) and (self.turns[j].level > 0) == (turn.isolation > 0) for j in others)

    def take_over_tool(self, i: int) -> None:
        """Deal with a call whose fate is unknown: run it again, or let the model ask once more."""
        turn = self.turns[i]
        if self.plague.idempotent:
            turn.phase = "tool"
            if self.rules.forgive == "any":
                self.forgive(turn)
            return
        if self.rules.forgive in ("any", "entries"):
            self.forgive(turn)
        turn.model_calls += 1
        if turn.model_calls >= MAX_MODEL_CALLS:
            self.finish(i)

    # Moving

    def move(self, i: int) -> None:
        """Let a turn do its next phase; the poison kills at its own."""
        turn, plague = self.turns[i], self.plague
        if turn.bad and turn.phase == plague.phase and turn.step >= plague.at:
            self.die(turn.child, by_turn=True)
        elif plague.slow and not turn.bad and self.rnd.random() < 0.9:
            return
        elif turn.phase == "model":
            turn.phase = "tool"
            if self.rules.forgive in ("any", "entries"):
                self.forgive(turn)
        else:
            self.commit_result(i)

    def commit_result(self, i: int) -> None:
        """Commit a real result; the turn is over after its last step."""
        turn = self.turns[i]
        turn.step += 1
        self.forgive(turn)
        if self.rules.lost_forgiven:
            turn.lost = 0
        turn.phase = "model"
        if turn.step >= self.plague.steps:
            self.finish(i)

    def finish(self, i: int) -> None:
        """The turn ends well."""
        self.children[self.turns[i].child].remove(i)
        self.turns[i].phase = "done"

    def forgive(self, turn: Turn) -> None:
        """Set deaths back."""
        turn.deaths = 0
        if not self.rules.keep_level:
            turn.level = 0

    # Dying

    def die(self, child: int, *, by_turn: bool) -> None:
        """A child dies, or with it every child of its host."""
        self.child_deaths += 1
        killed = [c for c, turns in self.children.items() if turns] if self.plague.kills_host and by_turn else [child]
        quarantined = [i for c in killed for i in self.children[c] if self.turns[i].alone]
        for c in killed:
            if self.plague.kills_host:
                self.charge_host(self.children[c], quarantined)
            else:
                self.charge_child(self.children[c])
            for i in self.children[c]:
                turn = self.turns[i]
                turn.started, turn.phase, turn.child = turn.phase == "tool", "ready", 0
            self.children[c] = []

    def charge_host(self, turns: list[int], quarantined: list[int]) -> None:
        """Charge a lost host to its turns, or only to the quarantined among them."""
        for i in turns:
            if not self.rules.charge_alone or not quarantined or i in quarantined:
                self.turns[i].lost += 1

    def charge_child(self, turns: list[int]) -> None:
        """Isolate the suspects of a dead child further; a death alone counts."""
        suspects = [i for i in turns if self.turns[i].phase == "tool"]
        if not suspects and self.rules.suspect_all:
            suspects = list(turns)
        for i in suspects:
            self.turns[i].deaths += 1 if len(turns) == 1 else 0
            self.turns[i].level = min(2, self.turns[i].level + 1)

    # What came of it

    def innocents_closed(self) -> bool:
        """Tell whether a turn was closed for what another did."""
        return any(turn.phase == "poisoned" and not turn.bad for turn in self.turns)

    def poison_closed(self) -> bool:
        """Tell whether every poison was closed."""
        return all(turn.phase == "poisoned" for turn in self.turns if turn.bad)


def size(turn: Turn) -> int:
    """Return how many turns the child of this one may hold."""
    return (CROWD, SMALL, 1)[turn.isolation]
