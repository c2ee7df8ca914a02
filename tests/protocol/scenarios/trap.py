"""What a trap is: a small world, the steps that walk into it, and what must be true when all is at rest.

The steps are those of the actors; with every rule on each of them can be taken. The story is the log of each store in short:
`m1` a user's message, `ask m1.0` a model's answer with calls, `m1.0 ok` a result, `note m1.0 real` the result of a call that was
answered before, `notice 3`, `say` a model's last word; `~` before what was struck, ` | ` between turns.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tests.protocol.actors import Action, Config, Violation, act, copy, enabled, new_world, quiesce
from tests.protocol.model import Rules, State

Expectation = Callable[[State, State], bool]

START = "accept 0; dispatch; take A; begin A x"
STEP = "effect A x; commit A x"
AGAIN = "dispatch; take A; begin A x"


@dataclass(frozen=True, kw_only=True)
class Trap:
    """One interleaving that a simpler design loses.

    `switch` names the rules that save it (all are switched off together); empty when the model has no switch for it. `story` gives
    the logs at rest by store, `expect` what else must hold then, or right after the path when `rest` is False.
    """

    id: str
    name: str
    config: Config
    path: tuple[Action, ...]
    switch: tuple[str, ...] = ()
    story: Mapping[str, str] = field(default_factory=dict[str, str])
    expect: Expectation | None = None
    rest: bool = True

    def run(self, off: Iterable[str] = ()) -> tuple[State, State]:
        """Walk the path, run to rest and check; return the world. Raise Violation where it goes wrong.

        With rules off, a step that the broken protocol no longer offers is left out: what follows shows the harm.
        """
        rules = Rules(off)
        shard, env = new_world(self.config)
        for action in self.path:
            if action in enabled(shard, env):
                act(shard, env, rules, action)
            elif not rules.off:
                raise Violation(f"{self.id}: {action} cannot happen here, but {enabled(shard, env)} can")
        if self.rest:
            quiesce(shard, env, rules)
        self.check(shard, env)
        return shard, env

    def check(self, shard: State, env: State) -> None:
        """Raise Violation unless the logs tell the story and the expectation holds."""
        for store, expected in self.story.items():
            told = story(shard, store)
            if told != expected:
                raise Violation(f"{self.id}: the log of {store} tells {told!r} instead of {expected!r}")
        if self.expect is not None and not self.expect(shard, env):
            raise Violation(f"{self.id}: {self.name}: not at rest as expected")

    def actions(self) -> list[Action]:
        """Return the whole walk with every rule on: the path, then the fair run to rest."""
        shard, env = new_world(self.config)
        for action in self.path:
            act(shard, env, Rules(), action)
        tail: list[Action] = []
        if self.rest:
            quiesce(copy(shard), copy(env), Rules(), tail)
        return [*self.path, *tail]


def steps(*parts: str) -> tuple[Action, ...]:
    """Read a path: actions separated by `; `, their words by blanks, numbers as numbers."""
    actions = "; ".join(parts).split("; ")
    return tuple(tuple(int(word) if word.isdigit() else word for word in action.split()) for action in actions)


def story(shard: State, store: str) -> str:
    """Return the store's log in short."""
    turns: dict[int, list[str]] = {}
    for entry in shard["log"][store]:
        if entry["kind"] != "event":
            turns.setdefault(entry["turn"], []).append(("~" if entry.get("struck") else "") + short(entry))
    return " | ".join(", ".join(turn) for turn in turns.values())


def short(entry: State) -> str:
    """Return one entry in short."""
    kind = entry["kind"]
    if kind == "user":
        return entry["mid"]
    if kind == "assistant":
        return " ".join(["ask", *entry["calls"]]) if entry["calls"] else "say"
    if kind == "notice":
        return f"notice {entry['text']}"
    text = f"{entry['call']} {entry['outcome']}"
    return f"note {text}" if kind == "note" else text
