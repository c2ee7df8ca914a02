"""What every log must look like, whoever reads it and whenever.

Gap-free, epochs never going back, each call answered once and before anything else, and a user's messages in their order.
"""

from tests.protocol.actors.world import fail
from tests.protocol.model import State


class LogCheck:
    """One pass over the log of one store."""

    def __init__(self, shard: State, env: State, store: str) -> None:
        """Start before the first record."""
        self.shard, self.env, self.store = shard, env, store
        self.open: list[str] = []
        self.epoch = 0
        self.users: list[str] = []
        self.outcomes: dict[str, list[int]] = {}
        self.windows: dict[str, int] = {}

    def run(self, log: list[State]) -> None:
        """Check every record in order, then the order of what users wrote."""
        for i, record in enumerate(log):
            if record["seq"] != i + 1:
                fail(f"{self.store} gap")
            if record["epoch"] < self.epoch:
                fail(f"{self.store} epoch goes back")
            self.epoch = record["epoch"]
            if record["kind"] != "event":
                self.entry(record)
        if len(self.users) != len(set(self.users)):
            fail(f"{self.store} user message twice")
        for destination in ("inbox", "next", "collect"):
            order = [self.env["order"][mid] for mid in self.users if self.env["dest"][mid] == destination]
            if order != sorted(order):
                fail(f"{self.store} order of {destination}: {self.users}")

    def entry(self, entry: State) -> None:
        """Check one entry by its kind."""
        kind = entry["kind"]
        if kind == "result":
            self.result(entry)
        elif self.open:
            fail(f"{self.store} {kind} inside an open batch {self.open}")
        if kind == "assistant":
            self.open = list(entry["calls"])
        elif kind == "note":
            self.note(entry)
        elif kind == "user" and not entry.get("struck"):
            self.user(entry)
        if kind in ("result", "note"):
            self.outcome(entry)

    def result(self, entry: State) -> None:
        """A result answers a call of the open batch; parallel ones come in source order."""
        call = entry["call"]
        if call in self.open and self.parallel(call) and call != next(c for c in self.open if self.parallel(c)):
            fail(f"{self.store} result of {call} before {self.open[0]}: not in source order")
        if call not in self.open:
            fail(f"{self.store} result of {call} unpaired")
        self.open.remove(call)

    def parallel(self, call: str) -> bool:
        """Tell whether the call is one of a parallel batch."""
        return self.shard["calls"][call]["kind"] == "par"

    def note(self, entry: State) -> None:
        """A strike takes what its own turn brought, all of it and nothing else."""
        row = self.shard["calls"][entry["call"]]
        if entry.get("struck") and row["turn"] != entry["turn"] and not row.get("struck"):
            fail(f"{self.store} a strike took the result of {entry['call']}, a call of turn {row['turn']}")
        if row.get("struck") and not entry.get("struck") and entry["turn"] > row["turn"]:
            fail(f"{self.store} note of struck call {entry['call']}")

    def user(self, entry: State) -> None:
        """A collect window is one turn; a message that interrupts is not swallowed by the turn it cancelled."""
        if entry.get("g") and self.windows.setdefault(entry["g"], entry["turn"]) != entry["turn"]:
            fail(f"{self.store} collect window {entry['g']} taken in two turns")
        self.users.append(entry["mid"])
        if entry["mid"] in self.env["never"]:
            fail(f"{self.store} message {entry['mid']} was taken after its cancel was accepted")
        asked = self.env["cancels"].get(f"{self.store.split('/')[0]}/{entry['turn']}")
        if asked is not None and entry["mid"] in asked:
            fail(f"{self.store} interrupting message claimed by the turn it cancelled")

    def outcome(self, entry: State) -> None:
        """A call has one terminal outcome and one late one at most; unknown needs a crash."""
        counts = self.outcomes.setdefault(entry["call"], [0, 0])
        if entry["outcome"] != "placeholder":
            counts[1 if entry["kind"] == "note" and entry["late"] else 0] += 1
            if max(counts) > 1:
                fail(f"{entry['call']} has outcomes {counts}")
        if entry["outcome"] == "unknown" and not self.env["crashed"] and not self.env["rewound"]:
            fail(f"false unknown of {entry['call']} without a crash")
