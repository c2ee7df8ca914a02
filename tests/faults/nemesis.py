"""Which fault strikes when, from a seed; and how each is done to a cluster.

The schedule is made of the seed alone, before anything runs: the same seed strikes the same roles in the same order at
the same times. What it hits inside a process is up to the moment.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.faults.cluster import Cluster, send
from tests.faults.proxy import KILL, LOSE, Command, Fault

LEASE_S = 1.0
ROLES = ("dispatcher-0", "dispatcher-1", "worker-0", "worker-1", "lifted-0", "platform-0", "sender-0", "bare-0")
WORKERS = ("worker-0", "worker-1", "lifted-0", "bare-0")
SCRIPTS = ("accept", "dispatch", "begin", "begin_row", "commit", "beat", "tick", "take", "sent")


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: when, seconds after the start, and what to whom; `length_s` is how long it lasts."""

    at_s: float
    what: str
    whom: str = ""
    length_s: float = 0.0
    number: int = 0


def schedule(seed: int, seconds: float) -> list[Strike]:
    """Return the faults of a run, in order; each of the kinds comes about as often as its weight says."""
    rng = random.Random(f"{seed} nemesis")
    kinds = [kind for kind, weight in _WEIGHTS.items() for _ in range(weight)]
    out: list[Strike] = []
    # The first ones make sure that a short run has seen what is rare.
    first = ["stall", "stop worker", "kill child", "lose", "server kill", "flush", "junk"]
    at_s = 1.0
    while at_s < seconds - 1.0:
        kind = first.pop(rng.randrange(len(first))) if first and rng.random() < 0.5 else rng.choice(kinds)
        out.append(_strike(rng, round(at_s, 2), kind))
        at_s += rng.uniform(0.3, 1.4) + (1.5 if kind in ("stall", "server kill") else 0.0)
    return out


_WEIGHTS = {
    "kill": 5,
    "kill child": 5,
    "stop worker": 4,
    "stop": 2,
    "term": 4,
    "reset": 4,
    "hold": 4,
    "delay": 2,
    "lose": 8,
    "cut": 5,
    "kill at": 6,
    "server kill": 1,
    "stall": 1,
    "flush": 2,
    "skew": 2,
    "junk": 1,
}


def _strike(rng: random.Random, at_s: float, kind: str) -> Strike:
    number = rng.randrange(1 << 16)
    if kind in ("lose", "cut", "kill at"):
        return Strike(at_s, kind, rng.choice((*SCRIPTS, "commit", "begin")), number=number)
    if kind in ("stall", "stop worker"):
        return Strike(at_s, kind, rng.choice(WORKERS), rng.uniform(1.3, 2.2) * LEASE_S, number)
    if kind == "kill child":
        return Strike(at_s, kind, rng.choice(("worker-0", "worker-1", "lifted-0")), number=number)
    if kind == "skew":
        return Strike(at_s, kind, number=rng.choice((-800, 400, 1500, 4000, 0)))
    return Strike(at_s, kind, rng.choice(ROLES), rng.uniform(0.2, 2.0), number)


class Nemesis:
    """Does what a schedule says to a cluster, and undoes what lasts."""

    def __init__(self, cluster: Cluster, strikes: list[Strike], note: Callable[..., None]) -> None:
        self._cluster = cluster
        self._left = list(strikes)
        self._note = note
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._armed: list[tuple[str, bool, Fault]] = []
        self.done = 0
        self._do: dict[str, Callable[[Strike], None]] = {
            "kill": self._kill,
            "kill child": self._kill_child,
            "stop worker": self._stop,
            "stop": self._stop,
            "term": self._term,
            "reset": self._reset,
            "hold": self._hold,
            "delay": self._delay,
            "lose": self._arm,
            "cut": self._arm,
            "kill at": self._arm,
            "server kill": lambda _: cluster.server.kill(),
            "stall": self._stall,
            "flush": self._flush,
            "skew": lambda strike: cluster.skew(strike.number),
            "junk": self._junk,
        }

    def work(self, now_s: float) -> None:
        """Do what is due `now_s` seconds after the start."""
        for due in [item for item in self._later if item[0] <= now_s]:
            self._later.remove(due)
            due[1]()
        while self._left and self._left[0].at_s <= now_s:
            strike = self._left.pop(0)
            self.done += 1
            self._note("fault", kind=strike.what, whom=strike.whom, length_s=strike.length_s, number=strike.number)
            self._do[strike.what](strike)

    def stop(self) -> None:
        """Strike no more, and undo what still lasts."""
        self._left.clear()
        self._armed.clear()
        for _, undo in self._later:
            undo()
        self._later.clear()

    def hook(self, command: Command, reply: bytes | None) -> Fault | None:
        """Strike at a command, where that was armed. Called in the proxy's thread."""
        for armed in self._armed:
            what, after, fault = armed
            if command.what == what and (reply is not None) == after:
                self._armed.remove(armed)
                # A load that died would not know what was accepted.
                return LOSE if fault is KILL and command.pid in self._cluster.loads() else fault
        return None

    def _whom(self, strike: Strike) -> list[int]:
        """Return one of a role's processes, or all of them."""
        pids = self._cluster.pids(strike.whom)
        return pids if strike.number % 3 == 0 else [pids[strike.number % len(pids)]]

    def _until(self, strike: Strike, undo: Callable[[], None]) -> None:
        self._later.append((strike.at_s + strike.length_s, undo))

    def _kill(self, strike: Strike) -> None:
        self._cluster.kill(strike.whom)

    def _kill_child(self, strike: Strike) -> None:
        if children := self._cluster.children(strike.whom):
            send(children[strike.number % len(children)], signal.SIGKILL)

    def _stop(self, strike: Strike) -> None:
        pids = self._whom(strike)
        self._cluster.stop(pids)
        self._until(strike, lambda: self._cluster.go_on(pids))

    def _stall(self, strike: Strike) -> None:
        pid, cluster = self._cluster.server.pid, self._cluster

        def go_on() -> None:
            send(pid, signal.SIGCONT)
            cluster.stalled = False

        send(pid, signal.SIGSTOP)
        cluster.stalled = True
        self._until(strike, go_on)

    def _term(self, strike: Strike) -> None:
        pid = self._cluster.roles[strike.whom].pid
        send(pid, signal.SIGTERM)
        if strike.number % 2:
            self._until(strike, lambda: send(pid, signal.SIGTERM))

    def _reset(self, strike: Strike) -> None:
        self._cluster.proxy.reset(set(self._whom(strike)).__contains__)

    def _hold(self, strike: Strike) -> None:
        self._cluster.proxy.hold(frozenset(self._whom(strike)).__contains__)
        self._until(strike, self._cluster.proxy.release)

    def _delay(self, strike: Strike) -> None:
        proxy: Any = self._cluster.proxy
        proxy.delay_s = 0.02 + strike.number % 100 / 1000
        self._until(strike, lambda: setattr(proxy, "delay_s", 0.0))

    def _arm(self, strike: Strike) -> None:
        after = strike.what == "lose" or (strike.what == "kill at" and strike.number % 2 == 0)
        self._armed.append((strike.whom, after, KILL if strike.what == "kill at" else LOSE))

    def _flush(self, _: Strike) -> None:
        self._cluster.ask("FUNCTION", "FLUSH")

    def _junk(self, _: Strike) -> None:
        self._cluster.ask("XADD", self._cluster.keys.ingress, "*", "v", "9", "kind", "nonsense")


def kinds() -> Iterator[str]:
    """Yield what a nemesis can do."""
    yield from _WEIGHTS
