"""Do tenants get slot time by their weights, and does everyone who waits get a slot soon?

A discrete clock, some slots, tenants with weights. A flow's tag is its virtual start; the lowest goes first. A tenant is charged an
estimate when it is admitted, corrected when it releases; a slot held past the quantum while others wait is given up.
"""

from dataclasses import dataclass, field
from typing import Literal

QUANTUM = 10
UNLIMITED = 10**9


@dataclass(frozen=True)
class FairRules:
    """How time is charged and tags are kept; the defaults are the protocol's rules.

    `charge`: an estimate at admit (the tenant's last slot time), or all of it at release. `tags` go once v has passed them, or as
    soon as their tenant is idle. The quantum counts over the `slot` (from begin of the epoch, over every turn that finish opens),
    or over the `turn`. `waiting` is anyone in a flow with room, or anyone ready at all.
    """

    charge: Literal["admit", "release"] = "admit"
    tags: Literal["passed", "idle"] = "passed"
    held: Literal["slot", "turn"] = "slot"
    waiting: Literal["flows", "ready"] = "flows"


@dataclass
class Session:
    """Turns of `length` ticks. `again`: the next message is already there (chat), waits in next (queue), comes a tick later (flap)."""

    length: int
    again: Literal["chat", "queue", "flap"] | None = None
    left: int = 0
    since: int = 0


@dataclass
class Slot:
    """A session that holds a slot since `begin`, its open turn since `turn`."""

    tenant: str
    session: Session
    begin: int
    turn: int
    estimate: float


@dataclass
class Yard:
    """The fair queue of one shard."""

    slots: int
    weights: dict[str, int]
    rules: FairRules = FairRules()
    limits: dict[str, int] = field(default_factory=dict[str, int])
    now: int = 0
    v: float = 0.0
    yields: int = 0
    running: list[Slot] = field(default_factory=list[Slot])
    later: list[tuple[int, str, Session]] = field(default_factory=list[tuple[int, str, Session]])

    def __post_init__(self) -> None:
        """Start with nothing tagged, charged or waiting."""
        self.tags: dict[str, float] = {}
        self.last: dict[str, int] = {}
        self.ready: dict[str, list[Session]] = {tenant: [] for tenant in self.weights}
        self.got = dict.fromkeys(self.weights, 0)
        self.delay = dict.fromkeys(self.weights, 0)

    def run(self, ticks: int, arrivals: list[tuple[str, Session]]) -> "Yard":
        """Let `arrivals` become ready at once, then run the clock."""
        for tenant, session in arrivals:
            self.enqueue(tenant, session)
        self.admit()
        for _ in range(ticks):
            self.tick()
        return self

    def enqueue(self, tenant: str, session: Session) -> None:
        """Make a session ready with a whole turn ahead, unless it was interrupted in one."""
        session.left = session.left if session.left > 0 else session.length
        session.since = self.now
        self.ready[tenant].append(session)

    def flows(self) -> list[str]:
        """Return the tenants that have work and room."""
        return [t for t in self.ready if self.ready[t] and sum(1 for s in self.running if s.tenant == t) < self.limits.get(t, UNLIMITED)]

    def start(self, tenant: str) -> float:
        """Return the tenant's virtual start."""
        return max(self.v, self.tags.get(tenant, 0))

    def admit(self) -> None:
        """Give free slots to the lowest tags."""
        while len(self.running) < self.slots:
            flows = self.flows()
            if not flows:
                return
            tenant = min(flows, key=lambda t: (self.start(t), t))
            self.v = self.start(tenant)
            session = self.ready[tenant].pop(0)
            self.delay[tenant] = max(self.delay[tenant], self.now - session.since)
            estimate = self.last.get(tenant, 1) if self.rules.charge == "admit" else 0
            self.tags[tenant] = self.v + estimate / self.weights[tenant]
            self.running.append(Slot(tenant, session, self.now, self.now, estimate))

    def release(self, slot: Slot, *, more: bool) -> None:
        """Free the slot and correct the charge; `more` puts the session back into its flow."""
        used = self.now - slot.begin
        self.running.remove(slot)
        floor = self.v if self.rules.charge == "release" else 0
        self.tags[slot.tenant] = self.tags.get(slot.tenant, floor) + (used - slot.estimate) / self.weights[slot.tenant]
        self.last[slot.tenant] = max(1, used)
        if more:
            self.enqueue(slot.tenant, slot.session)
        self.drop_tags()

    def drop_tags(self) -> None:
        """Forget tenants that are gone; when nobody is left, v takes the largest tag along."""
        busy = {tenant for tenant, sessions in self.ready.items() if sessions} | {slot.tenant for slot in self.running}
        for tenant in [t for t in self.tags if t not in busy]:
            if self.rules.tags == "idle" or self.tags[tenant] <= self.v:
                del self.tags[tenant]
        if not busy and self.rules.tags == "passed" and self.tags:
            self.v = max(self.tags.values())
            self.tags.clear()

    def tick(self) -> None:
        """One unit of work on every slot, then arrivals, then admit."""
        self.now += 1
        for slot in list(self.running):
            self.got[slot.tenant] += 1
            slot.session.left -= 1
            self.after_work(slot)
        for arrival in [a for a in self.later if a[0] <= self.now]:
            self.later.remove(arrival)
            self.enqueue(arrival[1], arrival[2])
        self.admit()

    def after_work(self, slot: Slot) -> None:
        """End the turn if it is done; give the slot up if it was held for the quantum while others wait."""
        session = slot.session
        over = self.now - (slot.begin if self.rules.held == "slot" else slot.turn) >= QUANTUM and self.others_wait()
        if session.left > 0:
            self.give_up(slot, over=over)
        elif session.again == "chat":
            # Finish goes on under the same slot: the next message is already there.
            session.left, slot.turn = session.length, self.now
            self.give_up(slot, over=over)
        else:
            if session.again == "flap":
                self.later.append((self.now + 1, slot.tenant, session))
            self.release(slot, more=session.again == "queue")

    def give_up(self, slot: Slot, *, over: bool) -> None:
        """Yield if the quantum is over."""
        if over:
            self.yields += 1
            self.release(slot, more=True)

    def others_wait(self) -> bool:
        """Tell whether somebody could use this slot."""
        return bool(self.flows()) if self.rules.waiting == "flows" else any(self.ready.values())

    def worst_delay(self) -> int:
        """Return the longest anyone has waited for a slot, those still waiting included."""
        still = [self.now - session.since for sessions in self.ready.values() for session in sessions]
        return max([*self.delay.values(), *still])
